//! Programs that get less memory than they want: a memory cgroup, swap of some kind, counters
//! around it, and a limit of time.

mod disks;

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cgroup::{Counted, Group};
use crate::interrupt;
use crate::swap::{Area, Mode, Shop, Told, Vmstat};
use crate::sys::{self, Usage};
pub use disks::{Disk, Disks};

/// How often the swap is looked at.
const SAMPLE: Duration = Duration::from_secs(1);
/// How often a process is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A group with swap, ready for programs. All of it is taken down when this is dropped.
pub struct Stage {
    // Dropped in this order, after the group's processes were killed: swap is empty then.
    area: Option<Box<dyn Area>>,
    group: Group,
    /// When programs are killed.
    timeout: Duration,
    begun: Instant,
    vmstat: Vmstat,
    disks: Disks,
    children: Usage,
    sampled: Instant,
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By itself.
    Itself(ExitStatus),
    /// It was killed, because its time was over.
    TimedOut,
}

/// What was measured between the beginning and the end.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Seconds by the clock.
    pub seconds: f64,
    /// Seconds on the CPU in the programs.
    pub user_seconds: f64,
    /// Seconds on the CPU in the kernel on their behalf.
    pub system_seconds: f64,
    /// Both by the clock, in percent of one CPU.
    pub cpu_percent: f64,
    /// Page faults of the programs for which something was read, from swap too.
    pub major_faults: u64,
    /// What the kernel counted, all over the machine.
    pub vmstat: Vmstat,
    /// What the memory cgroup counted.
    pub group: Counted,
    /// Bytes by which the limit was raised: the kernel was about to give the group up, as nothing
    /// could be reclaimed in time.
    pub relieved_bytes: u64,
    /// What swap tells.
    pub swap: Told,
    /// What disks read, swap and everything else.
    pub disk_read_bytes: u64,
    /// What disks wrote.
    pub disk_written_bytes: u64,
    /// Of each block device that did anything.
    pub disks: Vec<Disk>,
}

impl Stage {
    /// Makes swap, and a group that may have `limit` bytes. Without swap there is no limit.
    ///
    /// # Errors
    /// There can be no such swap or group here.
    pub fn new(shop: &Shop, mode: &Mode, limit: Option<u64>, timeout: Duration) -> Result<Stage> {
        let group = Group::new(limit)?;
        let area = shop.make(mode)?;
        let now = Instant::now();
        Ok(Stage {
            area: Some(area),
            group,
            timeout,
            begun: now,
            vmstat: Vmstat::default(),
            disks: Disks::now()?,
            children: Usage::default(),
            sampled: now,
        })
    }

    /// The clock starts, and counters are judged from here.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn begin(&mut self) -> Result<()> {
        if let Some(area) = &mut self.area {
            area.begin()?;
        }
        self.vmstat = Vmstat::now()?;
        self.disks = Disks::now()?;
        self.children = sys::children();
        self.begun = Instant::now();
        Ok(())
    }

    /// Puts a command into the group.
    ///
    /// # Errors
    /// The group cannot be entered.
    pub fn take<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        self.group.take(command)
    }

    /// The process that serves the swap, if there is one.
    pub fn server(&self) -> Option<u32> {
        self.area.as_ref()?.process()
    }

    /// Looks at the swap if it is time.
    ///
    /// # Errors
    /// Whoever serves it is gone, or this was interrupted.
    pub fn look(&mut self) -> Result<()> {
        interrupt::check()?;
        if self.sampled.elapsed() > SAMPLE {
            self.sampled = Instant::now();
            if let Some(area) = &mut self.area {
                area.sample()?;
            }
        }
        Ok(())
    }

    /// Whether the time is over.
    pub fn is_late(&self) -> bool {
        self.begun.elapsed() > self.timeout
    }

    /// Waits for a program in the group, kills all of it when the time is over, and measures.
    ///
    /// # Errors
    /// Whoever serves the swap is gone, or this was interrupted.
    pub fn wait(&mut self, child: &mut Child, name: &str) -> Result<(Ended, Measured)> {
        loop {
            if let Some(status) = child.try_wait().with_context(|| name.to_owned())? {
                return Ok((Ended::Itself(status), self.measure(None)?));
            }
            if self.is_late() {
                // Whoever is killed now is waited for by nobody of ours.
                let usage = self.group.usage();
                let measured = self.measure(Some(usage))?;
                self.group.kill()?;
                child.wait().with_context(|| name.to_owned())?;
                return Ok((Ended::TimedOut, measured));
            }
            self.look()?;
            thread::sleep(LOOK);
        }
    }

    /// What has happened since the beginning; `usage` is of programs that still run.
    ///
    /// # Errors
    /// Counters cannot be read.
    pub fn measure(&mut self, usage: Option<Usage>) -> Result<Measured> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let (vmstat, disks) = (Vmstat::now()?.since(self.vmstat), Disks::now()?.since(&self.disks));
        let (children, running) = (sys::children(), usage.unwrap_or_default());
        let user = children.user - self.children.user + running.user;
        let system = children.system - self.children.system + running.system;
        let swap = match &mut self.area {
            Some(area) => area.told(vmstat)?,
            None => Told::default(),
        };
        Ok(Measured {
            seconds,
            user_seconds: user,
            system_seconds: system,
            cpu_percent: 100.0 * (user + system) / seconds.max(1e-9),
            major_faults: children.major_faults - self.children.major_faults + running.major_faults,
            vmstat,
            group: self.group.counted(),
            relieved_bytes: self.group.relieved(),
            swap,
            disk_read_bytes: disks.iter().filter(|disk| disk.real).map(|disk| disk.read).sum(),
            disk_written_bytes: disks
                .iter()
                .filter(|disk| disk.real)
                .map(|disk| disk.written)
                .sum(),
            disks,
        })
    }

    /// What programs in the group have used, while they run.
    pub fn usage(&self) -> Usage {
        self.group.usage()
    }

    /// Ends all programs and takes the swap away.
    ///
    /// # Errors
    /// Something stays.
    pub fn end(mut self) -> Result<()> {
        self.group.kill()?;
        match self.area.take() {
            Some(area) => area.end(),
            None => Ok(()),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Only who has no processes in swap may lose it.
        if let Err(error) = self.group.kill() {
            eprintln!("rampack-lab: {error:#}");
        }
    }
}

/// Writes everything to disks, and forgets what was read from them (kernel document
/// `admin-guide/sysctl/vm.rst`).
///
/// # Errors
/// Only root may do that.
pub fn forget_files() -> Result<()> {
    let sync = crate::programs::find("sync").unwrap_or_else(|| Path::new("/bin/sync").to_owned());
    crate::programs::said(&sync, &[])?;
    let path = "/proc/sys/vm/drop_caches";
    std::fs::write(path, "3").with_context(|| format!("cannot write {path}"))
}
