//! What is there when a daemon starts: what the kernel says of swap space, mounts and block
//! devices.
//!
//! Nothing here opens a device or a file of a mount, which may wait for the daemon that is dead.

use std::collections::BTreeSet;
use std::path::Path;

use control::ControlError;
use fuse::find_by_backing;
use host::{Mounted, device_numbers, mounts, swaps};

use crate::failure::{MOUNTS, failed};
use crate::mounts::is_used;
use crate::plan::{Kept, KeptArea, Observed};
use crate::root::Root;
use crate::swap;

/// Those of swap devices below `root` that the kernel swaps to, by their numbers; all if that is
/// not known.
#[must_use]
pub fn used_areas(areas: &[KeptArea], root: &Root) -> BTreeSet<usize> {
    let observed = observe(&Kept { areas: areas.to_vec(), ..Kept::default() }, root);
    observed.map_or_else(|_| areas.iter().map(|area| area.number).collect(), |it| it.used_areas)
}

/// Looks at what was `kept` below `root`.
///
/// # Errors
/// If what is mounted or swapped to is not known: it may be in use.
pub fn observe(kept: &Kept, root: &Root) -> Result<Observed, ControlError> {
    let mounts = mounts().map_err(|error| failed(MOUNTS, &error))?;
    let swaps = swaps::read().map_err(|error| failed("cannot read /proc/swaps", &error))?;
    let seen = Seen { mounts, swaps };
    let (files, swap_files) = (root.real(root.files()), root.real(root.swap()));
    let disk = |(id, ublk): (u32, Option<u32>)| match ublk {
        Some(number) => seen.uses(&format!("ublkb{number}")),
        None => seen.uses_file(&files.join(format!("zram{id}"))),
    };
    let area_file = |number: usize| swap_files.join(swap::name(number));
    let is_there = |(number, ublk): (usize, Option<u32>)| match ublk {
        Some(ublk) => Path::new(&format!("/sys/block/ublkb{ublk}")).exists(),
        None => seen.is_mounted(&area_file(number)),
    };
    let is_used = |(number, ublk): (usize, Option<u32>)| match ublk {
        Some(ublk) => seen.swaps_to(&format!("ublkb{ublk}")),
        None => loops(&area_file(number)).iter().any(|name| seen.swaps_to(name)),
    };
    let disks = kept.disks.iter().map(|it| (it.id, it.ublk));
    let areas: Vec<(usize, Option<u32>)> =
        kept.areas.iter().map(|it| (it.number, it.ublk)).collect();
    let those = |which: &dyn Fn((usize, Option<u32>)) -> bool| -> BTreeSet<usize> {
        areas.iter().filter(|it| which(**it)).map(|it| it.0).collect()
    };
    Ok(Observed {
        has_control: root.control_socket().exists(),
        has_nbd: root.nbd_socket().exists(),
        has_files: seen.is_mounted(&files),
        used_disks: disks.filter(|it| disk(*it)).map(|it| it.0).collect(),
        areas: those(&is_there),
        used_areas: those(&is_used),
    })
}

struct Seen {
    mounts: Vec<Mounted>,
    swaps: Vec<swaps::Active>,
}

impl Seen {
    /// Does a mount of FUSE lie there?
    fn is_mounted(&self, path: &Path) -> bool {
        self.mounts.iter().any(|it| it.at == path && it.kind.starts_with("fuse"))
    }

    fn swaps_to(&self, name: &str) -> bool {
        let node = Path::new("/dev").join(name);
        self.swaps.iter().any(|it| swaps::is_part(&node, &it.path))
    }

    /// Does the kernel use the block device, in a way that this process can see?
    fn uses(&self, name: &str) -> bool {
        let node = Path::new("/dev").join(name);
        is_used(&node, &device_numbers(name), &self.mounts, &self.swaps)
    }

    fn uses_file(&self, path: &Path) -> bool {
        loops(path).iter().any(|name| self.uses(name))
    }
}

/// The names of the loop devices on the file `path`, which is absolute and without links.
fn loops(path: &Path) -> Vec<String> {
    find_by_backing(path).into_iter().map(|number| format!("loop{number}")).collect()
}
