//! The table of schemes: the lines and locks that an engine uses to store or load a page.
//!
//! Everything else (codecs, copying, a CPU's own counters) is private work, of which only the time
//! counts. Every entry names the file it comes from.

use crate::sim::lock::{LockStep, Manner, Mode};
use crate::sim::machine::Step;

/// The way in which a scheme guards slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// One lock for all slots, in a line of its own.
    Global(Manner),
    /// A lock in each slot, or next to it in the same line.
    Each(Manner),
    /// No lock: readers enter, writers swap, and a replaced object waits in a queue of its CPU.
    Published,
}

/// A slot scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheme {
    /// Its name, as in `designs::SLOT_SCHEMES`.
    pub name: &'static str,
    /// Bytes of a slot with its lock. They tell how many slots share a line.
    pub bytes: usize,
    /// Its guard.
    pub guard: Guard,
}

/// The schemes. The others are compared with the first.
pub const SCHEMES: [Scheme; 6] = [
    // crates/zram/src/slots/global_rw_lock.rs: `lock` is cache-padded; a load reads under it, an
    // update writes one word under it. crates/sync/src/shared.rs: the steps of taking it.
    Scheme { name: "global-rwlock", bytes: 8, guard: Guard::Global(Manner::Shared) },
    // crates/zram/src/slots/cas.rs: load and update own the word; crates/sync/src/owned.rs.
    Scheme { name: "cas", bytes: 8, guard: Guard::Each(Manner::Owned) },
    // crates/zram/src/slots/lock_beside.rs: the word and its lock are 16 bytes side by side.
    Scheme { name: "spinlock", bytes: 16, guard: Guard::Each(Manner::WaitQueues) },
    // lock_beside.rs with crates/sync/src/shared.rs: readers of one slot come in together.
    Scheme { name: "rwlock", bytes: 16, guard: Guard::Each(Manner::Shared) },
    // crates/zram/src/slots/bit_lock.rs: the lock is a bit of the word; crates/sync/src/bitlock.rs.
    Scheme { name: "bit-spinlock", bytes: 8, guard: Guard::Each(Manner::WaitQueues) },
    // crates/zram/src/slots/epoch.rs; crates/sync/src/{reader_epochs,retired}.rs: see
    // `reader_epochs.rs` here.
    Scheme { name: "epoch", bytes: 8, guard: Guard::Published },
];

/// Number of wait queues for slots: `QUEUES` in crates/sync/src/bitlock.rs.
pub const QUEUES: usize = 32;
/// Bytes of a line.
pub const LINE: usize = 64;

/// The policy by which threads get a stream to compress with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamPolicy {
    /// One for each CPU, with a lock that no other thread wants: crates/zcomp/src/stream.rs,
    /// `PerCpuStreams`.
    PerCpu,
    /// One, behind a mutex that spins on its owner (Linux 3.15, max_comp_streams 1).
    Single,
    /// This many, in an idle list with a lock and a queue (Linux 3.15, max_comp_streams above 1).
    Multi(u32),
}

impl StreamPolicy {
    /// The name of the policy.
    pub fn name(self) -> String {
        match self {
            StreamPolicy::PerCpu => "percpu".to_owned(),
            StreamPolicy::Single => "single".to_owned(),
            StreamPolicy::Multi(streams) => format!("multi:{streams}"),
        }
    }

    /// The way in which threads wait for its lock, if it has one.
    pub fn manner(self) -> Option<Manner> {
        match self {
            StreamPolicy::PerCpu => None,
            StreamPolicy::Single => Some(Manner::SpinsOnOwner),
            StreamPolicy::Multi(streams) => Some(Manner::Permits(streams)),
        }
    }
}

/// The operation of the threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Store a page.
    Store,
    /// Load a page.
    Load,
    /// Stores and loads, equally often.
    Mix,
}

impl Op {
    /// All operations.
    pub const ALL: [Op; 3] = [Op::Store, Op::Load, Op::Mix];

    /// The name of the operation.
    pub fn name(self) -> &'static str {
        match self {
            Op::Store => "store",
            Op::Load => "load",
            Op::Mix => "mix",
        }
    }
}

/// The contents of the pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Content {
    /// The same eight bytes repeated: the slot holds them (crates/zram/src/filled.rs).
    SameFilled,
    /// Pages to compress. Each becomes an object of a pool.
    Pages,
}

impl Content {
    /// Both contents.
    pub const ALL: [Content; 2] = [Content::SameFilled, Content::Pages];

    /// The name of the contents.
    pub fn name(self) -> &'static str {
        match self {
            Content::SameFilled => "same-filled",
            Content::Pages => "pages",
        }
    }
}

/// The slots that the threads work on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Workload {
    /// Many pages: two threads rarely want the same slot.
    Spread,
    /// Eight pages: all threads want the same slots.
    Eight,
}

impl Workload {
    /// Both workloads.
    pub const ALL: [Workload; 2] = [Workload::Spread, Workload::Eight];

    /// The name of the workload.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Spread => "spread",
            Workload::Eight => "eight",
        }
    }

    /// Its number of slots.
    pub fn slots(self) -> usize {
        match self {
            Workload::Spread => 4096,
            Workload::Eight => 8,
        }
    }
}

/// A situation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The slot scheme.
    pub scheme: Scheme,
    /// The slots that the threads work on.
    pub workload: Workload,
    /// The contents of the pages.
    pub content: Content,
    /// The operation of the threads.
    pub op: Op,
    /// Whether all CPUs share the counters.
    pub shared_counters: bool,
    /// The policy by which threads get a stream.
    pub streams: StreamPolicy,
}

impl Cell {
    /// All situations of usual counters and streams.
    pub fn plain_ones() -> Vec<Cell> {
        let (shared_counters, streams) = (false, StreamPolicy::PerCpu);
        let mut cells = Vec::new();
        for workload in Workload::ALL {
            for content in Content::ALL {
                for op in Op::ALL {
                    cells.extend(SCHEMES.map(|scheme| Cell {
                        scheme,
                        workload,
                        content,
                        op,
                        shared_counters,
                        streams,
                    }));
                }
            }
        }
        cells
    }

    /// The same situation with usual counters and streams.
    pub fn plain(&self) -> Cell {
        Cell { shared_counters: false, streams: StreamPolicy::PerCpu, ..*self }
    }
}

/// The step that takes a lock.
pub fn take(lock: usize, mode: Mode) -> Step {
    Step::Lock(LockStep::Take(lock, mode))
}

/// The step that leaves a lock.
pub fn give(lock: usize, mode: Mode) -> Step {
    Step::Lock(LockStep::Give(lock, mode))
}
