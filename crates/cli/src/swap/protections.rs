//! What keeps a daemon able to serve swap space while there is no memory.
//!
//! What the daemon may need while it serves, and where that comes from:
//!
//! - frames for what is stored: from the zone, which asks the system; a reserve of them is set
//!   aside in memory already and given to the zone when memory is short;
//! - entries and nodes of the index: pages of tables that are touched the first time;
//! - small pieces of the heap, for requests of FUSE and of the control socket: the heap keeps
//!   what is freed, and some of it from the beginning;
//! - the stacks of threads that wait for the backing device, and the buffers of its rings: made
//!   when they are first needed, or done without;
//! - in the kernel, what FUSE, loop devices and io_uring take for each request; it does not start
//!   I/O to find that, nor for a page fault of the daemon, by the promise of `PR_SET_IO_FLUSHER`.

use std::sync::Arc;

use control::Fault;
use host::Reserve;
use pagealloc::Frames;
use serde::{Deserialize, Serialize};
use sync::Mutex;
use units::human;

use crate::failure::{failed, sentence};
use crate::sys;

use super::limits;

/// Memory set aside for stored pages, in bytes. Reclaim asks for some dozens of pages at a time
/// (`SWAP_CLUSTER_MAX` is 32) from each CPU that is short of memory; this holds them for some
/// hundred rounds, in which more is written back than that.
const FRAMES: usize = 8 << 20;
/// Memory set aside in the heap, in bytes.
const HEAP: usize = 4 << 20;
/// Never ended because memory is out.
const NEVER: i32 = -1000;

/// One thing that protects, and whether it is had.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Protection {
    /// What it is called.
    pub name: String,
    /// Is it had?
    pub had: bool,
    /// What is so, or what it means that it is not.
    pub text: String,
}

/// Protections as long as it lives; what the process was like before is restored in the end.
pub struct Protections {
    had: Vec<Protection>,
    locked: bool,
    score: Option<i32>,
    reserve: Arc<Mutex<Reserve>>,
}

fn protection(name: &str, tried: Result<String, Fault>, without: &str) -> Protection {
    let (had, text) = match tried {
        Ok(text) => (true, text),
        Err(fault) => (false, format!("{}; {without}", sentence(&fault))),
    };
    Protection { name: name.into(), had, text }
}

/// Promises for the whole process, to be called before it starts a thread: the kernel must not do
/// I/O to find memory for those who serve I/O. Whether it took is asked later.
pub fn begin() {
    if sys::effective_user() == 0 {
        let _ = host::set_io_flusher(true);
    }
}

impl Protections {
    /// Tries everything.
    #[must_use]
    pub fn take(frames: &Arc<dyn Frames>) -> Protections {
        host::keep_heap(HEAP);
        let reserve = Reserve::new(frames.clone(), host::lane(), FRAMES);
        let set_aside = match reserve.held_bytes() {
            held if held >= FRAMES => {
                Ok(format!("{} of frames, {} of heap", human(held as u64), human(HEAP as u64)))
            }
            held => Err(Fault::new(
                control::Errno::ENOMEM,
                format!(
                    "only {} of {} could be set aside",
                    human(held as u64),
                    human(FRAMES as u64)
                ),
            )),
        };
        // After the heap was filled, so that what it has is locked too.
        let locked = host::lock_memory().map_err(|e| failed("memory cannot be locked", &e));
        let score = host::oom_score().ok();
        let scored = host::set_oom_score(NEVER)
            .map_err(|e| failed("oom_score_adj cannot be set to -1000", &e));
        let mut had = vec![
            protection(
                "memory locked",
                locked.clone().map(|()| "mlockall".to_string()),
                "pages of the daemon may be swapped out to the device it serves, which then \
                 hangs; it needs CAP_IPC_LOCK",
            ),
            protection(
                "no I/O for memory",
                match host::is_io_flusher() {
                    true => Ok("PR_SET_IO_FLUSHER".to_string()),
                    false => host::set_io_flusher(true)
                        .map_err(|e| failed("PR_SET_IO_FLUSHER was refused", &e))
                        .and(Err(Fault::new(
                            control::Errno::EPERM,
                            "PR_SET_IO_FLUSHER came after threads were started",
                        ))),
                },
                "the kernel may wait for the daemon while it looks for memory for the daemon; it \
                 needs CAP_SYS_RESOURCE and Linux 5.6",
            ),
            protection(
                "not ended when memory is out",
                scored.clone().map(|()| "oom_score_adj -1000".to_string()),
                "the kernel may end the daemon when memory is out, and with it everything that \
                 is swapped out; it needs CAP_SYS_RESOURCE",
            ),
        ];
        had.push(protection("memory set aside", set_aside, "stores may fail under pressure"));
        had.push(outside());
        Protections {
            had,
            locked: locked.is_ok(),
            score: scored.ok().and(score),
            reserve: Arc::new(Mutex::new(reserve)),
        }
    }

    /// What was tried, and what became of it.
    #[must_use]
    pub fn list(&self) -> &[Protection] {
        &self.had
    }

    /// The frames that are set aside.
    #[must_use]
    pub fn reserve(&self) -> &Arc<Mutex<Reserve>> {
        &self.reserve
    }
}

impl Drop for Protections {
    fn drop(&mut self) {
        if self.locked {
            host::unlock_memory();
        }
        if let Some(score) = self.score {
            let _ = host::set_oom_score(score);
        }
    }
}

/// Is the daemon outside every memory limit?
fn outside() -> Protection {
    let limits = limits::own();
    let text = match limits.is_empty() {
        true => "no limit on the daemon".to_string(),
        false => {
            let limits: Vec<String> = limits.iter().map(ToString::to_string).collect();
            format!(
                "the daemon itself is limited: {}; at the limit it waits for memory that only it \
                 could free",
                limits.join(", ")
            )
        }
    };
    Protection { name: "outside memory limits".into(), had: limits.is_empty(), text }
}
