//! Devices that the kernel swaps to although they are no swap devices.

use std::fs;
use std::path::Path;

use host::swaps::{self, Active};

/// Is the device `name`, whose block device is `place`, among the swap space of the kernel? The
/// kernel's list has the path that swapon(8) named: under `rampack exec` that of a device of zram,
/// which is the kernel's own where that is large enough.
pub(super) fn is_swap(swaps: &[Active], name: &str, place: &Path) -> bool {
    let own = Path::new("/dev").join(name);
    let kernels = fs::read_to_string(Path::new("/sys/block").join(name).join("size"));
    let kernels = kernels.ok().and_then(|sectors| sectors.trim().parse::<u64>().ok()).unwrap_or(0);
    let is_own = |swap: &Active| swap.path == own && kernels.saturating_mul(512) < swap.bytes;
    swaps.iter().any(|swap| swaps::is_part(place, &swap.path) || is_own(swap))
}

/// The warning about a device that the kernel swaps to.
#[must_use]
pub fn swapped_to(name: &str) -> String {
    format!(
        "the kernel swaps to {name}, whose daemon is not protected for that: when memory is short, \
         it may wait for itself; make a swap device with `rampack swap on`"
    )
}
