//! The devices of a daemon, and how their frontends follow them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rampack::control::tree::DeviceNode;
use rampack::control::{ControlError, Errno, Object};
use rampack::fuse::CutOff;
use rampack::nbd::Server;
use rampack::sync::Mutex;
use rampack::sync::atomic::{AtomicBool, Ordering};
use rampack::zram::Disk;

use crate::failure::frontend_error;
use crate::machine::Machine;
use crate::protocol::Add;
use crate::root::{Made, Root};
use crate::state::State;
use crate::swap::active;

mod attached;
mod by_driver;
mod by_ublk;
mod handed_over;
mod module;
mod report;
mod swapped;
mod waits;
use attached::Attached;
pub use attached::Files;
use by_ublk::Ublks;
pub use module::device_count;
pub use report::export_uri;
use swapped::is_swap;
pub use swapped::swapped_to;
pub use waits::EndOfWaits;

/// Locked while a device is added or removed, or gets or loses its size.
struct Lifecycle {
    files: Option<Files>,
    stopping: bool,
}

/// The NBD frontend of a daemon.
#[derive(Default)]
struct NbdFrontend {
    /// Addresses of the server. [`export_uri`] turns one into the address of a device.
    addresses: Vec<String>,
    server: Option<Arc<Server>>,
}

/// The devices of a daemon. Any number of threads may call every method at once.
pub struct Devices {
    root: Root,
    machine: Arc<Machine>,
    /// Addresses of the server. [`export_uri`] turns one into the address of a device.
    nbd: Mutex<NbdFrontend>,
    lifecycle: Mutex<Lifecycle>,
    attached: Mutex<BTreeMap<u32, Attached>>,
    ublks: Ublks,
    cut_off: Mutex<Option<CutOff>>,
    /// Do the devices get block devices?
    block: AtomicBool,
    /// Locked while all devices together are made or removed.
    loading: Mutex<()>,
    /// Were all devices removed together, and none made since?
    unloaded: AtomicBool,
    /// Where the devices outlive the daemon.
    state: Option<Arc<State>>,
}

/// Attributes whose stores the frontends of a device must follow.
const CHANGES_SIZE: [&str; 3] = ["disksize", "reset", "resize"];

impl Devices {
    /// The devices of `machine`, behind no frontend yet.
    #[must_use]
    pub fn new(root: Root, machine: Arc<Machine>, state: Option<Arc<State>>) -> Devices {
        let lifecycle = Mutex::new(Lifecycle { files: None, stopping: false });
        let (nbd, attached) = (Mutex::new(NbdFrontend::default()), Mutex::new(BTreeMap::new()));
        let (cut_off, block) = (Mutex::new(None), AtomicBool::new(false));
        let (loading, unloaded) = (Mutex::new(()), AtomicBool::new(false));
        Devices {
            root,
            machine,
            nbd,
            lifecycle,
            attached,
            ublks: Ublks::new(),
            cut_off,
            block,
            loading,
            unloaded,
            state,
        }
    }

    /// Serves all devices added from now on as files.
    pub fn serve_files(&self, files: Files) {
        self.block.store(files.loops.is_some(), Ordering::Relaxed);
        *self.cut_off.lock() = Some(files.mount.cut_off());
        self.lifecycle.lock().files = Some(files);
    }

    /// Puts the devices that the daemon before left behind the frontends. A device whose file the
    /// mount has already has been taken over with it, and keeps its block device.
    ///
    /// # Errors
    /// The error of a frontend.
    pub fn attach_recovered(&self) -> Result<(), ControlError> {
        let lifecycle = self.lifecycle.lock();
        let taken = lifecycle.files.as_ref().map(|files| files.mount.names()).unwrap_or_default();
        let (taken, new): (Vec<_>, Vec<_>) =
            self.machine.disks().into_iter().partition(|disk| taken.contains(&disk.name()));
        if let Some(files) = lifecycle.files.as_ref().filter(|_| !taken.is_empty()) {
            let paths = taken.iter().map(|disk| files.mount.path(&disk.name())).collect();
            let there = match &files.loops {
                Some(loops) => loops.adopt(paths)?,
                None => vec![None; taken.len()],
            };
            for (disk, there) in taken.iter().zip(there) {
                let mut attached = Attached::made(files, &self.root, &disk.name());
                attached.open(&files.made, disk, there)?;
                self.attached.lock().insert(disk.id(), attached);
            }
        }
        new.iter().try_for_each(|disk| self.attach(&lifecycle, disk))
    }

