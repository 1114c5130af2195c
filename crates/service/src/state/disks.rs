//! Disks in the table of a state.

use std::path::{Path, PathBuf};

use control::ControlError;
use kept::Device;
use ublk::Id;
use zram::SavedDisk;

use super::file_system::is_one as is_file_system;
use super::swaps::is_of_swap;

/// Among the settings of a device: its block device by ublk, which the kernel keeps for the next
/// daemon. Its number and the process that made it follow.
const UBLK: &str = "ublk";
/// Also among them: the number of the device that it is a clone of. An older program refuses such a
/// device, and its origin by its layout.
const CLONE_OF: &str = "clone_of";
/// Also among them: the file that the device is saved to when its daemon ends. It is not known of
/// devices that an older program left.
const SAVED_AT: &str = "snapshot";

pub(super) fn ublk_setting(Id { number, maker }: Id) -> (String, String) {
    (UBLK.to_string(), format!("{number} {maker}"))
}

pub(super) fn saved_setting(path: &Path) -> (String, String) {
    (SAVED_AT.to_string(), machine::text_of(path))
}

/// Takes the block device out of the settings of a disk.
pub(super) fn take_ublk(disk: &mut SavedDisk) -> Option<(u32, Id)> {
    let value = take(disk, UBLK)?;
    let (number, maker) = value.split_once(' ')?;
    Some((disk.id, Id { number: number.parse().ok()?, maker: maker.parse().ok()? }))
}

/// Takes the file that it is saved to out of the settings of a disk.
pub(super) fn take_saved_at(disk: &mut SavedDisk) -> Option<(u32, PathBuf)> {
    let path = take(disk, SAVED_AT)?;
    Some((disk.id, machine::path_of(&path)))
}

fn take(disk: &mut SavedDisk, own: &str) -> Option<String> {
    let at = disk.settings.iter().position(|(name, _)| name == own)?;
    Some(disk.settings.remove(at).1)
}

pub(super) fn device(disk: SavedDisk) -> Device {
    let SavedDisk { id, bytes, generation, clone_of, settings } = disk;
    let clone_of = clone_of.map(|origin| (CLONE_OF.to_string(), origin.to_string()));
    let settings = settings.into_iter().chain(clone_of).collect();
    Device { name: format!("zram{id}"), bytes, generation, settings }
}

/// The disks of a table, with the settings of their attributes.
///
/// # Errors
/// `EINVAL` for a name that is not one of a disk.
pub fn disks(devices: Vec<Device>) -> Result<Vec<SavedDisk>, ControlError> {
    let mut disks = left(devices)?;
    for disk in &mut disks {
        [UBLK, SAVED_AT].iter().for_each(|own| _ = take(disk, own));
    }
    Ok(disks)
}

/// The same, with what else is among the settings.
pub(super) fn left(devices: Vec<Device>) -> Result<Vec<SavedDisk>, ControlError> {
    let is_other = |it: &Device| is_of_swap(it) || is_file_system(it);
    let disks = devices.into_iter().filter(|device| !is_other(device));
    disks.map(saved).collect()
}

fn saved(device: Device) -> Result<SavedDisk, ControlError> {
    let Device { name, bytes, generation, mut settings } = device;
    let id = name.strip_prefix("zram").and_then(|id| id.parse().ok()).ok_or_else(|| {
        ControlError::invalid(format!("{name:?} in the state of the devices is none"))
    })?;
    let clone_of = settings.remove(CLONE_OF).map(|origin| origin.parse()).transpose();
    let clone_of = clone_of.map_err(|_| {
        let message = format!("{CLONE_OF} of {name} in the state of the devices is none");
        ControlError::invalid(message)
    })?;
    Ok(SavedDisk { id, bytes, generation, clone_of, settings: settings.into_iter().collect() })
}

#[cfg(test)]
mod tests;
