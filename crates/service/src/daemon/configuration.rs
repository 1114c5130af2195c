//! What a daemon follows of a configuration in files.

use sync::Mutex;

use crate::plan::{Asked, for_device};
use crate::protocol::{Apply, ConfiguredDisk, SwapOn};
use crate::swap::{self, cache};
use crate::transport::Transport;

/// The option that says which part of a configuration the daemon serves.
pub const PART: &str = "serve/config";
/// The option that names the file which the daemon follows; without it, it follows those of the
/// system.
pub const FILE: &str = "serve/file";
/// The value of [`PART`] of a daemon of disks.
pub const DISKS: &str = "disks";
/// The value of [`PART`] of a daemon of swap devices.
pub const SWAPS: &str = "swaps";
/// What options are of that say how devices are served.
pub(super) const SERVE: &str = "serve";

/// How the daemon follows a configuration.
pub(super) struct Configuration {
    pub(super) transport: Transport,
    /// Locked while one is followed.
    pub(super) turn: Mutex<()>,
}

impl ConfiguredDisk {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("zram{}", self.add.number.unwrap_or_default())
    }
}

impl SwapOn {
    /// The name of the swap device of a configuration.
    #[must_use]
    pub fn name(&self) -> String {
        swap::name(self.number.unwrap_or_default() as usize)
    }
}

impl Apply {
    /// What each device is asked to be, by its name.
    #[must_use]
    pub fn asked_of_each(&self) -> Vec<(String, Asked)> {
        let disk = |it: &ConfiguredDisk| {
            let more = [("mount", &it.mount), ("fs", &it.fs)];
            let more = more
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
            (it.name(), it.add.asked().into_iter().chain(more).collect())
        };
        let swaps = self.swaps.iter().map(|it| (it.name(), cache::asked(it)));
        self.disks.iter().map(disk).chain(swaps).collect()
    }

    /// What a daemon of `part` is asked for: the options of its devices and of how they are served,
    /// each with that in front.
    #[must_use]
    pub fn asked(&self, part: &str) -> Asked {
        let kind = if part == SWAPS { "swap" } else { "zram" };
        let mut asked = if part == SWAPS { Asked::new() } else { self.serve.clone() };
        asked.insert(PART.to_owned(), part.to_owned());
        for (device, options) in self.asked_of_each() {
            if device.starts_with(kind) {
                asked.extend(for_device(&device, options));
            }
        }
        asked
    }
}
