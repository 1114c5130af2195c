//! What the kernel has in front of swap devices.

use std::fs;
use std::path::Path;

use control::{ControlError, Errno};
use units::human;

use super::setting::Setting;

/// Is the kernel's zswap on? (kernel document `admin-guide/mm/zswap.rst`)
pub const ENABLED: &str = "/sys/module/zswap/parameters/enabled";

/// Is the kernel's own zswap on?
#[must_use]
pub fn has_kernel_zswap() -> bool {
    is_on(Path::new(ENABLED))
}

/// Whether it sends its oldest pages on before it is full (Linux 6.8).
const SHRINKER: &str = "/sys/module/zswap/parameters/shrinker_enabled";

/// Their names in /run.
const ENABLED_NAME: &str = "zswap-enabled";
const SHRINKER_NAME: &str = "zswap-shrinker-enabled";

/// The kernel's zswap is on, and sends its oldest pages on, as long as one of these lives in any
/// process. Then it is as it was before.
pub(super) struct Zswap {
    // Dropped in this order.
    _enabled: Setting,
    shrinker: Option<Setting>,
}

impl Zswap {
    /// Has it as it was, if a killed process left it on.
    pub(super) fn end_left() {
        Setting::restore(ENABLED, ENABLED_NAME);
        Setting::restore(SHRINKER, SHRINKER_NAME);
    }

    /// Turns it on.
    ///
    /// # Errors
    /// `ENOTSUP` if the kernel has none; the error of a switch. Both are as before then.
    pub(super) fn keep() -> Result<Zswap, ControlError> {
        let shrinker = Setting::keep(SHRINKER, SHRINKER_NAME, "Y")?;
        let enabled = Setting::keep(ENABLED, ENABLED_NAME, "Y")?.ok_or_else(|| {
            let message = "this kernel has no zswap to be in front of a swap device";
            ControlError::new(Errno::ENOTSUP, message)
        })?;
        Ok(Zswap { _enabled: enabled, shrinker })
    }

    /// What it has now, for the report of a swap device.
    pub(super) fn report(&self) -> String {
        let held = host::kernel_zswap().map_or_else(String::new, |(memory, pages)| {
            format!(": {} of memory for {} of pages", human(memory), human(pages))
        });
        let on = match (has_kernel_zswap(), self.shrinker.is_some()) {
            (false, _) => "somebody has turned it off",
            (true, true) => "its oldest pages come here",
            (true, false) => "pages come here when it is full",
        };
        format!("the kernel's zswap{held}; {on}")
    }
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
