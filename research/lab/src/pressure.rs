//! Runs programs that get less memory than they want: in a memory cgroup, with some kind of swap,
//! counters and a time limit.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cgroup::Group;
use crate::interrupt;
use crate::proc_files::{Counters, growth};
use crate::swap::{Area, Mode, Shop, Told, counters};
use crate::sys::{self, Usage};

/// Time between two samples of the swap.
const SAMPLE: Duration = Duration::from_secs(1);
/// Time between two checks whether a process has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A group with swap, ready for programs. Drop takes everything down.
pub struct SwapGroup {
    // Dropped in this order, after the group's processes are killed: then swap is empty.
    area: Option<Box<dyn Area>>,
    group: Group,
    /// The time after which programs are killed.
    timeout: Duration,
    begun: Instant,
    vmstat: Counters,
    children: Usage,
    sampled: Instant,
}

/// The end of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The program ended by itself.
    Itself(ExitStatus),
    /// The program was killed at the time limit.
    TimedOut,
}

/// The measurements between the beginning and the end.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Wall-clock seconds.
    pub seconds: f64,
    /// CPU seconds in the programs.
    pub user_seconds: f64,
    /// CPU seconds in the kernel for the programs.
    pub system_seconds: f64,
    /// User and system time over wall-clock time, in percent of one CPU.
    pub cpu_percent: f64,
    /// Page faults of the programs that read something, from swap too.
    pub major_faults: u64,
    /// The kernel's counters of the whole machine.
    pub vmstat: Counters,
    /// Bytes by which the limit was raised: the kernel was about to give the group up, because it
    /// could not reclaim anything in time.
    pub relieved_bytes: u64,
    /// The figures of the swap.
    pub swap: Told,
}

impl SwapGroup {
    /// Makes swap, and a group limited to `limit` bytes. Without swap there is no limit.
    pub fn new(
        shop: &Shop,
        mode: &Mode,
        limit: Option<u64>,
        timeout: Duration,
    ) -> Result<SwapGroup> {
        let group = Group::new(limit)?;
        let area = shop.make(mode)?;
        let now = Instant::now();
        Ok(SwapGroup {
            area,
            group,
            timeout,
            begun: now,
            vmstat: Counters::new(),
            children: Usage::default(),
            sampled: now,
        })
    }

    /// Starts the clock, and takes the base of the counters.
    pub fn begin(&mut self) -> Result<()> {
        if let Some(area) = &mut self.area {
            area.begin()?;
        }
        self.vmstat = counters()?;
        self.children = sys::children();
        self.begun = Instant::now();
        Ok(())
    }

    /// Puts a command into the group.
    pub fn take<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        self.group.take(command)
    }

    /// Waits for a program in the group, kills the group at the time limit, and measures.
    pub fn wait(&mut self, child: &mut Child, name: &str) -> Result<(Ended, Measured)> {
        loop {
            if let Some(status) = child.try_wait().with_context(|| name.to_owned())? {
                return Ok((Ended::Itself(status), self.measure()?));
            }
            if self.begun.elapsed() > self.timeout {
                // The CPU time of processes that are killed now does not count.
                let measured = self.measure()?;
                self.group.kill()?;
                child.wait().with_context(|| name.to_owned())?;
                return Ok((Ended::TimedOut, measured));
            }
            interrupt::check()?;
            if self.sampled.elapsed() > SAMPLE {
                self.sampled = Instant::now();
                if let Some(area) = &mut self.area {
                    area.sample()?;
                }
            }
            thread::sleep(LOOK);
        }
    }

    /// The measurements since the beginning.
    fn measure(&mut self) -> Result<Measured> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let vmstat = growth(&counters()?, &self.vmstat);
        let children = sys::children();
        let user = children.user - self.children.user;
        let system = children.system - self.children.system;
        let swap = match &mut self.area {
            Some(area) => area.told(&vmstat)?,
            None => Told::default(),
        };
        Ok(Measured {
            seconds,
            user_seconds: user,
            system_seconds: system,
            cpu_percent: 100.0 * (user + system) / seconds.max(1e-9),
            major_faults: children.major_faults - self.children.major_faults,
            vmstat,
            relieved_bytes: self.group.relieved(),
            swap,
        })
    }

    /// Ends all programs and takes the swap away.
    pub fn end(mut self) -> Result<()> {
        self.group.kill()?;
        match self.area.take() {
            Some(area) => area.end(),
            None => Ok(()),
        }
    }
}

impl Drop for SwapGroup {
    fn drop(&mut self) {
        // The swap may go only if no process has pages in it.
        if let Err(error) = self.group.kill() {
            eprintln!("rampack-lab: {error:#}");
        }
    }
}

/// Writes all dirty data to disks, and drops the page cache (kernel document
/// `admin-guide/sysctl/vm.rst`).
pub fn forget_files() -> Result<()> {
    let sync = crate::programs::find("sync").unwrap_or_else(|| Path::new("/bin/sync").to_owned());
    crate::programs::said(&sync, &[])?;
    let path = "/proc/sys/vm/drop_caches";
    std::fs::write(path, "3").with_context(|| format!("cannot write {path}"))
}