    /// Do devices get block devices? A device that is just being added or removed may have none.
    #[must_use]
    pub fn makes_block_devices(&self) -> bool {
        self.block.load(Ordering::Relaxed)
    }

    /// Sets the NBD server and the addresses at which it exports the devices.
    pub fn serve_nbd(&self, addresses: Vec<String>, server: Option<Arc<Server>>) {
        *self.nbd.lock() = NbdFrontend { addresses, server };
    }

    /// The addresses at which the devices are exported.
    #[must_use]
    pub fn nbd(&self) -> Vec<String> {
        self.nbd.lock().addresses.clone()
    }

    /// The device called `name`, or with the path `name`.
    ///
    /// # Errors
    /// `ENODEV`; the message names the devices that exist.
    pub fn disk(&self, name: &str) -> Result<Arc<Disk>, ControlError> {
        let last = name.rsplit('/').next().unwrap_or(name);
        let disks = self.machine.disks();
        disks.iter().find(|disk| disk.name() == last).cloned().ok_or_else(|| {
            let known: Vec<String> = disks.iter().map(|disk| disk.name()).collect();
            let known = match known.is_empty() {
                true => "there are none; make one with `rampack add`".to_string(),
                false => format!("there are: {}", known.join(" ")),
            };
            ControlError::new(Errno::ENODEV, format!("no device {name:?}; {known}"))
        })
    }

    /// Makes a device.
    ///
    /// # Errors
    /// The error of an attribute or of a frontend. There is no new device then.
    pub fn add(&self, options: &Add) -> Result<Arc<Disk>, ControlError> {
        self.add_noted(options, |_| ())
    }

