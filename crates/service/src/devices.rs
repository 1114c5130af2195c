//! The devices of a daemon, and how their frontends follow them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use control::tree::DeviceNode;
use control::{ControlError, Errno, Object};
use fuse::{CutOff, Hold};
use host::swaps;
use nbd::Server;
use sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, MutexGuard};
use zram::Disk;

use crate::engine::Machine;
use crate::exports::Admission;
use crate::failure::{after, frontend_error};
use crate::loops::{LOOKING, PAUSE};
use crate::plan::Asked;
use crate::protocol::Add;
use crate::root::Root;
use crate::state::State;

mod attached;
mod attaching;
mod by_driver;
mod by_ublk;
#[cfg_attr(not(feature = "vhost"), path = "devices/without_vhost.rs")]
mod by_vhost;
mod change;
mod configured;
mod handed_over;
mod hanging;
mod module;
mod own;
mod paths;
mod recovered;
mod refusal;
mod refused;
mod report;
mod saved;
mod settings;
mod snapshots;
mod still;
mod swapped;
mod users;
mod waits;
mod way;
pub use attached::Files;
use by_vhost::Vhosts;
use change::{Change, Lifecycle};
use hanging::Waits;
pub use module::device_count;
use refusal::{Refusal, no_disk};
pub(crate) use report::described;
pub use report::export_uri;
pub use saved::write_out;
pub use settings::configure;
use still::Changes;
pub(crate) use still::StandStill;
use swapped::is_swap;
pub use swapped::swapped_to;
pub use waits::EndOfWaits;
use way::{By, Way};

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
    changes: Changes,
    admission: Arc<Admission>,
    /// The ways to the devices that have one, also to those that could not be taken over.
    ways: Mutex<BTreeMap<u32, Way>>,
    vhosts: Vhosts,
    cut_off: Mutex<Option<CutOff>>,
    waits: Arc<Waits>,
    /// Do the devices get block devices?
    block: AtomicBool,
    /// Do the requests to files come by io_uring?
    by_ring: AtomicBool,
    /// Locked while all devices together are made or removed.
    loading: Mutex<()>,
    /// Clones that are being made.
    cloning: Mutex<usize>,
    /// Were all devices removed together, and none made since?
    unloaded: AtomicBool,
    /// Where the devices outlive the daemon.
    state: Option<Arc<State>>,
    /// What the daemon was asked for, and follows.
    asked: Mutex<Asked>,
    /// The files that devices are saved to at the end, by their numbers.
    saved_at: Mutex<BTreeMap<u32, PathBuf>>,
}

/// Attributes whose stores the frontends of a device must follow.
const CHANGES_SIZE: [&str; 3] = ["disksize", "reset", "resize"];

impl Devices {
    /// The devices of `machine`, behind no frontend yet.
    #[must_use]
    pub fn new(root: Root, machine: Arc<Machine>, state: Option<Arc<State>>) -> Devices {
        let lifecycle = Mutex::new(Lifecycle::default());
        let (nbd, ways) = (Mutex::new(NbdFrontend::default()), Mutex::new(BTreeMap::new()));
        let (cut_off, block) = (Mutex::new(None), AtomicBool::new(false));
        let (loading, cloning) = (Mutex::new(()), Mutex::new(0));
        let saved_at = Mutex::new(state.as_ref().map(|it| it.saved_at()).unwrap_or_default());
        Devices {
            root,
            machine,
            nbd,
            lifecycle,
            changes: Changes::new(),
            admission: Arc::new(Admission::open()),
            ways,
            vhosts: Vhosts::new(),
            cut_off,
            waits: Arc::new(Waits::new()),
            block,
            by_ring: AtomicBool::new(false),
            loading,
            cloning,
            unloaded: AtomicBool::new(false),
            state,
            asked: Mutex::new(Asked::new()),
            saved_at,
        }
    }

