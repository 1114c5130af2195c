//! Control groups that limit the memory of this process.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use units::human;

/// From this value on a limit of version 1 means no limit: version 1 writes the largest number of
/// whole pages.
const UNLIMITED: u64 = 1 << 62;

/// A limit on the memory of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupLimit {
    /// The file that holds the limit.
    pub file: PathBuf,
    /// The limit in bytes.
    pub bytes: u64,
}

impl fmt::Display for GroupLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    /// The path of that group in its hierarchy.
    root: PathBuf,
}

impl Controller {
    /// The memory controller of this process, if one is mounted where its group can be seen. A
    /// hierarchy of version 1, where one exists, has the controller to itself.
    #[must_use]
    pub fn find() -> Option<Controller> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Controller::among(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    /// The controller among the mounts of a text as of proc_pid_mountinfo(5), for a process with
    /// this `/proc/PID/cgroup`. A part of a hierarchy that is mounted elsewhere is another group's.
    pub(crate) fn among(mounts: &str, process: &str) -> Option<Controller> {
        let of_kind = |wanted: &'static str, v1: bool| {
            mounts.lines().filter_map(move |line| {
                let (fields, rest) = line.split_once(" - ")?;
                let mut fields = fields.split(' ').skip(3);
                let [root, top] = [fields.next()?, fields.next()?].map(PathBuf::from);
                let found = Controller { top, v1, root };
                let is_it = rest.split(' ').next() == Some(wanted)
                    && found.path_of(process).is_some_and(|path| path.starts_with(&found.root));
                is_it.then_some(found)
            })
        };
        let v1 = of_kind("cgroup", true).find(|it| it.top.join("memory.limit_in_bytes").is_file());
        let has_memory = |it: &Controller| {
            let text = fs::read_to_string(it.top.join("cgroup.controllers")).unwrap_or_default();
            text.split_whitespace().any(|name| name == "memory")
        };
        v1.or_else(|| of_kind("cgroup2", false).find(has_memory))
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
        let path = self.path_of(text)?;
        let group = path.strip_prefix(&self.root).map(|below| self.top.join(below));
        // In a container the mount may begin further down than the path.
        Some(group.ok().filter(|group| group.is_dir()).unwrap_or_else(|| self.top.clone()))
    }

    fn path_of<'a>(&self, text: &'a str) -> Option<&'a Path> {
        let path = text.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (names, path) = rest.split_once(':')?;
            let is_it = match self.v1 {
                true => names.split(',').any(|name| name == "memory"),
                false => number == "0" && names.is_empty(),
            };
            is_it.then_some(path)
        })?;
        Some(Path::new(path))
    }

    /// The limits from `group` up to the top.
    #[must_use]
    pub fn limits(&self, group: &Path) -> Vec<GroupLimit> {
        let mut found = Vec::new();
        for directory in group.ancestors().take_while(|place| place.starts_with(&self.top)) {
            for name in self.limit_files() {
                let file = directory.join(name);
                let text = fs::read_to_string(&file).unwrap_or_default();
                if let Some(bytes) = parse_limit(&text) {
                    found.push(GroupLimit { file, bytes });
                }
            }
        }
        found
    }
}

/// A limit in bytes; `None` for none.
pub(crate) fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED)
}

/// The limits that control groups set to the memory of this process, from its group up to the top.
#[must_use]
pub fn group_limits() -> Vec<GroupLimit> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = Controller::find().and_then(|it| Some(it.limits(&it.group_of(&text)?)));
    limits.unwrap_or_default()
}

#[cfg(test)]
mod tests;
