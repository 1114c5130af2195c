//! A memory cgroup of our own, of either version, in which a program has less memory than it wants.
//!
//! Version 1 is described in the kernel document `admin-guide/cgroup-v1/memory.rst`, version 2 in
//! `admin-guide/cgroup-v2.rst`. Under version 2 the kernel counts the pages in zswap against the
//! group's limit; under version 1 it does not. Groups of version 1 have a [`Relief`].

mod relief;

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use host::Controller;
use sync::atomic::{AtomicU32, Ordering};

use crate::sys;
use relief::Relief;

/// How long processes may take to die: they may wait for a slow disk.
const DYING: Duration = Duration::from_secs(120);
/// How long a group may stay busy after its last process has ended.
const LEAVING: Duration = Duration::from_secs(20);

/// Numbers for the groups of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

fn words_in(path: &Path, word: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.split_ascii_whitespace().any(|it| it == word))
}

/// A memory cgroup. Drop kills all its processes and removes it.
pub struct Group {
    path: PathBuf,
    /// Whether it is of version 1.
    v1: bool,
    relief: Option<Relief>,
}

impl Group {
    /// Makes a group that may use `limit` bytes; without `limit`, as much as it wants.
    pub fn new(limit: Option<u64>) -> Result<Group> {
        let Controller { top, v1, .. } = Controller::find().context(
            "there are no memory cgroups here: the kernel has none, they are not mounted, or this \
             is a container that was given none",
        )?;
        if !v1 && !words_in(&top.join("cgroup.subtree_control"), "memory") {
            let path = top.join("cgroup.subtree_control");
            fs::write(&path, "+memory").with_context(|| {
                format!("cannot enable memory cgroups in {}; that takes root", path.display())
            })?;
        }
        // Relaxed: the numbers must differ, and order nothing.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = top.join(format!("rampack-lab-{}-{number}", process::id()));
        fs::create_dir(&path).with_context(|| {
            format!("cannot make the memory cgroup {}; that takes root", path.display())
        })?;
        let mut group = Group { path, v1, relief: None };
        if let Some(limit) = limit {
            let name = if v1 { "memory.limit_in_bytes" } else { "memory.max" };
            let path = group.path.join(name);
            fs::write(&path, limit.to_string())
                .with_context(|| format!("cannot write {limit} to {}", path.display()))?;
            if v1 {
                group.relief = Relief::new(&group.path, limit);
            }
        }
        Ok(group)
    }

    /// Bytes by which [`Relief`] raised the limit when the kernel was about to end a process.
    pub fn relieved(&self) -> u64 {
        self.relief.as_ref().map_or(0, Relief::bytes)
    }

    /// Makes a child of this command start in the group.
    pub fn take<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        let path = self.path.join("cgroup.procs");
        let procs = OpenOptions::new().write(true).open(&path);
        let procs: File = procs.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(sys::enter(command, procs))
    }

    /// The processes in the group.
    fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Kills all processes in the group and waits until they are gone.
    pub fn kill(&self) -> Result<()> {
        let begun = Instant::now();
        // Linux 5.14 and later kill all at once. On older kernels we kill the processes one by one,
        // until no new ones come.
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        loop {
            let processes = self.processes();
            if processes.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > DYING {
                bail!("processes {processes:?} in {} do not die", self.path.display());
            }
            for process in processes {
                sys::kill(process).with_context(|| format!("cannot kill process {process}"))?;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn remove(&mut self) -> Result<()> {
        self.kill()?;
        self.relief = None;
        // Only page cache is left. It would keep the group in the kernel's memory.
        let (name, what) =
            if self.v1 { ("memory.force_empty", "0") } else { ("memory.reclaim", "1T") };
        let _ = fs::write(self.path.join(name), what);
        let begun = Instant::now();
        loop {
            match fs::remove_dir(&self.path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) if begun.elapsed() > LEAVING => {
                    return Err(error).context(self.path.display().to_string());
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("rampack-lab: a memory cgroup stays: {error:#}");
        }
    }
}
