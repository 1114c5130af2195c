//! The devices of a daemon, and their lives behind its frontends.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rampack::control::tree::DeviceNode;
use rampack::control::{Access, ControlError, Errno, Object};
use rampack::nbd::Server;
use rampack::sync::Mutex;
use rampack::sync::atomic::{AtomicBool, Ordering};
use rampack::zram::Disk;

use crate::failure::frontend_error;
use crate::machine::Machine;
use crate::mounts::places_of;
use crate::protocol::{Add, Attribute, Description, DeviceReport};
use crate::root::{Made, Root};

mod attached;
use attached::Attached;
pub use attached::Files;

/// Held while a device comes, goes, or changes between having a size and not.
struct Lifecycle {
    files: Option<Files>,
    stopping: bool,
}

/// What a daemon with NBD has of it.
#[derive(Default)]
struct NbdFrontend {
    /// Addresses that become those of a device by [`export_uri`].
    addresses: Vec<String>,
    server: Option<Arc<Server>>,
}

/// The devices of a daemon. Every method may be called by any number of threads at once.
pub struct Devices {
    root: Root,
    machine: Arc<Machine>,
    /// Addresses that become those of a device by [`export_uri`].
    nbd: Mutex<NbdFrontend>,
    lifecycle: Mutex<Lifecycle>,
    attached: Mutex<BTreeMap<u32, Attached>>,
    /// Are block devices made of them?
    block: AtomicBool,
}

/// Attributes whose change the frontends of a device follow.
const CHANGES_SIZE: [&str; 3] = ["disksize", "reset", "resize"];

impl Devices {
    /// The devices of `machine`, behind no frontend yet.
    #[must_use]
    pub fn new(root: Root, machine: Arc<Machine>) -> Devices {
        let lifecycle = Mutex::new(Lifecycle { files: None, stopping: false });
        let (nbd, attached) = (Mutex::new(NbdFrontend::default()), Mutex::new(BTreeMap::new()));
        Devices { root, machine, nbd, lifecycle, attached, block: AtomicBool::new(false) }
    }

    /// Devices that come from now on appear as files.
    pub fn serve_files(&self, files: Files) {
        self.block.store(files.loops, Ordering::Relaxed);
        self.lifecycle.lock().files = Some(files);
    }

    /// Are devices made block devices? One that is just coming or going has none all the same.
    #[must_use]
    pub fn makes_block_devices(&self) -> bool {
        self.block.load(Ordering::Relaxed)
    }

    /// The devices are exported at these addresses.
    pub fn serve_nbd(&self, addresses: Vec<String>, server: Option<Arc<Server>>) {
        *self.nbd.lock() = NbdFrontend { addresses, server };
    }

    /// Where the devices are exported.
    #[must_use]
    pub fn nbd(&self) -> Vec<String> {
        self.nbd.lock().addresses.clone()
    }

