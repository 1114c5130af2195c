//! The state of the devices, kept by the service manager for the daemon that comes after a death.
//!
//! The service manager has a copy of each descriptor: the files in memory of the devices, and a
//! table of them with the devices and their settings. A change that is acknowledged is in the
//! table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use kept::{Contents, Device, Region, Store, Table};
use rampack::control::{ControlError, Errno};
use rampack::host::{Memfds, page_bytes};
use rampack::sync::Mutex;
use rampack::ublk::Id;
use rampack::{Machine, SavedDisk};

use crate::failure::failed;

/// Begins the names of the descriptors of the state.
const PREFIX: &str = "rampack.";
const TABLE: &str = "rampack.table";
/// Among the settings of a device: its block device by ublk, which the kernel keeps for the next
/// daemon. Its number and the process that made it follow.
const UBLK: &str = "ublk";
/// How long the service manager may take to store a descriptor.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state of a daemon's devices. Any thread may call every method.
pub struct State {
    store: Store,
    memory: Memfds,
    /// What the daemon before left.
    left: Vec<SavedDisk>,
    /// The block devices that the driver ublk keeps, by the numbers of their disks.
    ublks: Mutex<BTreeMap<u32, Id>>,
    written: Mutex<Written>,
}

struct Written {
    table: Table,
    /// The service manager has the table.
    is_kept: bool,
    /// The names of the regions that the service manager has.
    regions: BTreeSet<String>,
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
        let memory = Memfds::new();
        let (mut table, mut regions) = (None, Vec::new());
        for (name, fd) in left {
            match name == TABLE {
                true => table = Some(File::from(fd)),
                false => regions.push((name, fd)),
            }
        }
        let page = page_bytes() as u32;
        let invalid = |error: kept::TableError| ControlError::invalid(error.to_string());
        let is_kept = table.is_some();
        let (table, contents) = match table {
            Some(file) => Table::open(file, page).map_err(invalid)?,
            None => {
                // Given to the service manager with the first device: a daemon that keeps nothing
                // and is refused is not started again.
                let file = memory.file(Table::BYTES);
                let file = file.map_err(|error| failed("cannot keep the devices", &error))?;
                (Table::create(file, page).map_err(invalid)?, Contents::default())
            }
        };
        let mut written = Written { table, is_kept, regions: BTreeSet::new() };
        adopt(&memory, regions, &contents.regions, &store)?;
        written.regions.extend(contents.regions.into_iter().map(|region| region.name));
        let mut left = contents.devices.into_iter().map(saved).collect::<Result<Vec<_>, _>>()?;
        let ublks = Mutex::new(left.iter_mut().filter_map(take_ublk).collect());
        Ok(Some(State { store, memory, left, ublks, written: Mutex::new(written) }))
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

    /// Is `/dev/ublkbN` the block device of a disk?
    #[must_use]
    pub fn has_ublk(&self, number: u32) -> bool {
        self.ublks.lock().values().any(|id| id.number == number)
    }

    /// Sets the block device of disk `id`, from the next [`State::save`] on.
    pub fn set_ublk(&self, disk: u32, id: Option<Id>) {
        let mut ublks = self.ublks.lock();
        match id {
            Some(id) => _ = ublks.insert(disk, id),
            None => _ = ublks.remove(&disk),
        }
    }

    /// Makes the next daemon find the devices of `machine` as they are now.
    ///
    /// # Errors
    /// `EIO` if the service manager does not keep them. The devices themselves are as they were.
    pub fn save(&self, machine: &Machine) -> Result<(), ControlError> {
        let mut saved = machine.saved();
        for disk in &mut saved {
            disk.settings.extend(self.ublk(disk.id).map(ublk_setting));
        }
        self.write(saved.into_iter().map(device).collect()).map_err(|error| {
            let message = format!("what was changed would not outlive the daemon: {error}");
            ControlError::new(Errno::EIO, message)
        })
    }

    /// Gives everything up, after the devices are gone: this daemon ends in an orderly way.
    pub fn end(&self) {
        let ended = self.write(Vec::new());
        if let Err(error) = ended.and_then(|()| Ok(self.store.forget(TABLE)?)) {
            tracing::warn!("the next daemon may find devices of this one: {error}");
        }
    }

    fn write(&self, devices: Vec<Device>) -> Result<(), Box<dyn std::error::Error>> {
        let mut written = self.written.lock();
        let now = self.memory.regions();
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
        if !written.is_kept {
            self.store.keep(TABLE, written.table.as_fd())?;
        }
        if names != written.regions || !written.is_kept {
            self.store.settle(PATIENCE)?;
        }
        written.is_kept = true;
        written.table.write(&Contents { regions, devices })?;
        let gone: Vec<String> = written.regions.difference(&names).cloned().collect();
        written.regions = names;
        for name in gone {
            self.store.forget(&format!("{PREFIX}{name}"))?;
        }
        Ok(())
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
        if let Err(error) = store.forget(&name) {
            tracing::warn!("the service manager keeps {name} in vain: {error}");
        }
    }
    Ok(())
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

fn saved(device: Device) -> Result<SavedDisk, ControlError> {
    let Device { name, bytes, generation, settings } = device;
    let id = name.strip_prefix("zram").and_then(|id| id.parse().ok()).ok_or_else(|| {
        ControlError::invalid(format!("{name:?} in the state of the devices is none"))
    })?;
    Ok(SavedDisk { id, bytes, generation, settings: settings.into_iter().collect() })
}

#[cfg(test)]
mod tests;
