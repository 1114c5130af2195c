//! Swap devices in the table of a state: what the next daemon needs to serve them on.
//!
//! A swap device `swapN` is a device of the table, and so is what they share, `swap`. By a loop
//! device, `swapN` is also a mount with several descriptors.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use control::ControlError;
use kept::{Device, Mount};
use ublk::Id;
use units::PAGE_SIZE;
use zswap::{SavedSwap, SwapType};

/// The device of the table for what all swap devices share.
const SHARED: &str = "swap";
/// Begins the settings of that which are none of the cache.
const OWN: &str = "daemon.";
const HEADROOM: &str = "daemon.headroom_frames";
const OOM_AFTER: &str = "daemon.oom_after";
/// Only there if it is so: an older program refuses no other state.
const BEHIND_ZSWAP: &str = "daemon.behind_zswap";

const UBLK: &str = "ublk";
/// Its backing device, by path.
pub(super) const BACKING: &str = "backing";
const INODE: &str = "backing_inode";
/// Instead of that, if the pages there are in a log: a program that knows of no logs misses the
/// other, and refuses the state.
const LOG_INODE: &str = "backing_log_inode";
const LOG_BYTES: &str = "backing_log_bytes";
const CREATED: &str = "backing_created";
const SEALED: &str = "backing_sealed";

/// What all swap devices of a daemon share, besides the cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SharedSwap {
    /// The frames that are kept ready.
    pub headroom: u64,
    /// Seconds until a stuck machine has a program ended; 0 is never.
    pub oom_after: u64,
    /// Whether the kernel's zswap is on in front of them.
    pub behind_zswap: bool,
}

/// The file or device below a swap device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedBacking {
    /// Its path.
    pub path: PathBuf,
    /// Its device and its inode, or its number if it is a device: another one at this path is not
    /// meant.
    pub inode: (u64, u64),
    /// It was made for the swap device, and goes with it.
    pub is_created: bool,
    /// What is on it is encrypted.
    pub is_sealed: bool,
    /// The bytes that it had when the log was made that its pages are in; `None` without a log.
    pub log_bytes: Option<u64>,
}

/// A swap device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedArea {
    /// Its number.
    pub number: usize,
    /// Its pages.
    pub pages: u64,
    /// Its block device by ublk; without one it has a file and a loop device.
    pub ublk: Option<Id>,
    /// What is below it.
    pub backing: Option<SavedBacking>,
}

/// The swap devices that a daemon left.
#[derive(Default)]
pub struct LeftSwap {
    /// The devices, by number.
    pub areas: Vec<SavedArea>,
    /// What they share.
    pub shared: SharedSwap,
    /// The cache in front of them.
    pub cache: SavedSwap,
    /// The descriptors of the files of those that have loop devices.
    pub channels: BTreeMap<usize, Vec<OwnedFd>>,
    /// The descriptors by which freed pages are heard of.
    pub frees: BTreeMap<usize, Vec<OwnedFd>>,
}

/// The name of swap device `number` in the table.
fn name(number: usize) -> String {
    format!("{SHARED}{number}")
}

/// The name of the descriptors of the file of swap device `number`.
pub(super) fn descriptor(number: usize) -> String {
    format!("rampack.mount.{}", name(number))
}

/// The name of the descriptors by which freed pages of swap device `number` are heard of. An older
/// program closes them, and hears of none.
pub(super) fn frees(number: usize) -> String {
    format!("rampack.frees.{}", name(number))
}

/// Is this device of a table one of swap devices?
pub(super) fn is_of_swap(device: &Device) -> bool {
    device.name.starts_with(SHARED)
}

/// The mount of a swap device in the table.
pub(super) fn mount(number: usize) -> Mount {
    Mount { name: name(number), descriptor: descriptor(number), files: BTreeMap::new() }
}

/// The devices of the table for swap devices, and for what they share.
pub(super) fn devices<'a>(
    areas: impl Iterator<Item = &'a SavedArea>,
    shared: SharedSwap,
    cache: Option<SavedSwap>,
) -> Vec<Device> {
    let mut devices: Vec<Device> = areas.map(device).collect();
    if !devices.is_empty() {
        let mut settings: BTreeMap<String, String> =
            cache.unwrap_or_default().settings.into_iter().collect();
        settings.insert(HEADROOM.into(), shared.headroom.to_string());
        settings.insert(OOM_AFTER.into(), shared.oom_after.to_string());
        if shared.behind_zswap {
            settings.insert(BEHIND_ZSWAP.into(), u8::from(true).to_string());
        }
        devices.push(Device { name: SHARED.into(), bytes: 0, generation: 0, settings });
    }
    devices
}

fn device(area: &SavedArea) -> Device {
    let mut settings = BTreeMap::new();
    let mut set = |name: &str, value: String| _ = settings.insert(name.to_owned(), value);
    if let Some(Id { number, maker }) = area.ublk {
        set(UBLK, format!("{number} {maker}"));
    }
    if let Some(SavedBacking { path, inode, is_created, is_sealed, log_bytes }) = &area.backing {
        set(BACKING, machine::text_of(path));
        let inode = format!("{} {}", inode.0, inode.1);
        match log_bytes {
            Some(bytes) => {
                set(LOG_INODE, inode);
                set(LOG_BYTES, bytes.to_string());
            }
            None => set(INODE, inode),
        }
        set(CREATED, u8::from(*is_created).to_string());
        set(SEALED, u8::from(*is_sealed).to_string());
    }
    let bytes = area.pages * PAGE_SIZE as u64;
    Device { name: name(area.number), bytes, generation: 0, settings }
}

