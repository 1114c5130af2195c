//! A memory control group for the selftest.
//!
//! Where reclaim finds only pages that are on their way to the swap device, Linux gives up within
//! milliseconds and ends a process of the group. It does so sooner in a small group and on a busy
//! machine. The swap space is not at fault, so the test avoids it. Version 2 makes a process wait
//! beyond `memory.high`. In version 1 a process can be made to sleep instead of being ended
//! (`memory.oom_control`); [`Group::relieve`] wakes it by raising the limit for a moment.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::{Controller, errno};

use service::failure::{failed, say};

/// How long the kernel may take to release a group after its last process has ended.
const GOING: Duration = Duration::from_secs(30);

const OOM_CONTROL: &str = "memory.oom_control";

/// A group with a limit on memory. A drop removes it.
pub struct Group {
    path: PathBuf,
    /// The file of the limit, and the limit in bytes.
    limit: (PathBuf, u64),
    v1: bool,
    /// Has the limit been removed?
    lifted: bool,
    /// The file in which the memory controller was switched on for groups such as this one.
    switched: Option<PathBuf>,
}

impl Group {
    /// Makes a group.
    ///
    /// # Errors
    /// The error of the system call; a container often may not make groups.
    pub fn make(controller: &Controller, limit: u64) -> Result<Group, ControlError> {
        let path = controller.top.join(format!("rampack-selftest-{}", std::process::id()));
        let refused = |cause: io::Error| {
            let error = failed(format!("cannot make the control group {}", path.display()), &cause);
            match cause.raw_os_error() {
                Some(errno::EROFS | errno::EACCES | errno::EPERM) => {
                    let message = format!(
                        "{}; in a container it needs /sys/fs/cgroup to be writable",
                        error.message
                    );
                    ControlError::new(error.errno, message)
                }
                _ => error,
            }
        };
        fs::create_dir(&path).map_err(refused)?;
        let v1 = controller.v1;
        let name = if v1 { "memory.limit_in_bytes" } else { "memory.high" };
        let limit_file = path.join(name);
        let limit_at = (limit_file.clone(), limit);
        let mut group =
            Group { path: path.clone(), limit: limit_at, v1, lifted: false, switched: None };
        if !controller.v1 && !limit_file.exists() {
            let switch = controller.top.join("cgroup.subtree_control");
            fs::write(&switch, "+memory").map_err(|e| {
                failed("cannot switch the memory controller on for control groups", &e)
            })?;
            group.switched = Some(switch);
        }
        let what = |e: &io::Error| failed(format!("cannot set {}", limit_file.display()), e);
        fs::write(&limit_file, limit.to_string()).map_err(|e| what(&e))?;
        if controller.v1 {
            // Without it, a process of a small group on a busy machine may be ended; see above.
            let _ = fs::write(path.join(OOM_CONTROL), "1");
        } else {
            let _ = fs::write(path.join("memory.max"), (limit.saturating_mul(2)).to_string());
        }
        Ok(group)
    }

    /// Removes the limit.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn lift(&mut self) -> io::Result<()> {
        self.lifted = true;
        match self.v1 {
            true => fs::write(&self.limit.0, "-1"),
            false => {
                fs::write(&self.limit.0, "max")?;
                fs::write(self.path.join("memory.max"), "max")
            }
        }
    }

    /// Wakes a process that sleeps because nothing could be reclaimed in time. Was there one? Call
    /// it again and again while the group is in use.
    pub fn relieve(&self) -> bool {
        if !self.v1 || self.lifted {
            return false;
        }
        let (file, limit) = &self.limit;
        let text = fs::read_to_string(self.path.join(OOM_CONTROL)).unwrap_or_default();
        let stuck = text.lines().any(|line| line == "under_oom 1");
        let now = fs::read_to_string(file).unwrap_or_default();
        let now = now.trim().parse().unwrap_or(*limit);
        if stuck {
            // Only a limit above the earlier one wakes it.
            let _ = fs::write(file, (now + limit / 8).to_string());
        } else if now != *limit {
            // EBUSY until enough has been reclaimed for the limit: it is tried again then.
            let _ = fs::write(file, limit.to_string());
        }
        stuck
    }

    /// Puts a process into the group.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn take(&self, process: u32) -> Result<(), ControlError> {
        let file = self.path.join("cgroup.procs");
        fs::write(&file, process.to_string()).map_err(|e| {
            let error = failed(format!("cannot write to {}", file.display()), &e);
            match error.errno {
                Errno::EINVAL => ControlError::new(
                    error.errno,
                    format!("{}: is the group usable?", error.message),
                ),
                _ => error,
            }
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + GOING;
        while let Err(error) = fs::remove_dir(&self.path) {
            if error.raw_os_error() != Some(errno::EBUSY) || Instant::now() > end {
                say(&format!("rampack: {} is left: {error}\n", self.path.display()));
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        if let Some(switch) = &self.switched {
            // Other processes may rely on it by now; they are not asked.
            let _ = fs::write(switch, "-memory");
        }
    }
}
