//! Ends the state of a stuck machine: memory is out, the pool is at its limit, nothing is below it,
//! and all programs wait.
//!
//! The kernel does not end this by itself. As long as the swap device has free space, the kernel
//! takes anonymous memory for reclaimable: it writes the same pages again and again, and each is
//! refused. The kernel's own zram at its `mem_limit` shows the same. So the daemon calls the
//! kernel's OOM killer, which ends the program that takes most memory.

use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::{MemoryStall, OomKiller, Watermark, Watermarks};
use zswap::{Traffic, Zswap};

use super::report::{Protection, protection};
use crate::failure::failed;

/// How long a machine is stuck before a program is ended, by default.
pub const USUAL: Duration = Duration::from_secs(10);
const NAME: &str = "ends when it is stuck";
/// The shortest time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// A stuck machine has at least this many refused pages a second, and this many for each page that
/// was stored or loaded. A stuck machine of two emulated cpus had 20,000 a second, and none stored
/// or loaded.
const REFUSED_A_SECOND: f64 = 100.0;
const REFUSED_FOR_EACH: u64 = 10;
/// The part of the time in which programs wait for memory on a stuck machine, at least.
const WAITING: f64 = 0.8;

/// The state at one moment. Counts are since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sample {
    at: Duration,
    /// Pages that the kernel got back, because neither the cache nor a device took them.
    refused: u64,
    /// Pages that were stored or loaded.
    served: u64,
    /// How long any program has waited for memory.
    waited: Duration,
    /// Is free memory at or below the high watermark of the kernel?
    is_short: bool,
}

/// Detects that a machine has been stuck for long enough.
#[derive(Debug)]
struct Stuck {
    after: Duration,
    last: Sample,
    since: Option<Duration>,
}

impl Stuck {
    fn new(after: Duration) -> Stuck {
        Stuck { after, last: Sample::default(), since: None }
    }

    /// Is it time for the OOM killer? If so, the time starts again.
    fn look(&mut self, now: Sample) -> bool {
        let last = std::mem::replace(&mut self.last, now);
        let time = now.at.saturating_sub(last.at);
        let refused = now.refused.saturating_sub(last.refused);
        let served = now.served.saturating_sub(last.served);
        let waited = now.waited.saturating_sub(last.waited);
        let is_stuck = now.is_short
            && refused as f64 >= REFUSED_A_SECOND * time.as_secs_f64()
            && refused >= REFUSED_FOR_EACH * served
            && waited.as_secs_f64() >= WAITING * time.as_secs_f64();
        if !is_stuck {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(last.at);
        let is_time = now.at.saturating_sub(since) >= self.after;
        if is_time {
            self.since = None;
        }
        is_time
    }
}

/// Watches for a stuck machine and calls the OOM killer. Its files are open from the start.
pub struct Watcher {
    killer: OomKiller,
    stall: MemoryStall,
    watermarks: Watermarks,
    begun: Instant,
    stuck: Stuck,
}

impl Watcher {
    /// A watcher that has a program ended when the machine has been stuck for `after`. `None` for a
    /// time of 0, or where the kernel offers no way. Also returns the protection to report.
    #[must_use]
    pub fn new(after: Duration) -> (Option<Watcher>, Protection) {
        let without = "when the pool is at its limit and nothing below it takes pages, the \
                       machine may stand still until somebody ends a program";
        if after.is_zero() {
            let text = format!("as was asked for (--oom-after 0); {without}");
            return (None, Protection { name: NAME.into(), had: true, text });
        }
        let opened = Watcher::open(after);
        let said = opened.as_ref().map_err(Clone::clone).map(|_| {
            format!("the kernel's OOM killer is called after {} seconds", after.as_secs())
        });
        (opened.ok(), protection(NAME, said, without))
    }

    fn open(after: Duration) -> Result<Watcher, ControlError> {
        let killer = OomKiller::open()
            .map_err(|error| failed("the kernel's OOM killer cannot be called", &error))?;
        let stall = MemoryStall::open()
            .map_err(|error| failed("the kernel tells of no pressure (PSI)", &error))?;
        let mut watermarks = Watermarks::new();
        if watermarks.look().is_none() {
            let message = "the kernel does not tell its watermarks (/proc/zoneinfo)";
            return Err(ControlError::new(Errno::ENOTSUP, message));
        }
        let (begun, stuck) = (Instant::now(), Stuck::new(after));
        Ok(Watcher { killer, stall, watermarks, begun, stuck })
    }

    /// Takes a look, at most once a second, and calls the OOM killer if it is time. Returns what is
    /// to be logged then. One thread calls this, once a second or more often.
    pub fn look(&mut self, zswap: &Zswap) -> Option<String> {
        let at = self.begun.elapsed();
        if at.saturating_sub(self.stuck.last.at) < LOOK {
            return None;
        }
        let (waited, above) = (self.stall.total()?, self.watermarks.look()?);
        let Traffic { served, refused } = zswap.traffic();
        let is_short = above.bytes(Watermark::High) == 0;
        if !self.stuck.look(Sample { at, refused, served, waited, is_short }) {
            return None;
        }
        let called = self.killer.call();
        Some(format!(
            "memory is out, swap takes no more pages ({refused} refused so far), and programs only \
             wait: the kernel was asked to end one (oom-kill): {}",
            called.map_or_else(|error| error.to_string(), |()| "done".to_string())
        ))
    }
}

#[cfg(test)]
mod tests;
