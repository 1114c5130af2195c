//! The state of the devices, kept by the service manager for the daemon that comes after a death.
//!
//! The service manager has a copy of each descriptor: the files in memory of the devices, and a
//! table of them with the devices and their settings. A change that is acknowledged is in the
//! table. It also has what connects the devices with their users: the descriptor of the mount of
//! their files, the sockets that clients connect to, and a pipe that tells whether helpers are left
//! ([`crate::loops`]).
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
use std::time::Duration;

use kept::{Contents, Device, Mount, Region, Store, Table};
use rampack::control::{ControlError, Errno};
use rampack::host::{Memfds, page_bytes};
use rampack::sync::Mutex;
use rampack::ublk::Id;
use rampack::zram::Disk;
use rampack::{Machine, SavedDisk};

use crate::failure::failed;
use crate::layouts::{DISK, Part, SWAP, SWAP_LOG, SWAP_LOG_LAYOUT, TABLE as TABLE_PART};

mod connections;
pub mod file_system;
pub mod swaps;
pub use connections::Connection;
use connections::{CONNECTIONS, path_of_socket};
use file_system::FileSystem;
use swaps::{LeftSwap, SavedArea, SharedSwap};

/// Begins the names of the descriptors of the state.
const PREFIX: &str = "rampack.";
const TABLE: &str = "rampack.table";
/// The name of the descriptor of the mount of the files, and the name of that mount in the table.
const FILES: (&str, &str) = ("rampack.mount.files", "files");
/// Among the settings of a device: its block device by ublk, which the kernel keeps for the next
/// daemon. Its number and the process that made it follow.
const UBLK: &str = "ublk";
/// How long the service manager may take to store a descriptor.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state of a daemon's devices. Any thread may call every method.
pub struct State {
    store: Store,
    /// So many descriptors the service manager keeps.
    most: usize,
    memory: Memfds,
    /// What the daemon before left.
    left: Vec<SavedDisk>,
    /// There was a daemon before.
    is_inherited: bool,
    handed_over: Mutex<HandedOver>,
    /// The block devices that the driver ublk keeps, by the numbers of their disks.
    ublks: Mutex<BTreeMap<u32, Id>>,
    swaps: Mutex<(BTreeMap<usize, SavedArea>, SharedSwap)>,
    file_system: Mutex<Option<FileSystem>>,
    written: Mutex<Written>,
}

/// What was handed over and was not taken yet.
#[derive(Default)]
struct HandedOver {
    mount: Option<(OwnedFd, Vec<(String, u64)>)>,
    swap: Option<LeftSwap>,
    connections: BTreeMap<Connection, OwnedFd>,
}

struct Written {
    table: Table,
    /// The service manager has the table.
    is_kept: bool,
    /// The names of the regions that the service manager has.
    regions: BTreeSet<String>,
    /// Copies of the other descriptors that outlive the daemon, by their names, and whether the
    /// service manager has them.
    others: BTreeMap<String, (Vec<OwnedFd>, bool)>,
    /// The files of the mount, if it outlives the daemon.
    files: BTreeMap<String, u64>,
    /// The names and generations of the devices in the table.
    devices: BTreeSet<(String, u64)>,
}

