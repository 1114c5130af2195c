//! A memory control group of our own.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use control::{Errno, Fault};

use crate::failure::{failed, say};
use crate::swap::limits::Controller;

/// How long the kernel may take to let go of a group whose last process has ended.
const GOING: Duration = Duration::from_secs(30);

/// A group with a limit on memory. Dropping it removes it.
pub struct Group {
    path: PathBuf,
    /// The file in which the memory controller was switched on for groups such as this one.
    switched: Option<PathBuf>,
}

impl Group {
    /// Makes one.
    ///
    /// # Errors
    /// What the system reports; a container often may not make groups.
    pub fn make(controller: &Controller, limit: u64) -> Result<Group, Fault> {
        let path = controller.top.join(format!("rampack-selftest-{}", std::process::id()));
        let refused = |error: io::Error| {
            let fault = failed(format!("cannot make the control group {}", path.display()), &error);
            match error.raw_os_error() {
                Some(libc::EROFS | libc::EACCES | libc::EPERM) => {
                    let message = format!(
                        "{}; in a container it needs /sys/fs/cgroup to be writable",
                        fault.message
                    );
                    Fault::new(fault.errno, message)
                }
                _ => fault,
            }
        };
        fs::create_dir(&path).map_err(refused)?;
        let mut group = Group { path: path.clone(), switched: None };
        let limit_file = group.path.join(controller.limit_files()[0]);
        if !controller.v1 && !limit_file.exists() {
            let switch = controller.top.join("cgroup.subtree_control");
            fs::write(&switch, "+memory").map_err(|e| {
                failed("cannot switch the memory controller on for control groups", &e)
            })?;
            group.switched = Some(switch);
        }
        let what = |e: &io::Error| failed(format!("cannot set {}", limit_file.display()), e);
        fs::write(&limit_file, limit.to_string()).map_err(|e| what(&e))?;
        Ok(group)
    }

    /// Puts a process into it.
    ///
    /// # Errors
    /// What the system reports.
    pub fn take(&self, process: u32) -> Result<(), Fault> {
        let file = self.path.join("cgroup.procs");
        fs::write(&file, process.to_string()).map_err(|e| {
            let fault = failed(format!("cannot write to {}", file.display()), &e);
            match fault.errno {
                Errno::EINVAL => {
                    Fault::new(fault.errno, format!("{}: is the group usable?", fault.message))
                }
                _ => fault,
            }
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + GOING;
        while let Err(error) = fs::remove_dir(&self.path) {
            if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() > end {
                say(&format!("rampack: {} is left: {error}\n", self.path.display()));
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        if let Some(switch) = &self.switched {
            // Others may rely on it by now, and are not asked.
            let _ = fs::write(switch, "-memory");
        }
    }
}
