//! What the kernel has in front of swap devices.

use std::fs;
use std::path::Path;

/// Is the kernel's zswap on? (kernel document `admin-guide/mm/zswap.rst`)
pub const ENABLED: &str = "/sys/module/zswap/parameters/enabled";

/// Is the kernel's own zswap on?
#[must_use]
pub fn has_kernel_zswap() -> bool {
    is_on(Path::new(ENABLED))
}

fn is_on(switch: &Path) -> bool {
    fs::read_to_string(switch).is_ok_and(|text| text.trim() == "Y")
}

/// A note if the kernel's own zswap is on. It compresses pages first, and then expands each that
/// comes here. Read anew each time, because the switch may be turned at any time.
pub(super) fn kernel_zswap() -> Option<String> {
    zswap_at(Path::new(ENABLED))
}

fn zswap_at(switch: &Path) -> Option<String> {
    is_on(switch).then(|| {
        format!(
            "the kernel's zswap is on, in front of this device: pages are compressed twice, and \
             those in zswap are no part of these numbers; `echo N > {}` turns it off",
            switch.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    #[test]
    fn the_switch_of_the_kernels_zswap_is_read() {
        let dir = TempDir::new();
        let switch = dir.join("enabled");
        assert_eq!(zswap_at(&switch), None, "a kernel without zswap");
        fs::write(&switch, "N\n").unwrap();
        assert_eq!(zswap_at(&switch), None);
        fs::write(&switch, "Y\n").unwrap();
        let note = zswap_at(&switch).unwrap();
        let command = format!("echo N > {}", switch.display());
        assert!(note.contains("compressed twice") && note.contains(&command), "{note}");
    }
}