/// The swap devices of a table, without descriptors.
///
/// # Errors
/// `EINVAL` for what cannot be.
pub fn left(devices: &[Device]) -> Result<LeftSwap, ControlError> {
    let mut left = LeftSwap::default();
    for device in devices.iter().filter(|device| is_of_swap(device)) {
        let wrong = || {
            ControlError::invalid(format!(
                "{:?} in the state of the devices is none, or says what cannot be",
                device.name
            ))
        };
        if device.name == SHARED {
            left.shared = shared(&device.settings).ok_or_else(wrong)?;
            let others = device.settings.iter().filter(|(name, _)| !name.starts_with(OWN));
            left.cache.settings =
                others.map(|(name, value)| (name.clone(), value.clone())).collect();
        } else {
            left.areas.push(area(device).ok_or_else(wrong)?);
        }
    }
    left.areas.sort_by_key(|area| area.number);
    let types = left.areas.iter().map(|area| SwapType::new(area.number));
    left.cache.areas = types.collect::<Result<_, _>>()?;
    Ok(left)
}

fn shared(settings: &BTreeMap<String, String>) -> Option<SharedSwap> {
    let number = |name: &str| settings.get(name)?.parse().ok();
    let behind_zswap = settings.contains_key(BEHIND_ZSWAP);
    Some(SharedSwap { headroom: number(HEADROOM)?, oom_after: number(OOM_AFTER)?, behind_zswap })
}

fn area(device: &Device) -> Option<SavedArea> {
    let number = device.name.strip_prefix(SHARED)?.parse().ok()?;
    let set = |name: &str| device.settings.get(name);
    let pair = |text: &String| {
        let (first, second) = text.split_once(' ')?;
        Some((first.parse::<u64>().ok()?, second.parse::<u64>().ok()?))
    };
    let is = |name: &str| set(name).is_some_and(|value| value == "1");
    let ublk = match set(UBLK) {
        Some(text) => {
            let (number, maker) = pair(text)?;
            Some(Id { number: number.try_into().ok()?, maker: maker.try_into().ok()? })
        }
        None => None,
    };
    let backing = match set(BACKING) {
        Some(path) => Some(SavedBacking {
            path: machine::path_of(path),
            inode: pair(set(INODE).or_else(|| set(LOG_INODE))?)?,
            log_bytes: match set(LOG_INODE) {
                Some(_) => Some(set(LOG_BYTES)?.parse().ok()?),
                None => None,
            },
            is_created: is(CREATED),
            is_sealed: is(SEALED),
        }),
        None => None,
    };
    Some(SavedArea { number, pages: device.bytes / PAGE_SIZE as u64, ublk, backing })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn swap_devices_are_read_as_they_were_written() {
        let backing = SavedBacking {
            path: "/var/swap file".into(),
            inode: (2049, 77),
            is_created: true,
            is_sealed: false,
            log_bytes: None,
        };
        let log_bytes = Some(5 << 30);
        let logged = SavedBacking { log_bytes, is_created: false, ..backing.clone() };
        let path = OsStr::from_bytes(b"/var/\xffswap\xf4\x8f\xbf\x80").into();
        let named = SavedBacking { path, ..backing.clone() };
        let ublk = Some(Id { number: 3, maker: 4711 });
        let areas = [
            SavedArea { number: 0, pages: 1 << 20, ublk: None, backing: Some(backing) },
            SavedArea { number: 4, pages: 1 << 10, ublk: None, backing: Some(logged) },
            SavedArea { number: 5, pages: 1 << 10, ublk: None, backing: Some(named) },
            SavedArea { number: 12, pages: 77, ublk, backing: None },
        ];
        let shared = SharedSwap { headroom: 2048, oom_after: 10, behind_zswap: true };
        let settings = vec![("max_pool_percent".to_owned(), "33".to_owned())];
        let cache = SavedSwap { areas: Vec::new(), settings: settings.clone() };
        let devices = devices(areas.iter(), shared, Some(cache));
        assert!(devices.iter().all(is_of_swap));
        let read = left(&devices).unwrap();
        assert_eq!((&read.areas[..], read.shared), (&areas[..], shared));
        assert_eq!(read.cache.settings, settings);
        assert_eq!(read.cache.areas.len(), 4);
        assert!(super::devices([].iter(), shared, None).is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let device = |name: &str, setting: (&str, &str)| Device {
            name: name.into(),
            bytes: 4096,
            generation: 0,
            settings: [(setting.0.to_owned(), setting.1.to_owned())].into(),
        };
        for wrong in [
            device("swapx", ("a", "")),
            device("swap", ("daemon.headroom_frames", "many")),
            device("swap1", (UBLK, "1")),
            device("swap1", (UBLK, "1 -2")),
            device("swap1", (BACKING, "/path")),
        ] {
            let error = left(std::slice::from_ref(&wrong)).err().unwrap();
            assert!(error.message.contains(&wrong.name), "{}", error.message);
        }
        assert!(left(&[device("swap4000", ("a", ""))]).is_err());
        assert!(left(&[device("zram0", ("a", ""))]).unwrap().areas.is_empty());
    }
}
