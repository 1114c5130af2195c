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
    let SavedDisk { id, bytes, generation, settings } = disk;
    Device {
        name: format!("zram{id}"),
        bytes,
        generation,
        settings: settings.into_iter().collect(),
    }
}

/// The disks of a table, with the settings of their attributes.
///
/// # Errors
/// `EINVAL` for a name that is not one of a disk.
pub fn disks(devices: Vec<Device>) -> Result<Vec<SavedDisk>, ControlError> {
    let mut disks = left(devices)?;
    for disk in &mut disks {
        (take_ublk(disk), take_saved_at(disk));
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
    let Device { name, bytes, generation, settings } = device;
    let id = name.strip_prefix("zram").and_then(|id| id.parse().ok()).ok_or_else(|| {
        ControlError::invalid(format!("{name:?} in the state of the devices is none"))
    })?;
    Ok(SavedDisk { id, bytes, generation, settings: settings.into_iter().collect() })
}

#[cfg(test)]
mod tests;
