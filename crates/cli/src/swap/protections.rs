//! What keeps a daemon able to serve swap space while there is no memory.
//!
//! The threads that serve a swap device must not wait for memory: the kernel waits for them. So
//! everything they touch is there and locked before the kernel swaps to it:
//!
//! - frames for what is stored, entries and nodes of the index: a [helper](super::helpers) provides
//!   them ahead of their use; a page that comes too early is refused at once, or written through;
//! - code, data, heap, stacks and buffers: what is mapped once the memory is locked is in memory
//!   from the start, and the rest is faulted in ([`make_resident`]) before the kernel swaps;
//! - in the kernel ublk needs nothing for a request ([`super::served`]); for what FUSE, loop
//!   devices and io_uring take it starts no I/O, by the promise of `PR_SET_IO_FLUSHER`.

use rampack::control::{ControlError, Errno};

use crate::failure::failed;
use crate::sys;

use super::group::{self, OwnGroup};
use super::in_place::InPlace;
use super::limits;
use super::report::{Protection, protection};

/// Never ended because memory is out.
const NEVER: i32 = -1000;

/// Protections as long as it lives; what the process was like before is restored in the end.
pub struct Protections {
    had: Vec<Protection>,
    locked: bool,
    score: Option<i32>,
    _in_place: Option<InPlace>,
    _group: OwnGroup,
}

/// Promises for the whole process, to be called before it starts a thread: the kernel must not do
/// I/O to find memory for those who serve I/O. Whether it took is asked later.
pub fn begin() {
    if sys::effective_user() == 0 {
        let _ = rampack::host::set_io_flusher(true);
    }
}

/// Called by a thread before it serves pages, or provides memory for them: it runs as soon as it
/// has something to do. Whether that can be had was found out before.
pub fn begin_to_serve() {
    let _ = rampack::host::set_real_time();
}

/// Has what is mapped in memory now: code, data, heap. What could not be had is told when the
/// protections are taken.
pub fn make_resident() {
    if let Err(error) = rampack::host::make_resident() {
        tracing::debug!("not all of the program is in memory: {error}");
    }
}

impl Protections {
    /// Tries everything, but for memory that is provided ahead: that needs a cache first.
    #[must_use]
    pub fn take() -> Protections {
        let locked =
            rampack::host::lock_memory().map_err(|e| failed("memory cannot be locked", &e));
        let resident = locked.clone().and_then(|()| {
            rampack::host::make_resident()
                .map_err(|e| failed("the program cannot be had in memory", &e))
        });
        let score = rampack::host::oom_score().ok();
        let scored = rampack::host::set_oom_score(NEVER)
            .map_err(|e| failed("oom_score_adj cannot be set to -1000", &e));
        let kept = InPlace::keep();
        let is_kept = kept.as_ref().map(drop).map_err(Clone::clone);
        let group = group::own_group();
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
        ];
        let score = scored.ok().and(score);
        let _in_place = kept.ok().flatten();
        Protections { had, locked: locked.is_ok(), score, _in_place, _group: group }
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

    /// Notes one that others have seen to.
    pub fn note(&mut self, protection: Protection) {
        self.had.push(protection);
    }

    /// What was tried, and what became of it.
    #[must_use]
    pub fn list(&self) -> &[Protection] {
        &self.had
    }
}

impl Drop for Protections {
    fn drop(&mut self) {
        if self.locked {
            rampack::host::unlock_memory();
        }
        if let Some(score) = self.score {
            let _ = rampack::host::set_oom_score(score);
        }
    }
}

fn flusher() -> Result<String, ControlError> {
    if rampack::host::is_io_flusher() {
        return Ok("PR_SET_IO_FLUSHER".to_string());
    }
    rampack::host::set_io_flusher(true).map_err(|e| failed("PR_SET_IO_FLUSHER was refused", &e))?;
    Err(ControlError::new(Errno::EPERM, "PR_SET_IO_FLUSHER came after threads were started"))
}

/// Tried on a thread of its own: this one stays an ordinary one.
fn real_time() -> Result<String, ControlError> {
    let tried = std::thread::spawn(rampack::host::set_real_time).join();
    let tried = tried.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
    tried
        .map(|()| "real-time priority".to_string())
        .map_err(|e| failed("real-time priority was refused", &e))
}

/// Is the daemon outside every memory limit?
fn files() -> Protection {
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