/// Descriptors with their names.
pub type Named = Vec<(String, OwnedFd)>;

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
        let (mut table, mut others) = (None, Vec::new());
        for (name, fd) in left {
            match name == TABLE {
                true => table = Some(File::from(fd)),
                false => others.push((name, fd)),
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
        let devices = generations(&contents.devices);
        let (regions, files) = (BTreeSet::new(), BTreeMap::new());
        let mut written =
            Written { table, is_kept, regions, others: BTreeMap::new(), files, devices };
        let mut swap = swaps::left(&contents.devices)?;
        swap.take_channels(&mut others);
        let swaps = swap.areas.iter().map(|area| (area.number, area.clone())).collect();
        let swaps = Mutex::new((swaps, swap.shared));
        let file_system = Mutex::new(file_system::left(&contents.devices)?);
        let handed_over = match is_kept {
            true => HandedOver::take(&mut others, &contents.mounts, swap),
            // A daemon died before there was a table: nobody depends on what it left.
            false => HandedOver::default(),
        };
        adopt(&memory, others, &contents.regions, &store)?;
        written.regions.extend(contents.regions.into_iter().map(|region| region.name));
        let mut left = disks(contents.devices)?;
        let ublks = Mutex::new(left.iter_mut().filter_map(take_ublk).collect());
        let (handed_over, written) = (Mutex::new(handed_over), Mutex::new(written));
        Ok(Some(State {
            store,
            most,
            memory,
            left,
            is_inherited: is_kept,
            handed_over,
            ublks,
            swaps,
            file_system,
            written,
        }))
    }

    /// Was there a daemon before? What it left must survive if this one fails to start.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// The descriptor of the mount that the daemon before served, with its files and the numbers
    /// that the kernel knows them by; None the second time. The service manager keeps it on.
    #[must_use]
    pub fn take_mount(&self) -> Option<(OwnedFd, Vec<(String, u64)>)> {
        let (fd, files) = self.handed_over.lock().mount.take()?;
        let mut written = self.written.lock();
        written.others.insert(FILES.0.into(), (vec![fd.try_clone().ok()?], true));
        written.files = files.iter().cloned().collect();
        Some((fd, files))
    }

    /// A descriptor that the daemon before had, or that this one has kept since. The service
    /// manager keeps it on.
    #[must_use]
    pub fn take(&self, connection: Connection) -> Option<OwnedFd> {
        let handed_over = self.handed_over.lock().connections.remove(&connection);
        let mut written = self.written.lock();
        let Some(fd) = handed_over else {
            return written.others.get(connection.name())?.0.first()?.try_clone().ok();
        };
        written.others.insert(connection.name().into(), (vec![fd.try_clone().ok()?], true));
        Some(fd)
    }

    /// The swap devices that the daemon before served, if there are any; None the second time. The
    /// service manager keeps their descriptors on.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn take_swap(&self) -> io::Result<Option<LeftSwap>> {
        let Some(left) = self.handed_over.lock().swap.take() else { return Ok(None) };
        let mut written = self.written.lock();
        for (number, channels) in &left.channels {
            let copies = channels.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
            written.others.insert(swaps::descriptor(*number), (copies, true));
        }
        Ok((!left.areas.is_empty()).then_some(left))
    }

    /// Lets a swap device outlive the daemon, from the next [`State::save`] on. `channels` are the
    /// descriptors of its file, if it has one.
    ///
    /// # Errors
    /// As [`State::keep`].
    pub fn keep_swap(
        &self,
        area: SavedArea,
        shared: SharedSwap,
        channels: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        if !channels.is_empty() {
            self.keep_named(&swaps::descriptor(area.number), channels)?;
        }
        let mut swaps = self.swaps.lock();
        swaps.1 = shared;
        swaps.0.insert(area.number, area);
        Ok(())
    }

    /// Gives up a swap device, from the next [`State::save`] on.
    pub fn give_up_swap(&self, number: usize) {
        self.swaps.lock().0.remove(&number);
        let name = swaps::descriptor(number);
        if self.written.lock().others.remove(&name).is_some()
            && let Err(error) = self.store.forget(&name)
        {
            tracing::warn!("the service manager keeps {name} in vain: {error}");
        }
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
        let handed_over = self.handed_over.lock();
        handed_over.connections.values().filter_map(path_of_socket).collect()
    }

    /// Lets the mount of the files outlive the daemon.
    ///
    /// # Errors
    /// As [`State::keep`].
    pub fn keep_mount(&self, channel: BorrowedFd<'_>) -> Result<(), ControlError> {
        self.keep_named(FILES.0, &[channel])
    }

    /// Gives up the mount of the daemon before, which could not be taken over.
    pub fn give_up_mount(&self) {
        let mut written = self.written.lock();
        written.others.remove(FILES.0);
        written.files.clear();
        if let Err(error) = self.store.forget(FILES.0) {
            tracing::warn!("the service manager keeps {} in vain: {error}", FILES.0);
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
            written.others.insert(name.to_owned(), (copies, is_kept));
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

    /// The file system that was made for the user.
    #[must_use]
    pub fn file_system(&self) -> Option<FileSystem> {
        self.file_system.lock().clone()
    }

    /// Sets the file system that was made for the user, from the next [`State::save`] on.
    pub fn set_file_system(&self, file_system: FileSystem) {
        *self.file_system.lock() = Some(file_system);
    }

    /// Makes the next daemon find the devices of `machine` as they are now.
    ///
    /// # Errors
    /// `EIO` if the service manager does not keep them. The devices themselves are as they were.
    pub fn save(&self, machine: &Machine) -> Result<(), ControlError> {
        let devices = || {
            let mut saved = machine.saved();
            for disk in &mut saved {
                disk.settings.extend(self.ublk(disk.id).map(ublk_setting));
            }
            let (areas, shared) = &*self.swaps.lock();
            let swaps = swaps::devices(areas.values(), *shared, machine.saved_swap());
            let file_system = self.file_system.lock().as_ref().map(file_system::device);
            saved.into_iter().map(device).chain(swaps).chain(file_system).collect()
        };
        self.write(devices).map_err(|error| {
            let message = format!("what was changed would not outlive the daemon: {error}");
            ControlError::new(Errno::EIO, message)
        })
    }

    /// The parts of the state, and the layout of each.
    #[must_use]
    pub fn layouts(&self, machine: &Machine) -> Vec<Part> {
        let table = self.written.lock().table.layout();
        let disks = machine.disks().iter().map(|disk| disk.layout()).max();
        let disk = disks.unwrap_or(rampack::zram::OLDEST_LAYOUT);
        let mut parts = vec![(TABLE_PART, table), (DISK, disk)];
        let areas = &self.swaps.lock().0;
        if !areas.is_empty() {
            parts.push((SWAP, rampack::zswap::LAYOUT as u32));
        }
        let mut below = areas.values().filter_map(|area| area.backing.as_ref());
        if below.any(|backing| backing.log_bytes.is_some()) {
            parts.push((SWAP_LOG, SWAP_LOG_LAYOUT));
        }
        parts
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
        self.written.lock().others.contains_key(FILES.0)
    }

    /// Does the next daemon find the contents that `disk` has had since it got its size?
    #[must_use]
    pub fn has(&self, disk: &Disk) -> bool {
        self.written.lock().devices.contains(&(disk.name(), disk.generation()))
    }

    /// Gives everything up, after the devices are gone: this daemon ends in an orderly way.
    pub fn end(&self) {
        let end = || -> Result<(), Box<dyn std::error::Error>> {
            self.written.lock().others.clear();
            self.write(Vec::new)?;
            for name in CONNECTIONS.iter().map(|it| it.name()).chain([FILES.0, TABLE]) {
                self.store.forget(name)?;
            }
            Ok(())
        };
        if let Err(error) = end() {
            tracing::warn!("the next daemon may find devices of this one: {error}");
        }
    }

    /// The devices are asked for here, so that of two callers the later one has the later ones.
    fn write(
        &self,
        devices: impl FnOnce() -> Vec<Device>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut written = self.written.lock();
        let devices = devices();
        let now = self.memory.regions();
        // The service manager does not say that it has no room.
        let others: usize = written.others.values().map(|(fds, _)| fds.len()).sum();
        let (count, most) = (now.len() + others + 1, self.most);
        if !devices.is_empty() && count > most {
            let text = format!(
                "{count} descriptors have to be kept, and the service manager keeps {most} \
                 (FileDescriptorStoreMax=)"
            );
            return Err(text.into());
        }
        let mut names = BTreeSet::new();
        let mut regions = Vec::new();
        for region in &now {
            let descriptor = format!("{PREFIX}{}", region.name);
            if !written.regions.contains(&region.name) {
                self.store.keep(&descriptor, region.file.as_fd())?;
            }
            names.insert(region.name.clone());
            let (name, bytes) = (region.name.clone(), region.bytes);
            regions.push(Region { name, descriptor, bytes });
        }
        let was_kept = written.is_kept;
        let Written { table, others, files, regions: before, .. } = &mut *written;
        if !was_kept {
            for (name, (fds, is_kept)) in others.iter_mut().filter(|(_, (_, is_kept))| !is_kept) {
                fds.iter().try_for_each(|fd| self.store.keep(name, fd.as_fd()))?;
                *is_kept = true;
            }
            self.store.keep(TABLE, table.as_fd())?;
        }
        if names != *before || !was_kept {
            self.store.settle(PATIENCE)?;
        }
        let (descriptor, name) = FILES;
        let mount =
            || Mount { name: name.into(), descriptor: descriptor.into(), files: files.clone() };
        let mut mounts: Vec<Mount> =
            others.contains_key(descriptor).then(mount).into_iter().collect();
        let numbers = self.swaps.lock().0.keys().copied().collect::<Vec<_>>();
        let numbers =
            numbers.into_iter().filter(|number| others.contains_key(&swaps::descriptor(*number)));
        mounts.extend(numbers.map(swaps::mount));
        let generations = generations(&devices);
        table.write(&Contents { regions, devices, mounts })?;
        (written.is_kept, written.devices) = (true, generations);
        let gone: Vec<String> = written.regions.difference(&names).cloned().collect();
        written.regions = names;
        for name in gone {
            self.store.forget(&format!("{PREFIX}{name}"))?;
        }
        Ok(())
    }
}

impl HandedOver {
    /// Takes what is no region out of `others`. A descriptor that was handed over twice is of a
    /// change that was under way: then both are the same.
    fn take(others: &mut Named, mounts: &[Mount], swap: LeftSwap) -> HandedOver {
        let mut take = |name: &str| {
            let at = others.iter().position(|other| other.0 == name)?;
            Some(others.swap_remove(at).1)
        };
        let numbers = |mount: &Mount| mount.files.clone().into_iter().collect();
        let mount = mounts.iter().find(|mount| mount.name == FILES.1);
        let mount = mount.and_then(|mount| Some((take(&mount.descriptor)?, numbers(mount))));
        let connections = CONNECTIONS.iter().filter_map(|it| Some((*it, take(it.name())?)));
        HandedOver { mount, swap: Some(swap), connections: connections.collect() }
    }
}

/// Takes the regions of a table. Descriptors that the table does not name are of a change that was
/// under way.
fn adopt(
    memory: &Memfds,
    mut handed_over: Named,
    regions: &[Region],
    store: &Store,
) -> Result<(), ControlError> {
    for region in regions {
        let found = handed_over.iter().position(|(name, _)| *name == region.descriptor);
        let Some(at) = found else {
            let message =
                format!("the memory {:?} of the devices was not handed over", region.name);
            return Err(ControlError::invalid(message));
        };
        let (_, fd) = handed_over.swap_remove(at);
        let adopted = memory.adopt(&region.name, fd, region.bytes);
        adopted.map_err(|error| ControlError::invalid(error.to_string()))?;
    }
    for (name, _) in handed_over {
        // Once it is closed nobody waits for an answer to it.
        if let Err(error) = store.forget(&name).and_then(|()| store.settle(PATIENCE)) {
            tracing::warn!("the service manager keeps {name} in vain: {error}");
        }
    }
    Ok(())
}

fn generations(devices: &[Device]) -> BTreeSet<(String, u64)> {
    devices.iter().map(|device| (device.name.clone(), device.generation)).collect()
}

fn ublk_setting(Id { number, maker }: Id) -> (String, String) {
    (UBLK.to_string(), format!("{number} {maker}"))
}

/// Takes the block device out of the settings of a disk.
fn take_ublk(disk: &mut SavedDisk) -> Option<(u32, Id)> {
    let at = disk.settings.iter().position(|(name, _)| name == UBLK)?;
    let (_, value) = disk.settings.remove(at);
    let (number, maker) = value.split_once(' ')?;
    Some((disk.id, Id { number: number.parse().ok()?, maker: maker.parse().ok()? }))
}

fn device(disk: SavedDisk) -> Device {
    let SavedDisk { id, bytes, generation, settings } = disk;
    Device {
        name: format!("zram{id}"),
        bytes,
        generation,
        settings: settings.into_iter().collect(),
    }
}

/// The disks of a table.
///
/// # Errors
/// `EINVAL` for a name that is none.
pub fn disks(devices: Vec<Device>) -> Result<Vec<SavedDisk>, ControlError> {
    let is_other = |it: &Device| swaps::is_of_swap(it) || file_system::is_one(it);
    let disks = devices.into_iter().filter(|device| !is_other(device));
    disks.map(saved).collect()
}

fn saved(device: Device) -> Result<SavedDisk, ControlError> {
    let Device { name, bytes, generation, settings } = device;
    let id = name.strip_prefix("zram").and_then(|id| id.parse().ok()).ok_or_else(|| {
        ControlError::invalid(format!("{name:?} in the state of the devices is none"))
    })?;
    Ok(SavedDisk { id, bytes, generation, settings: settings.into_iter().collect() })
}

#[cfg(test)]
mod tests;
