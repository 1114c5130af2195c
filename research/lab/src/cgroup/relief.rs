//! Raises the limit of a group that the kernel is about to give up.
//!
//! Version 1 of memory cgroups gives up within milliseconds where all reclaimable pages are on
//! their way to a disk. It then ends a process; the smaller the group, the sooner. That tells
//! nothing about the swap. So the process sleeps instead (`memory.oom_control`), and a thread of
//! ours raises the limit a little. The limit stays raised: a lower limit would make the next
//! process sleep.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::proc_files::numbers;

const OOM_CONTROL: &str = "memory.oom_control";
const LIMIT: &str = "memory.limit_in_bytes";
/// Each step raises the limit by this part of it.
const PART: u64 = 32;
/// Time between two looks for a sleeping process.
const LOOK: Duration = Duration::from_millis(20);

/// Watches a group until it is dropped.
pub struct Relief {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    group: PathBuf,
    limit: u64,
    times: AtomicU64,
    over: AtomicBool,
}

impl Relief {
    /// Starts to watch a group of version 1 with this limit. `None` where processes cannot sleep.
    pub fn new(group: &Path, limit: u64) -> Option<Relief> {
        fs::write(group.join(OOM_CONTROL), "1").ok()?;
        let (times, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { group: group.to_owned(), limit, times, over });
        let own = shared.clone();
        let watch = move || {
            // Relaxed here and below: one count and one flag, which order nothing else.
            while !own.over.load(Ordering::Relaxed) {
                own.look();
                thread::sleep(LOOK);
            }
        };
        let thread = thread::Builder::new().name("relief".into()).spawn(watch).ok();
        if thread.is_none() {
            // Without the thread, the kernel ends processes as usual.
            let _ = fs::write(group.join(OOM_CONTROL), "0");
        }
        Some(Relief { shared, thread })
    }

    /// Bytes by which the limit was raised.
    pub fn bytes(&self) -> u64 {
        self.shared.limit / PART * self.shared.times.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn look(&self) {
        let text = fs::read_to_string(self.group.join(OOM_CONTROL)).unwrap_or_default();
        let stuck = numbers(&text).get("under_oom").is_some_and(|under| *under != 0);
        if stuck {
            let times = self.times.fetch_add(1, Ordering::Relaxed) + 1;
            let limit = self.limit + self.limit / PART * times;
            let _ = fs::write(self.group.join(LIMIT), limit.to_string());
        }
    }
}

impl Drop for Relief {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
