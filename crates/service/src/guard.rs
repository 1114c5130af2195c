//! A process that unmounts what an ordinary user's daemon leaves if it is killed. Where root's
//! daemon is killed, the next one clears up; a user without root may never start another.

use std::io::{self, PipeWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use control::ControlError;
use fuse::unmount;
use host::{Mounted, Unmount, mounts};
use serde::{Deserialize, Serialize};

use crate::failure::{MOUNTS, failed, say};

/// The subcommand of the process; the mounts in JSON follow it.
pub const COMMAND: &str = "mount-guard";
/// This program, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// A mount, by its place and the number of its device.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Known {
    at: String,
    device: (u32, u32),
}

impl Known {
    fn of(mounted: &Mounted) -> Known {
        Known { at: machine::text_of(&mounted.at), device: mounted.device }
    }
}

/// The process. It ends with this value, or with the process that has this value.
pub struct Guard {
    process: Child,
    alive: Option<PipeWriter>,
}

impl Guard {
    /// Starts it for all that is mounted at `places`, which exist, or below; `None` if that is
    /// nothing.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start<'a>(
        places: impl Iterator<Item = &'a Path>,
    ) -> Result<Option<Guard>, ControlError> {
        // The kernel's list has real paths.
        let places: Vec<PathBuf> = places.filter_map(|place| place.canonicalize().ok()).collect();
        let is_ours = |it: &&Mounted| places.iter().any(|place| it.at.starts_with(place));
        let all = mounts().map_err(|error| failed(MOUNTS, &error))?;
        let known: Vec<Known> = all.iter().filter(is_ours).map(Known::of).collect();
        if known.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_string(&known).unwrap_or_default();
        let start = || -> io::Result<Option<Guard>> {
            let (end, alive) = io::pipe()?;
            let mut guard = Command::new(PROGRAM);
            // A group of its own: Ctrl-C is not for it.
            guard.arg(COMMAND).arg(text).process_group(0).stdin(end).stdout(Stdio::null());
            Ok(Some(Guard { process: guard.spawn()?, alive: Some(alive) }))
        };
        start().map_err(|e| failed("cannot start the process that unmounts after a kill", &e))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.process.wait();
    }
}

/// Waits for the end of the daemon, and unmounts what of the mounts in `text` is still there.
pub(crate) fn guard(text: &str) {
    let known: Vec<Known> = serde_json::from_str(text).unwrap_or_default();
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let all = mounts().unwrap_or_else(|error| {
        say(&format!("rampack: {MOUNTS}: {error}; what is mounted is left\n"));
        Vec::new()
    });
    for mounted in all.iter().rev().filter(|it| known.contains(&Known::of(it))) {
        if let Err(error) = unmount(&mounted.at, Unmount::Lazily) {
            say(&format!("rampack: {} is left mounted: {error}\n", mounted.at.display()));
        }
    }
}
