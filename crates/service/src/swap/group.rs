//! Puts the daemon into a control group of its own.
//!
//! systemd-oomd ends whole groups when memory is short. A daemon that was started from a terminal
//! is in the group of that session, with the programs that take the memory. So the daemon leaves a
//! shared group and marks its own to be left alone, as `ManagedOOMPreference=omit` does
//! (systemd.resource-control(5)). Only the unified hierarchy counts.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use host::Controller;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::report::Protection;
use crate::failure::failed;

const NAME: &str = "not ended with its group";
/// The name of the group, at the top of the hierarchy.
const OWN: &str = "rampack";
/// The attributes that tell systemd-oomd to leave a group alone: since version 249, and before it.
const OMIT: [&str; 2] = ["user.oomd_omit", "trusted.oomd_omit"];
const PROCESSES: &str = "cgroup.procs";
/// Every group except the topmost has this file.
const KIND: &str = "cgroup.type";

/// The group of the daemon. A drop moves the daemon back to its earlier group.
pub struct OwnGroup {
    protection: Protection,
    _moved: Option<Moved>,
}

/// A move to a group, undone by its drop.
struct Moved {
    process: u32,
    from: PathBuf,
    to: PathBuf,
}

/// Puts this process into a group that is left alone, if that is allowed.
#[must_use]
pub fn own_group() -> OwnGroup {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let unified = Controller::find().filter(|controller| !controller.v1);
    match unified.and_then(|it| Some((it.group_of(&text)?, it.top))) {
        Some((group, top)) => OwnGroup::take(&top, &group, std::process::id()),
        None => OwnGroup::had("no unified control groups, which systemd-oomd would need"),
    }
}

impl OwnGroup {
    fn had(text: impl Into<String>) -> OwnGroup {
        let protection = Protection { name: NAME.into(), had: true, text: text.into() };
        OwnGroup { protection, _moved: None }
    }

    /// `process` is in `group`, of the hierarchy at `top`.
    fn take(top: &Path, group: &Path, process: u32) -> OwnGroup {
        if !group.join(KIND).exists() {
            return OwnGroup::had("in the topmost control group, which is never ended");
        }
        let others = others(group, process);
        // systemd would lose track of a process that leaves its service, and the other processes of
        // the service belong to the daemon.
        let is_service = group.extension().is_some_and(|kind| kind == "service");
        if others == 0 || is_service {
            let marked = mark(group);
            return OwnGroup::new(marked.map(|()| (group.to_path_buf(), None)), group, others);
        }
        let moved = move_to_own(top, group, process);
        let marked =
            moved.and_then(|moved| mark(&moved.to).map(|()| (moved.to.clone(), Some(moved))));
        OwnGroup::new(marked, group, others)
    }

    fn new(done: io::Result<(PathBuf, Option<Moved>)>, group: &Path, others: usize) -> OwnGroup {
        let error = match done {
            Ok((group, moved)) => {
                let had = OwnGroup::had(format!("systemd-oomd leaves {} alone", group.display()));
                return OwnGroup { _moved: moved, ..had };
            }
            Err(error) => error,
        };
        let shared = match others {
            0 => String::new(),
            1 => ", which it shares with another process".into(),
            others => format!(", which it shares with {others} other processes"),
        };
        let why = failed("it cannot have one that is left alone", &error).message;
        let text = format!(
            "the daemon is in the control group {}{shared}, and goes with it when systemd-oomd \
             ends that; {why}; start it in a service of its own, with ManagedOOMPreference=omit",
            group.display()
        );
        OwnGroup { protection: Protection { name: NAME.into(), had: false, text }, _moved: None }
    }

    /// The protection to report.
    #[must_use]
    pub fn protection(&self) -> &Protection {
        &self.protection
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        // The earlier group may be gone; the process stays in its own then.
        if enter(&self.from, self.process).is_ok() {
            let _ = fs::remove_dir(&self.to);
        }
    }
}

/// The number of other processes in `group`.
fn others(group: &Path, process: u32) -> usize {
    let text = fs::read_to_string(group.join(PROCESSES)).unwrap_or_default();
    text.lines().filter(|line| line.trim() != process.to_string()).count()
}

/// Moves a process to a group of its own. The group of a killed daemon is used again.
fn move_to_own(top: &Path, from: &Path, process: u32) -> io::Result<Moved> {
    let mut to = top.join(OWN);
    if others(&to, process) > 0 {
        to = top.join(format!("{OWN}-{process}"));
    }
    match fs::create_dir(&to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let entered = enter(&to, process);
    if entered.is_err() {
        let _ = fs::remove_dir(&to);
    }
    entered.map(|()| Moved { process, from: from.to_path_buf(), to })
}

fn enter(group: &Path, process: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(group.join(PROCESSES))?;
    file.write_all(process.to_string().as_bytes())
}

/// Marks `group` to be left alone. One of the two attributes is enough.
fn mark(group: &Path) -> io::Result<()> {
    let [new, old] = OMIT.map(|name| setxattr(group, name, b"1", XattrFlags::empty()));
    Ok(new.or(old)?)
}

/// Does systemd-oomd leave the group alone whose processes `text` of `/proc/PID/cgroup` is from?
/// True without unified control groups, and of the topmost one.
#[must_use]
pub fn is_left_alone(text: &str) -> bool {
    let unified = Controller::find().filter(|controller| !controller.v1);
    unified.and_then(|it| it.group_of(text)).is_none_or(|group| is_spared(&group))
}

fn is_spared(group: &Path) -> bool {
    let mut value = [0; 8];
    let is_marked = |name| getxattr(group, name, &mut value).is_ok_and(|len| &value[..len] == b"1");
    !group.join(KIND).exists() || OMIT.into_iter().any(is_marked)
}

#[cfg(test)]
mod tests;
