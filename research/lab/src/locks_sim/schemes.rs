//! What an engine does with lines and locks when it stores or loads a page: the table of schemes.
//!
//! What is not said here (codecs, copying, a CPU's own counters) is private work, of which only the
//! time counts. Every fact names the file it is taken from.

use super::lock::{LockStep, Manner, Mode};
use super::machine::Step;

/// How a scheme guards slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// One lock for all slots, in a line of its own.
    Global(Manner),
    /// A lock in each slot, or beside it in the same line.
    Each(Manner),
    /// None: readers enter, writers swap, what was displaced waits in a bag of its CPU.
    Published,
}

/// A scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheme {
    /// Its name, as in `designs::SLOT_SCHEMES`.
    pub name: &'static str,
    /// Bytes of a slot with its lock: how many slots share a line.
    pub bytes: usize,
    /// How slots are guarded.
    pub guard: Guard,
}

/// The schemes; the first is the base that others are compared with.
pub const SCHEMES: [Scheme; 6] = [
    // crates/zram/src/slots/global_rw_lock.rs: `lock` is cache-padded; a load reads under it, an
    // update writes one word under it. crates/sync/src/shared.rs: how it is taken.
    Scheme { name: "global-rwlock", bytes: 8, guard: Guard::Global(Manner::Shared) },
    // crates/zram/src/slots/cas.rs: load and update own the word; crates/sync/src/owned.rs.
    Scheme { name: "cas", bytes: 8, guard: Guard::Each(Manner::Owned) },
    // crates/zram/src/slots/lock_beside.rs: the word and its lock are 16 bytes side by side.
    Scheme { name: "spinlock", bytes: 16, guard: Guard::Each(Manner::WaitQueues) },
    // The same with crates/sync/src/shared.rs: readers of one slot come in together.
    Scheme { name: "rwlock", bytes: 16, guard: Guard::Each(Manner::Shared) },
    // crates/zram/src/slots/bit_lock.rs: the lock is a bit of the word; crates/sync/src/bitlock.rs.
    Scheme { name: "bit-spinlock", bytes: 8, guard: Guard::Each(Manner::WaitQueues) },
    // crates/zram/src/slots/epoch.rs; crates/sync/src/{reader_epochs,retired}.rs: see
    // `reader_epochs.rs` here.
    Scheme { name: "epoch", bytes: 8, guard: Guard::Published },
];

/// Wait queues, by slot: `QUEUES` in crates/sync/src/bitlock.rs.
pub const QUEUES: usize = 32;
/// Bytes of a line.
pub const LINE: usize = 64;

/// How threads come by a stream to compress with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamPolicy {
    /// One for each CPU, with a lock nobody else wants: crates/zcomp/src/stream.rs,
    /// `PerCpuStreams`.
    PerCpu,
    /// One, behind a mutex that spins on its owner (Linux 3.15, max_comp_streams 1).
    Single,
    /// So many, in an idle list behind a lock, and a queue (Linux 3.15, max_comp_streams above 1).
    Multi(u32),
}

impl StreamPolicy {
    /// Its name.
    pub fn name(self) -> String {
        match self {
            StreamPolicy::PerCpu => "percpu".to_owned(),
            StreamPolicy::Single => "single".to_owned(),
            StreamPolicy::Multi(streams) => format!("multi:{streams}"),
        }
    }

    /// How its lock is waited for, if there is one.
    pub fn manner(self) -> Option<Manner> {
        match self {
            StreamPolicy::PerCpu => None,
            StreamPolicy::Single => Some(Manner::SpinsOnOwner),
            StreamPolicy::Multi(streams) => Some(Manner::Permits(streams)),
        }
    }
}

/// What threads do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Store a page.
    Store,
    /// Load a page.
    Load,
    /// One or the other, each as often.
    Mix,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 3] = [Op::Store, Op::Load, Op::Mix];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Op::Store => "store",
            Op::Load => "load",
            Op::Mix => "mix",
        }
    }
}

/// What pages hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Content {
    /// The same eight bytes over and over: the slot says it all (crates/zram/src/filled.rs).
    SameFilled,
    /// Pages to compress, which are objects of a pool.
    Pages,
}

impl Content {
    /// Both.
    pub const ALL: [Content; 2] = [Content::SameFilled, Content::Pages];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Content::SameFilled => "same-filled",
            Content::Pages => "pages",
        }
    }
}

/// Where threads work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Workload {
    /// Many pages: two threads hardly ever want the same slot.
    Spread,
    /// Eight pages: all threads want the same slots.
    Eight,
}

impl Workload {
    /// Both.
    pub const ALL: [Workload; 2] = [Workload::Spread, Workload::Eight];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Spread => "spread",
            Workload::Eight => "eight",
        }
    }

    /// Pages it has.
    pub fn slots(self) -> usize {
        match self {
            Workload::Spread => 4096,
            Workload::Eight => 8,
        }
    }
}

/// Taking a lock.
pub fn take(lock: usize, mode: Mode) -> Step {
    Step::Lock(LockStep::Take(lock, mode))
}

/// Leaving it.
pub fn give(lock: usize, mode: Mode) -> Step {
    Step::Lock(LockStep::Give(lock, mode))
}
