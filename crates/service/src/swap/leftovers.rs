//! Clears swap space of a daemon that was killed.

use std::path::Path;

use host::swaps;
use ublk::{Fate, Leftover};
use units::human;

use super::{MOST, name};
use crate::failure::failed;
use crate::root::Root;

/// Swaps off what a killed daemon left swapped on in `root`, which must be claimed. Returns what
/// was done, and what could not be done. The devices `taken` have files that are served again, and
/// stay. Of the ublk devices, those of `maker` ([`crate::root::Made::maker`]) go, except those that
/// `is_kept` says are served again.
///
/// No process serves it any more, so reads fail. The pages that were swapped out are lost already,
/// and a program that needs one is ended by SIGBUS. Without a swapoff the kernel would go on
/// swapping to it.
#[must_use]
pub fn swap_off(
    root: &Root,
    maker: Option<u32>,
    taken: &[usize],
    is_kept: impl Fn(u32) -> bool,
) -> (Vec<String>, Vec<String>) {
    let (mut cleared, mut remaining) = (Vec::new(), Vec::new());
    // Only the root itself is accessed, never a mount below it.
    let Ok(path) = root.path().canonicalize() else { return (cleared, remaining) };
    let files = path.join(fuse::leftovers::SWAP);
    for number in (0..MOST).filter(|number| !taken.contains(number)) {
        let name = name(number);
        let file = files.join(&name);
        for device in fuse::find_by_backing(&file) {
            let path = format!("/dev/loop{device}");
            let Some(active) = swaps::find(Path::new(&path)) else { continue };
            if let Some(why) = fuse::leftovers::refusal(device, &file) {
                remaining.push(format!("{path} is left alone: {why}"));
                continue;
            }
            let lost = match active.used {
                0 => String::new(),
                used => format!(", {} that was swapped out there is lost", human(used)),
            };
            match host::swap_off(Path::new(&path)) {
                Ok(()) => cleared.push(format!("swapped off {path} of {name}{lost}")),
                Err(error) => {
                    let fault = failed(format!("cannot swap off {path} of {name}"), &error);
                    remaining.push(format!("{}{lost}", fault.message));
                }
            }
        }
    }
    if let Some(maker) = maker {
        clear_ublk(maker, is_kept, &mut cleared, &mut remaining);
    }
    (cleared, remaining)
}

/// Deletes the ublk devices that the daemon before left, whose `maker` is that of the claimed root.
/// The kernel lists swap space on such a device until the next boot, and every use of it fails.
fn clear_ublk(
    maker: u32,
    is_kept: impl Fn(u32) -> bool,
    cleared: &mut Vec<String>,
    remaining: &mut Vec<String>,
) {
    let left = ublk::leftovers(maker).unwrap_or_default();
    for Leftover { number, fate, is_waiting } in left {
        if is_kept(number) {
            continue;
        }
        let why = match (fate, is_waiting) {
            (Fate::Clear, _) => {
                match ublk::clear(number, maker) {
                    Ok(()) => cleared.push(format!("deleted /dev/ublkb{number}")),
                    Err(error) => remaining.push(format!("/dev/ublkb{number}: {error}")),
                }
                continue;
            }
            (Fate::Live, _) => "a process serves it, though no daemon has this root",
            (Fate::OfAnother, true) => {
                "it waits for the next daemon of another root, which `rampack keep` or a service \
                 manager starts"
            }
            (Fate::OfAnother, false) => "a daemon in another root made it, or in another container",
        };
        remaining.push(format!("/dev/ublkb{number} is left alone: {why}"));
    }
}