    /// As [`Devices::add`]. What `note` changes of the state is in the table with the device.
    ///
    /// # Errors
    /// As there.
    pub fn add_noted(
        &self,
        options: &Add,
        note: impl FnOnce(&Disk),
    ) -> Result<Arc<Disk>, ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let disk = self.machine.add()?;
        note(&disk);
        let made = configure(&disk, options)
            .and_then(|()| if lifecycle.files.is_none() { self.save() } else { Ok(()) })
            .and_then(|()| self.attach(&lifecycle, &disk));
        if let Err(error) = made {
            self.ublks.take_down(&disk, true)?;
            self.machine.remove(disk.id())?;
            self.save_removal();
            return Err(error);
        }
        self.unloaded.store(false, Ordering::Relaxed);
        tracing::info!("{} added", disk.name());
        Ok(disk)
    }

    /// Removes a device.
    ///
    /// # Errors
    /// `ENODEV`, or `EBUSY` with its users.
    pub fn remove(&self, name: &str, force: bool) -> Result<(), ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let disk = self.disk(name)?;
        self.remove_it(&lifecycle, &disk, force)
    }

    /// Removes device `id`, if it has no user.
    ///
    /// # Errors
    /// `ENODEV`, or `EBUSY` with its users.
    pub fn remove_number(&self, id: u32) -> Result<(), ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let none = || ControlError::new(Errno::ENODEV, format!("there is no device zram{id}"));
        let disk = self.machine.disk(id).ok_or_else(none)?;
        self.remove_it(&lifecycle, &disk, false)
    }

    fn remove_it(
        &self,
        lifecycle: &Lifecycle,
        disk: &Arc<Disk>,
        force: bool,
    ) -> Result<(), ControlError> {
        self.refuse_clients(disk, force)?;
        self.detach(lifecycle, disk, force)?;
        if let Err(error) = self.machine.remove(disk.id()) {
            self.attach_again(lifecycle, disk);
            return Err(error);
        }
        tracing::info!("{} removed", disk.name());
        self.save()
    }

    /// Empties a device. It has no size afterwards.
    ///
    /// # Errors
    /// `ENODEV`, `EINVAL` for a `value` that the attribute refuses, or `EBUSY` with its users.
    pub fn reset(&self, name: &str, value: &str, force: bool) -> Result<(), ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let disk = self.disk(name)?;
        self.reset_it(&lifecycle, &disk, value, force).and_then(|()| self.save())
    }

    fn reset_it(
        &self,
        lifecycle: &Lifecycle,
        disk: &Arc<Disk>,
        value: &str,
        force: bool,
    ) -> Result<(), ControlError> {
        let rows = rampack::zram::attributes(disk.clone());
        let user = disk.open();
        match rows.store("reset", value) {
            // The value is valid: only the user opened above keeps the device from a reset.
            Err(error) if error.errno == Errno::EBUSY => {}
            result => return result,
        }
        drop(user);
        self.refuse_clients(disk, force)?;
        if force || self.ublks.path(disk.id()).is_some() {
            // The block device may live on for programs that have it open; a new one is made below.
            self.detach(lifecycle, disk, force)?;
            let reset = rows.store("reset", value);
            self.attach_again(lifecycle, disk);
            return reset;
        }
        if let Some(error) = self.busy(lifecycle, disk) {
            return Err(error);
        }
        let attached = self.attached.lock();
        let attached = attached.get(&disk.id());
        // No other program can begin to use the device while this is held.
        let claim = attached.map(Attached::claim).transpose()?;
        rows.store("reset", value)?;
        attached.map_or(Ok(()), Attached::resized)?;
        drop(claim);
        tracing::info!("{} reset", disk.name());
        Ok(())
    }

    /// Writes an attribute.
    ///
    /// # Errors
    /// `ENODEV`, or the error of the attribute; nothing has changed then.
    pub fn set(&self, name: &str, attribute: &str, value: &str) -> Result<(), ControlError> {
        self.set_on(&self.disk(name)?, attribute, value)
    }

    /// Writes an attribute of `disk`.
    ///
    /// # Errors
    /// `ENODEV` if it has been removed, or the error of the attribute; nothing has changed then.
    pub fn set_on(
        &self,
        disk: &Arc<Disk>,
        attribute: &str,
        value: &str,
    ) -> Result<(), ControlError> {
        let rows = rampack::zram::attributes(disk.clone());
        if !CHANGES_SIZE.contains(&attribute) {
            self.check_present(disk)?;
            rows.store(attribute, value)?;
            if self.state.is_none() {
                return Ok(());
            }
            // The regions of the devices that are saved stay meanwhile.
            let _lifecycle = self.lifecycle.lock();
            return self.save();
        }
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        self.check_present(disk)?;
        if attribute == "reset" {
            return self.reset_it(&lifecycle, disk, value, false).and_then(|()| self.save());
        }
        let before = disk.bytes();
        self.ublks.check_resize(disk)?;
        rows.store(attribute, value)?;
        // What is stored in it outlives the daemon from the first byte.
        let resize = || self.attached.lock().get(&disk.id()).map_or(Ok(()), Attached::resized);
        let resized = self.save().and_then(|()| resize());
        if let Err(error) = resized.and_then(|()| self.serve_by_driver(disk)) {
            if before != 0 {
                return Err(error);
            }
            let message = format!("{}; {} has been reset", error.message, disk.name());
            rows.store("reset", "1")?;
            self.save_removal();
            return Err(ControlError::new(error.errno, message));
        }
        tracing::info!("{} has a size", disk.name());
        Ok(())
    }

    /// # Errors
    /// `ENODEV` when `disk` has been removed.
    pub(crate) fn check_present(&self, disk: &Arc<Disk>) -> Result<(), ControlError> {
        match self.is_present(disk) {
            true => Ok(()),
            false => Err(rampack::control::tree::gone(&disk.name())),
        }
    }

    /// Is `disk` still one of the devices?
    pub(crate) fn is_present(&self, disk: &Arc<Disk>) -> bool {
        self.machine.disk(disk.id()).is_some_and(|found| Arc::ptr_eq(&found, disk))
    }

    /// The machine of the devices.
    #[must_use]
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// The block device of a device, if it has one.
    #[must_use]
    pub fn node(&self, disk: &Disk) -> Option<DeviceNode> {
        match self.attached.lock().get(&disk.id()) {
            Some(attached) => attached.node(),
            None => self.ublks.node(disk.id()),
        }
    }

    /// The devices that the kernel swaps to now. A device that is just being changed may be
    /// missing; it waits for none.
    #[must_use]
    pub fn swapped_to(&self) -> Vec<String> {
        let swaps = active::all();
        let attached = if swaps.is_empty() { None } else { self.attached.try_lock() };
        let Some(attached) = attached else { return Vec::new() };
        let place = |(id, at): (&u32, &Attached)| (format!("zram{id}"), at.place().to_path_buf());
        let all = attached.iter().map(place).chain(self.ublks.places());
        all.filter(|(name, place)| is_swap(&swaps, name, place)).map(|(name, _)| name).collect()
    }

    /// The NBD clients of a device now. No other frontend counts as its user.
    fn clients(&self, disk: &Disk) -> u64 {
        u64::from(disk.openers())
    }

    /// `EBUSY` while NBD clients are connected. With `force` they are disconnected first.
    fn refuse_clients(&self, disk: &Disk, force: bool) -> Result<(), ControlError> {
        let server = self.nbd.lock().server.clone();
        if let (true, Some(server)) = (force && self.clients(disk) > 0, server) {
            server.disconnect(&disk.name());
        }
        match self.clients(disk) {
            0 => Ok(()),
            clients => {
                let message = format!(
                    "{} is in use: {clients} NBD client(s) are connected to it; let them \
                     disconnect first, or use --force",
                    disk.name()
                );
                Err(ControlError::new(Errno::EBUSY, message))
            }
        }
    }

    /// The error that names the users of a device besides NBD clients; `None` without users.
    fn busy(&self, lifecycle: &Lifecycle, disk: &Disk) -> Option<ControlError> {
        let Some(files) = &lifecycle.files else { return self.ublks.busy(disk) };
        let attached = self.attached.lock();
        let attached = attached.get(&disk.id())?;
        // Who opens it is this process, on behalf of another device.
        let places = [attached.place(), &attached.file];
        let is_backed = |other: &&Arc<Disk>| {
            let path = other.backing_path();
            path.is_some_and(|path| places.contains(&Path::new(&path)))
        };
        let disks = self.machine.disks();
        if let Some(other) = disks.iter().find(is_backed) {
            let (name, other) = (disk.name(), other.name());
            let message = format!(
                "{name} ({}) is in use: it is the backing device of {other}; reset {other} first",
                attached.place().display()
            );
            return Some(ControlError::new(Errno::EBUSY, message));
        }
        attached.busy(&files.mount, &disk.name())
    }

    /// Gives a device its file, block device and link. Before others can use it, the next daemon
    /// knows it.
    fn attach(&self, lifecycle: &Lifecycle, disk: &Arc<Disk>) -> Result<(), ControlError> {
        let Some(files) = &lifecycle.files else { return self.serve_by_driver(disk) };
        let mut attached = Attached::make(files, &self.root, disk)?;
        self.note_files(files);
        let opened = self.save().and_then(|()| attached.open(&files.made, disk, None));
        if let Err(error) = opened {
            files.mount.remove(&disk.name());
            self.note_files(files);
            return Err(error);
        }
        self.attached.lock().insert(disk.id(), attached);
        Ok(())
    }

    /// Has the next save tell the next daemon of the files of the mount.
    fn note_files(&self, files: &Files) {
        if let Some(state) = &self.state {
            state.set_files(files.mount.numbers());
        }
    }

    /// Attaches a device again, after a detachment whose next step may have failed.
    fn attach_again(&self, lifecycle: &Lifecycle, disk: &Arc<Disk>) {
        if let Err(error) = self.attach(lifecycle, disk) {
            tracing::error!("{} keeps its contents but is not attached: {error}", disk.name());
        }
    }

    /// The place where block devices can be made: the record of what the daemon makes, and its
    /// root.
    ///
    /// # Errors
    /// `ENODEV` when the daemon makes no block devices or is stopping.
    pub fn place(&self) -> Result<(Arc<Made>, &Root), ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let none = || ControlError::new(Errno::ENODEV, "the daemon makes no block devices");
        let files = lifecycle.files.as_ref().filter(|files| files.loops.is_some());
        let made = files.map(|files| files.made.clone()).or_else(|| self.ublks.made());
        Ok((made.ok_or_else(none)?, &self.root))
    }

    /// The reverse of `attach`. When the device is in use, everything stays as it was.
    fn detach(&self, lifecycle: &Lifecycle, disk: &Disk, force: bool) -> Result<(), ControlError> {
        let Some(files) = &lifecycle.files else { return self.ublks.take_down(disk, force) };
        if let (false, Some(error)) = (force, self.busy(lifecycle, disk)) {
            return Err(error);
        }
        let Some(mut attached) = self.attached.lock().remove(&disk.id()) else { return Ok(()) };
        if let Err(error) = attached.detach(force) {
            self.attached.lock().insert(disk.id(), attached);
            return Err(error);
        }
        drop(files.mount.remove(&disk.name()));
        self.note_files(files);
        files.made.remove(&attached.link);
        Ok(())
    }

    /// The error that names the users of a device; `None` without users.
    fn user_of(&self, lifecycle: &Lifecycle, disk: &Disk) -> Option<ControlError> {
        self.refuse_clients(disk, false).err().or_else(|| self.busy(lifecycle, disk))
    }

    /// Detaches all of `disks`, or none.
    fn detach_all(
        &self,
        lifecycle: &Lifecycle,
        disks: &[Arc<Disk>],
        force: bool,
    ) -> Result<(), ControlError> {
        for (done, disk) in disks.iter().enumerate() {
            if let Err(error) = self.detach(lifecycle, disk, force) {
                for disk in &disks[..done] {
                    self.attach_again(lifecycle, disk);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Checks that no device is in use.
    ///
    /// # Errors
    /// `EBUSY`; the message names every user.
    pub fn check_unused(&self) -> Result<(), ControlError> {
        self.refuse_if_busy(&self.lifecycle.lock())
    }

    fn refuse_if_busy(&self, lifecycle: &Lifecycle) -> Result<(), ControlError> {
        let user = |disk: &Arc<Disk>| self.user_of(lifecycle, disk);
        let disks = self.machine.disks();
        let faults: Vec<String> = disks.iter().filter_map(user).map(|f| f.message).collect();
        match faults.is_empty() {
            true => Ok(()),
            false => Err(ControlError::new(Errno::EBUSY, faults.join("; "))),
        }
    }

    /// Takes down all frontends of the devices. Their contents stay until the machine is dropped.
    /// No device is added or removed afterwards. A second call does nothing.
    ///
    /// # Errors
    /// `EBUSY`, unless `force` is given; the message names every user. Everything is as before
    /// then. `ETIMEDOUT` with `force` when another request hangs.
    pub fn stop(&self, force: bool) -> Result<(), ControlError> {
        let _limit = force.then(|| self.end_waits());
        let mut lifecycle = match force {
            true => self.lock_by_force()?,
            false => self.lifecycle.lock(),
        };
        let disks = self.machine.disks();
        if !force {
            self.refuse_if_busy(&lifecycle)?;
        }
        self.detach_all(&lifecycle, &disks, force)?;
        let unmounted = lifecycle.files.as_mut().map_or(Ok(()), |it| it.mount.unmount(force));
        if let Err(error) = unmounted {
            for disk in &disks {
                self.attach_again(&lifecycle, disk);
            }
            return Err(frontend_error(&error));
        }
        lifecycle.files = None;
        lifecycle.stopping = true;
        Ok(())
    }
}

impl Lifecycle {
    fn check(&self) -> Result<(), ControlError> {
        match self.stopping {
            true => Err(ControlError::new(Errno::ENODEV, "the daemon is stopping")),
            false => Ok(()),
        }
    }
}

/// Stores the attributes in `options`, the size last.
///
/// # Errors
/// The error of an attribute. The attributes before it have their new values then.
pub fn configure(disk: &Arc<Disk>, options: &Add) -> Result<(), ControlError> {
    let rows = rampack::zram::attributes(disk.clone());
    if let Some(algorithm) = &options.algorithm {
        rows.store("comp_algorithm", algorithm)?;
    }
    if let Some(level) = options.level {
        rows.store("algorithm_params", &format!("level={level}"))?;
    }
    if let Some(limit) = &options.mem_limit {
        rows.store("mem_limit", limit)?;
    }
    for attribute in &options.attributes {
        rows.store(&attribute.name, &attribute.value)?;
    }
    if let Some(size) = &options.size {
        rows.store("disksize", size)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
