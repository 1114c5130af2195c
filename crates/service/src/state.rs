//! The state of the devices, kept by the service manager for the daemon that comes after a death.
//!
//! The service manager has a copy of each descriptor: the files in memory of the devices, and a
//! table of them with the devices and their settings. A change that is acknowledged is in the
//! table. It also has what connects the devices with their users: the descriptor of the mount of
//! their files, the sockets that clients connect to, and a pipe that tells whether helpers are left
//! ([`crate::loops`]); and the files and devices below them ([`backings`]).
//!
//! The service manager gets nothing before there is a device: a daemon that keeps nothing and is
//! refused is not started again. With the first device it gets everything, the table last. From
//! then on a descriptor is there, and a device is in the table, before others can use it.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use control::{ControlError, Errno};
use host::{Memfds, page_bytes};
use kept::{Contents, Device, Store, Table};
use machine::Machine;
use sync::Mutex;
use ublk::Id;
use zram::{Disk, SavedDisk};

use crate::failure::failed;
use crate::layouts::{DISK, PartLayout, SWAP, SWAP_LOG, SWAP_LOG_LAYOUT, TABLE as TABLE_PART};
use crate::plan::Asked;

pub mod backings;
mod connections;
mod disks;
pub mod file_system;
mod handed_over;
mod kept_before;
pub mod swaps;
mod writing;
use backings::Backings;
pub use connections::Connection;
use connections::{CONNECTIONS, path_of_socket};
pub use disks::disks;
use disks::{device, saved_setting, take_saved_at, take_ublk, ublk_setting};
use file_system::FileSystem;
pub use handed_over::Named;
use handed_over::{Other, PATIENCE};
use swaps::{LeftSwap, SavedArea, SharedSwap};

/// Begins the names of the descriptors of the state.
const PREFIX: &str = "rampack.";
const TABLE: &str = "rampack.table";
const FILES: &str = Connection::Files.name();

/// The state of a daemon's devices. Any thread may call every method.
pub struct State {
    store: Store,
    /// This many descriptors the service manager keeps.
    most: usize,
    memory: Memfds,
    /// What the daemon before left.
    left: Vec<SavedDisk>,
    /// There was a daemon before.
    is_inherited: bool,
    /// The swap devices that it left, until they are taken.
    left_swap: Mutex<Option<LeftSwap>>,
    /// The block devices that the driver ublk keeps, by the numbers of their disks.
    ublks: Mutex<BTreeMap<u32, Id>>,
    /// The files that disks are saved to when the daemon ends, by their numbers.
    saved_at: Mutex<BTreeMap<u32, PathBuf>>,
    swaps: Mutex<(BTreeMap<usize, SavedArea>, SharedSwap)>,
    file_systems: Mutex<BTreeMap<String, FileSystem>>,
    backings: Arc<Backings>,
    written: Mutex<Written>,
}

struct Written {
    table: Table,
    /// The service manager has the table.
    is_kept: bool,
    /// The regions that the service manager has, by their names.
    regions: BTreeMap<String, Arc<File>>,
    /// The other descriptors that outlive the daemon, by their names.
    others: BTreeMap<String, Other>,
    /// The files of the mount, if it outlives the daemon.
    files: BTreeMap<String, u64>,
    /// The names and generations of the devices in the table.
    devices: BTreeSet<(String, u64)>,
    /// What the daemon was asked for.
    asked: Asked,
}

/// Splits handed-over descriptors into those of a state and others.
#[must_use]
pub fn split(handed_over: Named) -> (Named, Named) {
    handed_over.into_iter().partition(|(name, _)| name.starts_with(PREFIX))
}

