//! Relief for a group that the kernel is about to give up.
//!
//! Where all that could be reclaimed is on its way to a disk, version 1 of memory cgroups gives up
//! within milliseconds and ends a process, the sooner the smaller the group. That says nothing of
//! the swap, so the process is made to sleep instead (`memory.oom_control`), and a thread of ours
//! raises the limit a little. It stays there: to lower it again would make the next one sleep.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lines::numbers;

const OOM_CONTROL: &str = "memory.oom_control";
const LIMIT: &str = "memory.limit_in_bytes";
/// By which part the limit is raised.
const PART: u64 = 32;
/// How often is looked whether a process sleeps.
const LOOK: Duration = Duration::from_millis(20);

/// Watches over a group until it is dropped.
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
    /// For a group of version 1 with this limit; none where processes cannot be made to sleep.
    pub fn new(group: &Path, limit: u64) -> Option<Relief> {
        fs::write(group.join(OOM_CONTROL), "1").ok()?;
        let (times, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { group: group.to_owned(), limit, times, over });
        let own = shared.clone();
        let watch = move || {
            // Relaxed here and below: a count and a flag, nothing else is read by them.
            while !own.over.load(Ordering::Relaxed) {
                own.look();
                thread::sleep(LOOK);
            }
        };
        let thread = thread::Builder::new().name("relief".into()).spawn(watch).ok();
        if thread.is_none() {
            // Then processes end as they always did.
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
