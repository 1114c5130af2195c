//! Protections that let a daemon serve swap space while memory is out.
//!
//! The threads that serve a swap device must not wait for memory: the kernel waits for them. So all
//! memory they touch is present and locked before the kernel swaps to the device:
//!
//! - frames for objects, entries and nodes of the index: a [helper](super::helpers) thread provides
//!   them ahead of their use. A page that comes too early is refused at once, or written through;
//! - code, data, heap, stacks and buffers: what is mapped after the memory is locked is in memory
//!   from the start. The rest is faulted in ([`make_resident`]) before the kernel swaps;
//! - kernel memory: ublk needs none for a request ([`super::served`]). FUSE, loop devices and
//!   io_uring need some; with `PR_SET_IO_FLUSHER` the kernel starts no I/O to find it.

use control::{ControlError, Errno};
use host::effective_user;

use crate::failure::failed;

use super::awake::Awake;
use super::group::{self, OwnGroup};
use super::report::{Protection, protection};
use super::setting::Setting;

/// Whether the kernel moves locked memory. It does not as long as a daemon has a swap device.
const COMPACTED: &str = "/proc/sys/vm/compact_unevictable_allowed";
/// Its name in /run.
const COMPACTED_NAME: &str = "compact-unevictable-allowed";

/// The `oom_score_adj` of a process that is never ended because memory is out.
pub const NEVER: i32 = -1000;

/// The protections, for as long as this lives. A drop restores the earlier state of the process.
pub struct Protections {
    had: Vec<Protection>,
    locked: bool,
    score: Option<i32>,
    _in_place: Option<Setting>,
    /// Its programs are in the group, which is removed once nobody is.
    awake: Awake,
    _group: OwnGroup,
}

/// Sets `PR_SET_IO_FLUSHER` for the whole process: the kernel must not do I/O to find memory for
/// threads that serve I/O. Call it before the process starts a thread. The result is checked later.
pub fn begin() {
    if effective_user() == 0 {
        let _ = host::set_io_flusher(true);
    }
}

/// Makes the calling thread run as soon as it has work. A thread calls it before it serves pages or
/// provides memory for them, and before it gives up its privileges. Whether this is allowed was
/// tested before.
pub fn begin_to_serve() {
    let _ = host::set_real_time();
}

/// Faults in everything that is mapped now: code, data, heap. [`Protections::take`] reports what it
/// could not fault in.
pub fn make_resident() {
    if let Err(error) = host::make_resident() {
        tracing::debug!("not all of the program is in memory: {error}");
    }
}

/// Has the setting of the kernel as it was, if a killed process left it changed.
pub(super) fn end_left() {
    Setting::restore(COMPACTED, COMPACTED_NAME);
}

/// Readies a process that has to serve swap space on after another one died, before it waits for
/// any memory: what it needs must not go to that swap space. [`Protections::take`] tries the same
/// again and tells what is missing.
pub fn be_ready() {
    let _ = host::set_oom_score(NEVER);
    let ready = host::lock_memory().and_then(|()| host::make_resident());
    if let Err(error) = ready {
        tracing::debug!("not all of the program is in memory: {error}");
    }
}

impl Protections {
    /// Tries every protection, except memory that is provided ahead: that needs a cache first.
    #[must_use]
    pub fn take() -> Protections {
        let locked = host::lock_memory().map_err(|e| failed("memory cannot be locked", &e));
        let resident = locked.clone().and_then(|()| {
            host::make_resident().map_err(|e| failed("the program cannot be had in memory", &e))
        });
        let score = host::oom_score().ok();
        let scored = host::set_oom_score(NEVER)
            .map_err(|e| failed("oom_score_adj cannot be set to -1000", &e));
        let kept = Setting::keep(COMPACTED, COMPACTED_NAME, "0");
        let is_kept = kept.as_ref().map(drop).map_err(Clone::clone);
        let group = group::own_group();
        let awake = Awake::keep();
        let had = vec![
            protection(
                "memory locked",
                resident.map(|()| "mlockall, all of the program in memory".to_string()),
                "pages of the daemon may have to be read or swapped in while it serves the device \
                 they are on, which then hangs; it needs CAP_IPC_LOCK and Linux 5.14",
            ),
            protection(
                "no I/O for memory",
                flusher(),
                "the kernel may wait for the daemon while it looks for memory for the daemon; it \
                 needs CAP_SYS_RESOURCE and Linux 5.6",
            ),
            protection(
                "not ended when memory is out",
                scored.clone().map(|()| "oom_score_adj -1000".to_string()),
                "the kernel may end the daemon when memory is out, and with it everything that \
                 is swapped out; it needs CAP_SYS_RESOURCE",
            ),
            protection(
                "memory not moved",
                is_kept.map(|()| "vm.compact_unevictable_allowed 0".to_string()),
                "the kernel may move pages of the daemon about, which then waits for a moment; \
                 set vm.compact_unevictable_allowed to 0",
            ),
            protection(
                "served at once",
                real_time(),
                "under pressure the daemon waits for a CPU behind the programs that need memory; \
                 it needs CAP_SYS_NICE",
            ),
            files(),
            group.protection().clone(),
            awake.protection(),
        ];
        let score = scored.ok().and(score);
        let _in_place = kept.ok().flatten();
        Protections { had, locked: locked.is_ok(), score, _in_place, _group: group, awake }
    }

    /// Notes whether memory is provided ahead of its use.
    pub fn note_memory(&mut self, is_ahead: bool) {
        let tried = match is_ahead {
            true => Ok("a headroom of memory is kept ready".to_string()),
            false => Err(ControlError::new(
                Errno::ENOTSUP,
                "this design of the page allocator has memory come with its use",
            )),
        };
        self.had.push(protection("memory ahead of use", tried, "stores may wait for memory"));
    }

    /// Adds a protection that other code has set up.
    pub fn note(&mut self, protection: Protection) {
        self.had.push(protection);
    }

    /// The protections that were tried, and whether they are in force.
    #[must_use]
    pub fn list(&self) -> Vec<Protection> {
        let mut had = self.had.clone();
        // It may have come since.
        let awake = self.awake.protection();
        had.iter_mut().filter(|it| it.name == awake.name).for_each(|it| *it = awake.clone());
        had
    }
}

#[cfg(test)]
impl Protections {
    /// These two alone.
    pub(super) fn of(group: OwnGroup, awake: Awake) -> Protections {
        let (had, locked, score, _in_place) = (Vec::new(), false, None, None);
        Protections { had, locked, score, _in_place, awake, _group: group }
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

fn flusher() -> Result<String, ControlError> {
    if host::is_io_flusher() {
        return Ok("PR_SET_IO_FLUSHER".to_string());
    }
    host::set_io_flusher(true).map_err(|e| failed("PR_SET_IO_FLUSHER was refused", &e))?;
    Err(ControlError::new(Errno::EPERM, "PR_SET_IO_FLUSHER came after threads were started"))
}

/// Tests real-time priority on a thread of its own: the calling thread keeps its priority.
fn real_time() -> Result<String, ControlError> {
    let thread = std::thread::Builder::new().name("sandbox-trial".into());
    // Its stack is locked memory, which the C library keeps for the next thread.
    let thread = thread.stack_size(host::SERVING_STACK);
    let tried = thread
        .spawn(host::set_real_time)
        .and_then(|thread| thread.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into())));
    tried
        .map(|()| "real-time priority".to_string())
        .map_err(|e| failed("real-time priority was refused", &e))
}

/// Reports whether the daemon is outside every memory limit.
fn files() -> Protection {
    let limits = host::group_limits();
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