impl State {
    /// The state that a daemon left, or a new one; `None` if there is no service manager that keeps
    /// descriptors.
    ///
    /// # Errors
    /// `EINVAL` for a state that this program cannot read, or that is damaged; the error of the
    /// system.
    pub fn begin(left: Named) -> Result<Option<State>, ControlError> {
        let store = Store::of_environment();
        let store = store.map_err(|error| failed("cannot reach the service manager", &error))?;
        let Some(store) = store else { return Ok(None) };
        for (name, fd) in &left {
            let noted = store.note(name, fd.as_fd());
            noted.map_err(|error| failed("cannot keep the devices", &error))?;
        }
        let most = env::var("FDSTORE").ok().and_then(|most| most.parse().ok()).unwrap_or(0);
        // Without privileges the memory may be swapped out, but there are no block devices that
        // the system could swap to.
        let memory = Memfds::unswappable().unwrap_or_else(|_| Memfds::new());
        let (mut table, mut handed_over) = (None, Vec::new());
        for (name, fd) in left {
            match name == TABLE {
                true => table = Some(File::from(fd)),
                false => handed_over.push((name, fd)),
            }
        }
        let page = page_bytes() as u32;
        let invalid = |error: kept::TableError| ControlError::invalid(error.to_string());
        let is_kept = table.is_some();
        let (table, contents) = match table {
            Some(file) => Table::open(file, page).map_err(invalid)?,
            None => {
                let file = memory.file(Table::BYTES);
                let file = file.map_err(|error| failed("cannot keep the devices", &error))?;
                (Table::create(file, page).map_err(invalid)?, Contents::default())
            }
        };
        let swap = swaps::left(&contents.devices)?;
        let file_systems = file_system::left(&contents.devices)?;
        let file_systems =
            Mutex::new(file_systems.into_iter().map(|it| (it.disk.clone(), it)).collect());
        let others = match is_kept {
            true => handed_over::others(&mut handed_over, &contents.mounts, &swap.areas),
            // A daemon died before there was a table: nobody depends on what it left.
            false => BTreeMap::new(),
        };
        let backings = Arc::new(Backings::take(&mut handed_over, &contents.mounts));
        handed_over::adopt(&memory, handed_over, &contents.regions, &store)?;
        let mut files = contents.mounts.into_iter().filter(|it| it.descriptor == FILES);
        let files = files.find(|_| others.contains_key(FILES));
        let written = Written {
            table,
            is_kept,
            regions: memory.regions().into_iter().map(|it| (it.name, it.file)).collect(),
            files: files.map(|mount| mount.files).unwrap_or_default(),
            others,
            devices: generations(&contents.devices),
            asked: contents.asked,
        };
        let areas = swap.areas.iter().map(|area| (area.number, area.clone())).collect();
        let swaps = Mutex::new((areas, swap.shared));
        let mut left = disks::left(contents.devices)?;
        let ublks = Mutex::new(left.iter_mut().filter_map(take_ublk).collect());
        let saved_at = Mutex::new(left.iter_mut().filter_map(take_saved_at).collect());
        Ok(Some(State {
            store,
            most,
            memory,
            left,
            is_inherited: is_kept,
            left_swap: Mutex::new(Some(swap)),
            ublks,
            saved_at,
            swaps,
            file_systems,
            backings,
            written: Mutex::new(written),
        }))
    }

    /// Was there a daemon before? What it left must survive if this one fails to start.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// Sets what the daemon is asked for, from the next [`State::save`] on.
    pub fn set_asked(&self, asked: Asked) {
        self.written.lock().asked = asked;
    }

    /// The descriptor of the mount that the daemon before served, with its files and the numbers
    /// that the kernel knows them by; None the second time. The service manager keeps it on.
    #[must_use]
    pub fn take_mount(&self) -> Option<(OwnedFd, Vec<(String, u64)>)> {
        if !self.kept_before(Connection::Files) {
            return None;
        }
        let fd = self.take(Connection::Files)?;
        Some((fd, self.written.lock().files.clone().into_iter().collect()))
    }