    /// Where the daemon makes things.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Begins a change, after the one that is under way.
    fn change(&self) -> Change<'_> {
        self.change_of(self.lifecycle.lock())
    }

    /// As [`Devices::change`], with the lock.
    fn change_of<'a>(&'a self, lifecycle: MutexGuard<'a, Lifecycle>) -> Change<'a> {
        let (state, machine) = (self.state.as_deref(), &self.machine);
        Change { lifecycle, state, machine, vhosts: &self.vhosts }
    }

    /// Do devices get block devices? A device that is just being added or removed may have none.
    #[must_use]
    pub fn makes_block_devices(&self) -> bool {
        self.block.load(Ordering::Relaxed)
    }

    /// Do the requests to files come by io_uring?
    #[must_use]
    pub fn is_by_ring(&self) -> bool {
        self.by_ring.load(Ordering::Relaxed)
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

    /// Those that are under way.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// By what clients get in.
    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// The device called `name`, or with the path `name`.
    ///
    /// # Errors
    /// `ENODEV`; the message names the devices that exist.
    pub fn disk(&self, name: &str) -> Result<Arc<Disk>, ControlError> {
        let last = name.rsplit('/').next().unwrap_or(name);
        let disks = self.machine.disks();
        disks.iter().find(|disk| disk.name() == last).cloned().ok_or_else(|| {
            if let Some(refused) = self.refused(last) {
                return no_disk(&refused);
            }
            let known: Vec<String> = disks.iter().map(|disk| disk.name()).collect();
            let known = match known.is_empty() {
                true => "there are none; make one with `rampack add`".to_string(),
                false => format!("there are: {}", known.join(" ")),
            };
            ControlError::new(Errno::ENODEV, format!("no device {name:?}; {known}"))
        })
    }

    /// The numbers of all devices, those included that could not be taken over.
    #[must_use]
    pub fn numbers(&self) -> Vec<u32> {
        self.machine.saved().iter().map(|saved| saved.id).collect()
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
        let _under_way = self.changes.begin()?;
        let mut attributes = options.attributes.iter();
        attributes.try_for_each(|it| self.refuse_own(&it.name, &it.value))?;
        let lifecycle = self.change();
        lifecycle.check()?;
        let disk = match options.number {
            Some(number) => self.machine.add_at(number)?,
            None => self.machine.add()?,
        };
        note(&disk);
        let made = self
            .set_up(&disk, options)
            .and_then(|()| self.attach(&lifecycle, &disk, None))
            .and_then(|()| self.vhosts.follow(&self.machine));
        made.map_err(|error| self.unmake(&lifecycle, &disk, error))?;
        self.unloaded.store(false, Ordering::Relaxed);
        tracing::info!("{} added", disk.name());
        Ok(disk)
    }

    /// Takes away a device that could not be made, because of `error`.
    fn unmake(&self, lifecycle: &Change<'_>, disk: &Disk, error: ControlError) -> ControlError {
        self.save_at_end(disk.id(), None);
        let detached = self.detach(lifecycle, disk.id(), true).map_err(ControlError::from);
        let removed = detached.and_then(|_| self.machine.remove(disk.id()));
        self.save_removal();
        after(error, removed)
    }

    /// Removes a device. Gives up what there is of one that could not be taken over.
    ///
    /// # Errors
    /// `ENODEV`, or `EBUSY` with its users.
    pub fn remove(&self, name: &str, force: bool) -> Result<(), ControlError> {
        self.let_clients_go(name, force)?;
        self.when_closed(|lifecycle| {
            if let Some(refused) = self.refused(name) {
                self.give_up(lifecycle, refused.saved.id, force)?;
                self.forget_asked(&format!("zram{}", refused.saved.id));
                self.save_at_end(refused.saved.id, None);
                return Ok(self.save()?);
            }
            let disk = self.disk(name)?;
            self.remove_it(lifecycle, &disk, force)
        })
    }

    fn remove_it(
        &self,
        lifecycle: &Change<'_>,
        disk: &Arc<Disk>,
        force: bool,
    ) -> Result<(), Refusal> {
        disk.refuse_if_cloned()?;
        // One that is cut off may connect again at once.
        let _closed = force.then(|| self.admission.close_one(disk.id()));
        self.refuse_clients(disk, force)?;
        self.refuse_processed(disk, force)?;
        let before = self.detach(lifecycle, disk.id(), force)?;
        if let Err(error) = self.machine.remove(disk.id()) {
            self.attach_again(lifecycle, disk, before);
            return Err(error.into());
        }
        self.forget_asked(&disk.name());
        self.save_at_end(disk.id(), None);
        tracing::info!("{} removed", disk.name());
        Ok(self.save()?)
    }

    /// Empties a device. It has no size afterwards. Gives up what there is of one that could not be
    /// taken over.
    ///
    /// # Errors
    /// `ENODEV`, `EINVAL` for a `value` that the attribute refuses, or `EBUSY` with its users.
    pub fn reset(&self, name: &str, value: &str, force: bool) -> Result<(), ControlError> {
        self.let_clients_go(name, force)?;
        self.when_closed(|lifecycle| {
            if let Some(refused) = self.refused(name) {
                return self.reset_refused(lifecycle, refused.saved.id, force);
            }
            let disk = self.disk(name)?;
            self.reset_it(lifecycle, &disk, value, force)
        })
    }

    /// No other program can have the block device while the contents go: it is taken away, and one
    /// with the same number made.
    fn reset_it(
        &self,
        lifecycle: &Change<'_>,
        disk: &Arc<Disk>,
        value: &str,
        force: bool,
    ) -> Result<(), Refusal> {
        let rows = zram::attributes(disk.clone());
        let user = disk.open();
        match rows.store("reset", value) {
            // The value is valid: only the user opened above keeps the device from a reset.
            Err(error) if error.errno == Errno::EBUSY => {}
            result => return Ok(result?),
        }
        drop(user);
        disk.refuse_if_cloned()?;
        // One that is cut off may connect again at once.
        let _closed = force.then(|| self.admission.close_one(disk.id()));
        self.refuse_clients(disk, force)?;
        self.refuse_processed(disk, force)?;
        let before = self.detach(lifecycle, disk.id(), force)?;
        if let Err(error) = rows.store("reset", value) {
            self.attach_again(lifecycle, disk, before);
            return Err(error.into());
        }
        if let Some(state) = &self.state {
            state.forget_file_system(&disk.name());
        }
        self.attach(lifecycle, disk, before)?;
        tracing::info!("{} reset", disk.name());
        Ok(self.save()?)
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
        let rows = zram::attributes(disk.clone());
        if !CHANGES_SIZE.contains(&attribute) {
            self.check_present(disk)?;
            paths::check(disk, attribute, value, false)?;
            self.refuse_own(attribute, value)?;
            rows.store(attribute, value)?;
            if self.state.is_none() {
                return Ok(());
            }
            // The regions of the devices that are saved stay meanwhile.
            let _lifecycle = self.lifecycle.lock();
            return self.save();
        }
        if attribute == "reset" {
            self.let_clients_go(&disk.name(), false)?;
            return self.when_closed(|lifecycle| {
                self.check_present(disk)?;
                self.reset_it(lifecycle, disk, value, false)
            });
        }
        self.when_closed(|lifecycle| {
            self.check_present(disk)?;
            if attribute == "resize" {
                self.refuse_processed(disk, true)?;
            }
            let before = disk.bytes();
            self.check_way_resizes(disk)?;
            rows.store(attribute, value)?;
            Ok(self.has_size(lifecycle, disk, before)?)
        })
    }

    /// # Errors
    /// `ENODEV` when `disk` has been removed.
    pub(crate) fn check_present(&self, disk: &Arc<Disk>) -> Result<(), ControlError> {
        match self.is_present(disk) {
            true => Ok(()),
            false => Err(control::tree::gone(&disk.name())),
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
        self.way(disk.id())?.node()
    }

    /// The devices that the kernel swaps to now. A device that is just being changed may be
    /// missing; it waits for none.
    #[must_use]
    pub fn swapped_to(&self) -> Vec<String> {
        let swaps = swaps::all();
        let ways = if swaps.is_empty() { None } else { self.ways.try_lock() };
        let Some(ways) = ways else { return Vec::new() };
        let all = ways.iter().map(|(id, way)| (format!("zram{id}"), way.place()));
        all.filter(|(name, place)| is_swap(&swaps, name, place)).map(|(name, _)| name).collect()
    }

    /// Detaches all of `disks`, or none. Returns by what they were reached. Programs that look at
    /// them are waited for together.
    fn detach_all(
        &self,
        lifecycle: &Change<'_>,
        disks: &[Arc<Disk>],
        force: bool,
    ) -> Result<Vec<Option<By>>, Refusal> {
        let end = Instant::now() + LOOKING;
        let mut before = Vec::with_capacity(disks.len());
        while let Some(disk) = disks.get(before.len()) {
            match self.detach(lifecycle, disk.id(), force) {
                Ok(it) => before.push(it),
                Err(Refusal::InUse(.., Hold::Open)) if Instant::now() < end => thread::sleep(PAUSE),
                Err(refusal) => {
                    for (disk, before) in disks.iter().zip(before) {
                        self.attach_again(lifecycle, disk, before);
                    }
                    return Err(refusal);
                }
            }
        }
        Ok(before)
    }

    /// Takes down all frontends of the devices. Their contents stay until the machine is dropped.
    /// No device is added or removed afterwards. A second call does nothing.
    ///
    /// # Errors
    /// `EBUSY`, unless `force` is given; the message names every user. Everything is as before
    /// then. `ETIMEDOUT` with `force` when another request hangs.
    pub fn stop(&self, force: bool) -> Result<(), ControlError> {
        let _limit = force.then(|| self.end_waits());
        Ok(self.stop_all(force)?)
    }

    fn stop_all(&self, force: bool) -> Result<(), Refusal> {
        let mut lifecycle = match force {
            true => self.change_of(self.lock_by_force()?),
            false => self.change(),
        };
        let disks = self.machine.disks();
        if !force {
            disks.iter().try_for_each(|disk| self.refuse_clients(disk, false))?;
        }
        self.detach_all_refused(&lifecycle, force)?;
        let before = self.detach_all(&lifecycle, &disks, force)?;
        // What is given up by force is saved when its clients are gone.
        let saved = if force { Ok(()) } else { self.save_unused() };
        let unmounted = saved.and_then(|()| {
            let files = lifecycle.files.as_mut();
            files.map_or(Ok(()), |it| it.mount.unmount(force).map_err(|e| frontend_error(&e)))
        });
        if let Err(error) = unmounted {
            for (disk, before) in disks.iter().zip(before) {
                self.attach_again(&lifecycle, disk, before);
            }
            return Err(error.into());
        }
        lifecycle.files = None;
        lifecycle.stopping = true;
        if !force {
            self.saved_at.lock().clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