    /// The device called `name`; a path to it does as well.
    ///
    /// # Errors
    /// `ENODEV`, naming those there are.
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
    /// What its attributes or the frontends refuse; there is no new device then.
    pub fn add(&self, options: &Add) -> Result<Arc<Disk>, ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let disk = self.machine.add()?;
        let made = configure(&disk, options).and_then(|()| self.attach(&lifecycle, &disk));
        if let Err(error) = made {
            self.machine.remove(disk.id())?;
            return Err(error);
        }
        tracing::info!("{} added", disk.name());
        Ok(disk)
    }

    /// Takes a device away.
    ///
    /// # Errors
    /// `ENODEV`, or `EBUSY` with who uses it.
    pub fn remove(&self, name: &str, force: bool) -> Result<(), ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let disk = self.disk(name)?;
        self.remove_it(&lifecycle, &disk, force)
    }

    /// Takes device `id` away, if nobody uses it.
    ///
    /// # Errors
    /// `ENODEV`, or `EBUSY` with who uses it.
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
        Ok(())
    }

    /// Empties a device and takes its size.
    ///
    /// # Errors
    /// `ENODEV`, `EINVAL` for a `value` that the attribute refuses, or `EBUSY` with who uses it.
    pub fn reset(&self, name: &str, value: &str, force: bool) -> Result<(), ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let disk = self.disk(name)?;
        self.reset_it(&lifecycle, &disk, value, force)
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
            // Not for its value: it is one that resets, were it not for this user.
            Err(error) if error.errno == Errno::EBUSY => {}
            result => return result,
        }
        drop(user);
        self.refuse_clients(disk, force)?;
        if force {
            // It may live on for those who have it open; there is another one then.
            self.detach(lifecycle, disk, true)?;
            let reset = rows.store("reset", value);
            self.attach_again(lifecycle, disk);
            return reset;
        }
        if let Some(error) = self.busy(lifecycle, disk) {
            return Err(error);
        }
        let attached = self.attached.lock();
        let attached = attached.get(&disk.id());
        // Nobody else can begin to use it while this is held.
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
    /// `ENODEV`, or what the attribute refuses; nothing has changed then.
    pub fn set(&self, name: &str, attribute: &str, value: &str) -> Result<(), ControlError> {
        self.set_on(&self.disk(name)?, attribute, value)
    }

    /// Writes an attribute of `disk`.
    ///
    /// # Errors
    /// `ENODEV` if it has been removed, or what the attribute refuses; nothing has changed then.
    pub fn set_on(
        &self,
        disk: &Arc<Disk>,
        attribute: &str,
        value: &str,
    ) -> Result<(), ControlError> {
        let rows = rampack::zram::attributes(disk.clone());
        if !CHANGES_SIZE.contains(&attribute) {
            self.check_present(disk)?;
            return rows.store(attribute, value);
        }
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        self.check_present(disk)?;
        if attribute == "reset" {
            return self.reset_it(&lifecycle, disk, value, false);
        }
        let before = disk.bytes();
        rows.store(attribute, value)?;
        let resized = self.attached.lock().get(&disk.id()).map_or(Ok(()), Attached::resized);
        if let Err(error) = resized {
            if before != 0 {
                return Err(error);
            }
            let message = format!("{}; {} has been reset", error.message, disk.name());
            rows.store("reset", "1")?;
            return Err(ControlError::new(error.errno, message));
        }
        tracing::info!("{} has a size", disk.name());
        Ok(())
    }

    /// # Errors
    /// `ENODEV` when `disk` is not one of the devices any more.
    pub(crate) fn check_present(&self, disk: &Arc<Disk>) -> Result<(), ControlError> {
        match self.is_present(disk) {
            true => Ok(()),
            false => Err(rampack::control::tree::gone(&disk.name())),
        }
    }

    /// Is `disk` one of the devices, and not only once was?
    pub(crate) fn is_present(&self, disk: &Arc<Disk>) -> bool {
        self.machine.disk(disk.id()).is_some_and(|found| Arc::ptr_eq(&found, disk))
    }

    /// The machine they belong to.
    #[must_use]
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// The block device of a device, if it has one.
    #[must_use]
    pub fn node(&self, disk: &Disk) -> Option<DeviceNode> {
        self.attached.lock().get(&disk.id())?.node()
    }

    /// Reads attributes, all that can be read when none is named.
    ///
    /// # Errors
    /// `ENODEV`, or what an attribute refuses.
    pub fn get(&self, name: &str, attributes: &[String]) -> Result<Vec<Attribute>, ControlError> {
        let rows = rampack::zram::attributes(self.disk(name)?);
        let read = |name: &str| {
            let value = rows.show(name)?.trim_end_matches('\n').to_string();
            Ok(Attribute { name: name.to_string(), value })
        };
        if !attributes.is_empty() {
            return attributes.iter().map(|name| read(name)).collect();
        }
        // What only its owner may read is long, and told when it is asked for by name.
        let told = |row: &rampack::control::AttributeInfo| {
            row.access.readable() && row.access != Access::ReadOwner
        };
        let readable = rows.attributes().into_iter().filter(told);
        readable.map(|row| read(row.name)).collect()
    }

    /// What attributes a device has.
    ///
    /// # Errors
    /// `ENODEV`.
    pub fn describe(&self, name: &str) -> Result<Vec<Description>, ControlError> {
        let rows = rampack::zram::attributes(self.disk(name)?).attributes();
        let description = |row: rampack::control::AttributeInfo| Description {
            name: row.name.into(),
            mode: row.access.mode(),
            unit: row.unit.into(),
            help: row.help.into(),
        };
        Ok(rows.into_iter().map(description).collect())
    }

    /// What there is to say of every device.
    #[must_use]
    pub fn reports(&self) -> Vec<DeviceReport> {
        self.machine.disks().iter().map(|disk| self.report(disk)).collect()
    }

    /// What there is to say of a device.
    #[must_use]
    pub fn report(&self, disk: &Arc<Disk>) -> DeviceReport {
        let name = disk.name();
        let mut report = DeviceReport {
            attributes: self
                .get(&name, &[])
                .unwrap_or_default()
                .into_iter()
                .map(|attribute| (attribute.name, attribute.value))
                .collect(),
            nbd_clients: self.clients(disk),
            ..DeviceReport::default()
        };
        if disk.bytes() != 0 {
            report.nbd = self.nbd().iter().map(|address| export_uri(address, &name)).collect();
        }
        if let Some(attached) = self.attached.lock().get(&disk.id()) {
            let text = |path: &Path| Some(path.display().to_string());
            report.file = text(&attached.file);
            report.block_device = attached.block_device.as_ref().and_then(|d| text(d.path()));
            report.link = text(&attached.link);
        }
        // Asked without the lock: it reads /proc.
        let device = report.block_device.as_ref();
        report.mountpoints = device.map(|d| places_of(Path::new(d))).unwrap_or_default();
        report.name = name;
        report
    }

    /// NBD clients of a device now: no other frontend becomes its user.
    fn clients(&self, disk: &Disk) -> u64 {
        u64::from(disk.openers())
    }

    /// With `force`, clients are cut off first.
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

    /// Who, besides NBD clients, uses a device; `None` when nobody does.
    fn busy(&self, lifecycle: &Lifecycle, disk: &Disk) -> Option<ControlError> {
        let files = lifecycle.files.as_ref()?;
        self.attached.lock().get(&disk.id())?.busy(&files.mount, &disk.name())
    }

    /// Gives a device its file, block device and link.
    fn attach(&self, lifecycle: &Lifecycle, disk: &Arc<Disk>) -> Result<(), ControlError> {
        let Some(files) = &lifecycle.files else { return Ok(()) };
        let attached = Attached::make(files, &self.root, disk)?;
        self.attached.lock().insert(disk.id(), attached);
        Ok(())
    }

    /// After something that should have followed a detachment failed.
    fn attach_again(&self, lifecycle: &Lifecycle, disk: &Arc<Disk>) {
        if let Err(error) = self.attach(lifecycle, disk) {
            tracing::error!("{} keeps its contents but is not attached: {error}", disk.name());
        }
    }

    /// Where block devices can be made: what the daemon makes there, and its root.
    ///
    /// # Errors
    /// `ENODEV` where there are none, or when the daemon is stopping.
    pub fn place(&self) -> Result<(Arc<Made>, &Root), ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let none = || ControlError::new(Errno::ENODEV, "the daemon makes no block devices");
        let files = lifecycle.files.as_ref().filter(|files| files.loops).ok_or_else(none)?;
        Ok((files.made.clone(), &self.root))
    }

    /// The reverse of `attach`; leaves everything as it was when the device is in use.
    fn detach(&self, lifecycle: &Lifecycle, disk: &Disk, force: bool) -> Result<(), ControlError> {
        let Some(files) = &lifecycle.files else { return Ok(()) };
        if let (false, Some(error)) = (force, self.busy(lifecycle, disk)) {
            return Err(error);
        }
        let Some(mut attached) = self.attached.lock().remove(&disk.id()) else { return Ok(()) };
        if let Err(error) = attached.detach(force) {
            self.attached.lock().insert(disk.id(), attached);
            return Err(error);
        }
        drop(files.mount.remove(&disk.name()));
        files.made.remove(&attached.link);
        Ok(())
    }

    /// Does anybody use any of the devices?
    ///
    /// # Errors
    /// `EBUSY` with every user.
    pub fn check_unused(&self) -> Result<(), ControlError> {
        self.refuse_if_busy(&self.lifecycle.lock())
    }

    fn refuse_if_busy(&self, lifecycle: &Lifecycle) -> Result<(), ControlError> {
        let busy = |disk: &Arc<Disk>| {
            self.refuse_clients(disk, false).err().or_else(|| self.busy(lifecycle, disk))
        };
        let disks = self.machine.disks();
        let faults: Vec<String> = disks.iter().filter_map(busy).map(|f| f.message).collect();
        match faults.is_empty() {
            true => Ok(()),
            false => Err(ControlError::new(Errno::EBUSY, faults.join("; "))),
        }
    }

    /// Takes everything down that stands on the devices; what they hold stays until the machine
    /// is dropped. No device comes or goes afterwards. Does nothing the second time.
    ///
    /// # Errors
    /// `EBUSY` with every user, unless `force` is given; everything is as before then.
    pub fn stop(&self, force: bool) -> Result<(), ControlError> {
        let mut lifecycle = self.lifecycle.lock();
        let disks = self.machine.disks();
        if !force {
            self.refuse_if_busy(&lifecycle)?;
        }
        for (done, disk) in disks.iter().enumerate() {
            if let Err(error) = self.detach(&lifecycle, disk, force) {
                for disk in &disks[..done] {
                    self.attach_again(&lifecycle, disk);
                }
                return Err(error);
            }
        }
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

/// Writes the attributes that `options` are for, the size last.
///
/// # Errors
/// What an attribute refuses; those before it have their values then.
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

/// The URI of an export at an NBD address.
#[must_use]
pub fn export_uri(address: &str, name: &str) -> String {
    // The name of a device needs no escapes.
    let (base, query) = address.split_at(address.find('?').unwrap_or(address.len()));
    format!("{}/{name}{query}", base.strip_suffix('/').unwrap_or(base))
}

#[cfg(test)]
mod tests;