    /// A descriptor that the daemon before had, or that this one has kept since. The service
    /// manager keeps it on.
    #[must_use]
    pub fn take(&self, connection: Connection) -> Option<OwnedFd> {
        self.written.lock().others.get_mut(connection.name())?.take().ok()?.pop()
    }

    /// The swap devices that the daemon before served, if there are any; None the second time. The
    /// service manager keeps their descriptors on.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn take_swap(&self) -> io::Result<Option<LeftSwap>> {
        let Some(mut left) = self.left_swap.lock().take() else { return Ok(None) };
        let others = &mut self.written.lock().others;
        for number in left.areas.iter().map(|area| area.number) {
            if let Some(channels) = others.get_mut(&swaps::descriptor(number)) {
                left.channels.insert(number, channels.take()?);
            }
            if let Some(frees) = others.get_mut(&swaps::frees(number)) {
                left.frees.insert(number, frees.take()?);
            }
        }
        Ok((!left.areas.is_empty()).then_some(left))
    }

    /// Lets a swap device outlive the daemon, from the next [`State::save`] on. The descriptors are
    /// those of its file, if it has one, and those by which its freed pages are heard of.
    ///
    /// # Errors
    /// As [`State::keep`].
    pub fn keep_swap(
        &self,
        area: SavedArea,
        shared: SharedSwap,
        (channels, frees): (&[BorrowedFd<'_>], &[BorrowedFd<'_>]),
    ) -> Result<(), ControlError> {
        let number = area.number;
        for (name, fds) in [(swaps::descriptor(number), channels), (swaps::frees(number), frees)] {
            if !fds.is_empty() {
                self.keep_named(&name, fds)?;
            }
        }
        let mut swaps = self.swaps.lock();
        swaps.1 = shared;
        swaps.0.insert(area.number, area);
        Ok(())
    }

    /// Gives up a swap device, from the next [`State::save`] on, with what nobody asked for of it:
    /// the key of a backing device that could not be used.
    pub fn give_up_swap(&self, number: usize) {
        self.swaps.lock().0.remove(&number);
        let beginning = format!("swap{number}.");
        for region in self.memory.unused().iter().filter(|name| name.starts_with(&beginning)) {
            self.memory.forget(region);
        }
        self.forget(&swaps::descriptor(number));
        self.forget(&swaps::frees(number));
    }

    /// What the swap devices share.
    #[must_use]
    pub fn shared_swap(&self) -> SharedSwap {
        self.swaps.lock().1
    }

    /// Can swap devices outlive the daemon? Memory that could be swapped out between two daemons
    /// could not be read back.
    #[must_use]
    pub fn keeps_swap(&self) -> bool {
        self.memory.stay_in_memory()
    }

    /// The paths of the Unix sockets that the daemon before listened at, and that are not taken
    /// yet.
    #[must_use]
    pub fn sockets(&self) -> Vec<PathBuf> {
        let written = self.written.lock();
        CONNECTIONS.iter().filter_map(|it| path_of_socket(written.left(*it)?)).collect()
    }

    /// Did the daemon before leave this, and was it not taken yet?
    #[must_use]
    pub fn kept_before(&self, connection: Connection) -> bool {
        self.written.lock().left(connection).is_some()
    }

    /// Gives up a descriptor that is not used any more, or could not be taken over.
    pub fn give_up(&self, connection: Connection) {
        if connection == Connection::Files {
            self.written.lock().files.clear();
        }
        self.forget(connection.name());
    }

    fn forget(&self, name: &str) {
        let mut written = self.written.lock();
        written.others.remove(name);
        if let Err(error) = self.store.forget(name) {
            tracing::warn!("the service manager keeps {name} in vain: {error}");
        }
    }

    /// Lets a descriptor outlive the daemon, in place of the one of that name.
    ///
    /// # Errors
    /// `EIO` if the service manager does not keep it.
    pub fn keep(&self, connection: Connection, fd: BorrowedFd<'_>) -> Result<(), ControlError> {
        self.keep_named(connection.name(), &[fd])
    }

    fn keep_named(&self, name: &str, fds: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        if !self.has_manager() {
            return Ok(());
        }
        let keep = || -> io::Result<()> {
            let mut written = self.written.lock();
            let copies: Vec<OwnedFd> =
                fds.iter().map(BorrowedFd::try_clone_to_owned).collect::<io::Result<_>>()?;
            if written.is_kept {
                // What the daemon before had under this name.
                self.store.forget(name)?;
            }
            let is_kept = written.is_kept;
            if is_kept {
                copies.iter().try_for_each(|copy| self.store.keep(name, copy.as_fd()))?;
                self.store.settle(PATIENCE)?;
            }
            written.others.insert(name.to_owned(), Other { fds: copies, is_kept, is_left: false });
            Ok(())
        };
        keep().map_err(|error| {
            let message = format!("the service manager does not keep {name}: {error}");
            ControlError::new(Errno::EIO, message)
        })
    }

    /// The files of the mount, with the numbers that the kernel knows them by, from the next
    /// [`State::save`] on.
    pub fn set_files(&self, files: Vec<(String, u64)>) {
        self.written.lock().files = files.into_iter().collect();
    }

    /// The memory of the devices.
    #[must_use]
    pub fn memory(&self) -> &Memfds {
        &self.memory
    }

    /// What is below the devices, and outlives the daemon.
    #[must_use]
    pub fn backings(&self) -> &Arc<Backings> {
        &self.backings
    }

    /// The devices that the daemon before left.
    #[must_use]
    pub fn left(&self) -> &[SavedDisk] {
        &self.left
    }

    /// The block device of disk `id` that the driver ublk keeps.
    #[must_use]
    pub fn ublk(&self, id: u32) -> Option<Id> {
        self.ublks.lock().get(&id).copied()
    }

    /// The N of each `/dev/ublkbN` that is the block device of a disk.
    #[must_use]
    pub fn ublks(&self) -> Vec<u32> {
        self.ublks.lock().values().map(|id| id.number).collect()
    }

    /// Sets the block device of disk `id`, from the next [`State::save`] on.
    pub fn set_ublk(&self, disk: u32, id: Option<Id>) {
        let mut ublks = self.ublks.lock();
        match id {
            Some(id) => _ = ublks.insert(disk, id),
            None => _ = ublks.remove(&disk),
        }
    }

    /// The files that disks are saved to when the daemon ends, by their numbers.
    #[must_use]
    pub fn saved_at(&self) -> BTreeMap<u32, PathBuf> {
        self.saved_at.lock().clone()
    }

    /// Sets the files that disks are saved to, from the next [`State::save`] on.
    pub fn set_saved_at(&self, saved_at: BTreeMap<u32, PathBuf>) {
        *self.saved_at.lock() = saved_at;
    }

    /// The file systems that were made for the user.
    #[must_use]
    pub fn file_systems(&self) -> Vec<FileSystem> {
        self.file_systems.lock().values().cloned().collect()
    }

    /// Sets the file system of a disk that was made for the user, from the next [`State::save`] on.
    pub fn set_file_system(&self, file_system: FileSystem) {
        self.file_systems.lock().insert(file_system.disk.clone(), file_system);
    }

    /// Forgets the file system of `disk`, which stays, from the next [`State::save`] on.
    pub fn forget_file_system(&self, disk: &str) {
        self.file_systems.lock().remove(disk);
    }

    /// Makes the next daemon find the devices of `machine` as they are now.
    ///
    /// # Errors
    /// `EIO` if the service manager does not keep them. The devices themselves are as they were.
    pub fn save(&self, machine: &Machine) -> Result<(), ControlError> {
        let devices = || {
            let mut saved = machine.saved();
            let saved_at = self.saved_at();
            for disk in &mut saved {
                disk.settings.extend(self.ublk(disk.id).map(ublk_setting));
                disk.settings.extend(saved_at.get(&disk.id).map(|path| saved_setting(path)));
            }
            let (areas, shared) = &*self.swaps.lock();
            let swaps = swaps::devices(areas.values(), *shared, machine.saved_swap());
            // A later disk of the name has another file system, or none.
            let mut file_systems = self.file_systems.lock();
            let is_there = |disk: &str| saved.iter().any(|it| format!("zram{}", it.id) == disk);
            file_systems.retain(|disk, _| is_there(disk));
            let file_systems = file_system::device(file_systems.values());
            saved.into_iter().map(device).chain(swaps).chain(file_systems).collect()
        };
        self.write(devices).map_err(|error| {
            let message = format!("what was changed would not outlive the daemon: {error}");
            ControlError::new(Errno::EIO, message)
        })
    }

    /// The parts of the state, and the layout of each.
    #[must_use]
    pub fn layouts(&self, machine: &Machine) -> Vec<PartLayout> {
        let table = self.written.lock().table.layout();
        let disks = machine.disks().iter().map(|disk| disk.layout()).max();
        let disk = disks.unwrap_or(zram::OLDEST_LAYOUT);
        let mut parts = vec![(TABLE_PART, table), (DISK, disk)];
        let areas = &self.swaps.lock().0;
        if !areas.is_empty() {
            let swap = machine.swap_if_made().map_or(zswap::OLDEST_LAYOUT, |it| it.layout());
            parts.push((SWAP, swap));
        }
        let mut below = areas.values().filter_map(|area| area.backing.as_ref());
        if below.any(|backing| backing.log_bytes.is_some()) {
            parts.push((SWAP_LOG, SWAP_LOG_LAYOUT));
        }
        parts
    }

    /// Is the service manager still there? What it kept ends with it, or else with this process.
    #[must_use]
    pub fn has_manager(&self) -> bool {
        self.store.is_there()
    }

    /// Waits until the service manager has everything.
    ///
    /// # Errors
    /// Its error, or `ETIMEDOUT`.
    pub fn settle(&self) -> Result<(), ControlError> {
        let gone = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        let settled = if self.has_manager() { self.store.settle(PATIENCE) } else { gone() };
        let what =
            "the service manager, which keeps the devices, does not answer; the daemon goes on";
        settled.map_err(|error| failed(what, &error))
    }

    /// Copies of all descriptors of the state, with their names: for the next program.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn descriptors(&self) -> io::Result<Named> {
        self.store.kept()
    }

    /// Do the users of block devices and files wait for the next daemon?
    #[must_use]
    pub fn has_mount(&self) -> bool {
        self.written.lock().others.contains_key(FILES)
    }

    /// Does the next daemon find the contents that `disk` has had since it got its size?
    #[must_use]
    pub fn has(&self, disk: &Disk) -> bool {
        self.written.lock().devices.contains(&(disk.name(), disk.generation()))
    }

    /// Gives everything up, after the devices are gone: this daemon ends in an orderly way.
    pub fn end(&self) {
        if !self.has_manager() {
            return;
        }
        let end = || -> Result<(), Box<dyn std::error::Error>> {
            self.written.lock().others.clear();
            self.write(Vec::new)?;
            for name in CONNECTIONS.iter().map(|it| it.name()).chain([TABLE]) {
                self.store.forget(name)?;
            }
            Ok(())
        };
        if let Err(error) = end() {
            tracing::warn!("the next daemon may find devices of this one: {error}");
        }
    }
}

impl Written {
    /// What the daemon before left, if it was not taken yet.
    fn left(&self, connection: Connection) -> Option<&OwnedFd> {
        self.others.get(connection.name()).filter(|other| other.is_left)?.fds.first()
    }
}

fn generations(devices: &[Device]) -> BTreeSet<(String, u64)> {
    devices.iter().map(|device| (device.name.clone(), device.generation)).collect()
}

#[cfg(test)]
mod tests;
