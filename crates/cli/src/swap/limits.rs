//! Memory control groups that limit this process.
//!
//! A daemon must not serve swap space for a group whose memory limit also holds for the daemon: to
//! make room for a page it would have to wait for itself.

use std::fs;
use std::path::{Path, PathBuf};

use rampack::units::human;

use crate::mounts::{MountLine, mounts};

/// From this value on a limit of version 1 means no limit: version 1 writes the largest number of
/// whole pages.
const UNLIMITED: u64 = 1 << 62;

/// A limit on the memory of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The file that holds the limit.
    pub file: PathBuf,
    /// The limit in bytes.
    pub bytes: u64,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is {}", self.file.display(), human(self.bytes))
    }
}

/// The groups of the memory controller, and the names of their limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// The directory of the topmost visible group.
    pub top: PathBuf,
    /// Is it version 1? Otherwise it is version 2.
    pub v1: bool,
}

impl Controller {
    /// The memory controller of this machine, if one is mounted. A hierarchy of version 1, where
    /// one exists, has the controller to itself.
    #[must_use]
    pub fn find() -> Option<Controller> {
        Controller::among(&mounts(), |top| top.join("cgroup.controllers"))
    }

    fn among(mounts: &[MountLine], controllers: impl Fn(&Path) -> PathBuf) -> Option<Controller> {
        let v1 = mounts.iter().find(|mount| {
            mount.kind == "cgroup" && mount.target.join("memory.limit_in_bytes").is_file()
        });
        if let Some(mount) = v1 {
            return Some(Controller { top: mount.target.clone(), v1: true });
        }
        let has_memory = |top: &Path| {
            let text = fs::read_to_string(controllers(top)).unwrap_or_default();
            text.split_whitespace().any(|name| name == "memory")
        };
        let v2 = mounts.iter().find(|mount| mount.kind == "cgroup2" && has_memory(&mount.target));
        v2.map(|mount| Controller { top: mount.target.clone(), v1: false })
    }

    /// The files that limit memory in a group. An allocation beyond the first limit fails; beyond
    /// the second limit the process is made to wait.
    #[must_use]
    pub fn limit_files(&self) -> &'static [&'static str] {
        if self.v1 { &["memory.limit_in_bytes"] } else { &["memory.max", "memory.high"] }
    }

    /// The group of a process, from the text of its `/proc/PID/cgroup`.
    #[must_use]
    pub fn group_of(&self, text: &str) -> Option<PathBuf> {
        let path = text.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (names, path) = rest.split_once(':')?;
            let is_it = match self.v1 {
                true => names.split(',').any(|name| name == "memory"),
                false => number == "0" && names.is_empty(),
            };
            is_it.then_some(path)
        })?;
        let group = self.top.join(path.trim_start_matches('/'));
        // In a container the mount may begin further down than the path.
        Some(if group.is_dir() { group } else { self.top.clone() })
    }

    /// The limits from `group` up to the top.
    #[must_use]
    pub fn limits(&self, group: &Path) -> Vec<Limit> {
        let mut found = Vec::new();
        for directory in group.ancestors().take_while(|place| place.starts_with(&self.top)) {
            for name in self.limit_files() {
                let file = directory.join(name);
                let text = fs::read_to_string(&file).unwrap_or_default();
                if let Some(bytes) = parse_limit(&text) {
                    found.push(Limit { file, bytes });
                }
            }
        }
        found
    }
}

/// A limit in bytes; `None` for none.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED)
}

/// The limits on the memory of this process.
#[must_use]
pub fn own() -> Vec<Limit> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = Controller::find().and_then(|it| Some(it.limits(&it.group_of(&text)?)));
    limits.unwrap_or_default()
}

#[cfg(test)]
mod tests;
