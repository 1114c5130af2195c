//! The situations: what guards the slots, where threads find a stream, what they do.

use clap::ValueEnum;
use serde::Serialize;

/// The way in which a scheme guards slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// One reader-writer lock for all slots, in a line of its own.
    Global,
    /// A lock in each slot, or next to it in the same line. Whether readers share it, and whether
    /// those that wait sleep.
    Each { shares: bool, sleeps: bool },
    /// No lock: readers enter, writers swap, and a replaced object waits until readers have left.
    Published,
}

/// A slot scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheme {
    /// Its name, as in `designs::SLOT_SCHEMES`.
    pub name: &'static str,
    /// Bytes of a slot with its lock. They tell how many slots share a line.
    pub bytes: usize,
    pub guard: Guard,
}

const fn scheme(name: &'static str, bytes: usize, guard: Guard) -> Scheme {
    Scheme { name, bytes, guard }
}

/// The schemes. The others are compared with the first.
pub const SCHEMES: [Scheme; 6] = [
    scheme("global-rwlock", 8, Guard::Global),
    scheme("cas", 8, Guard::Each { shares: false, sleeps: false }),
    scheme("spinlock", 16, Guard::Each { shares: false, sleeps: true }),
    scheme("rwlock", 16, Guard::Each { shares: true, sleeps: true }),
    scheme("bit-spinlock", 8, Guard::Each { shares: false, sleeps: true }),
    scheme("epoch", 8, Guard::Published),
];

/// Bytes of a line.
pub const LINE: usize = 64;

/// The policy by which threads get a stream to compress with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streams {
    /// One for each CPU, which no other thread wants.
    PerCpu,
    /// One (Linux 3.15, max_comp_streams 1).
    Single,
    /// This many (Linux 3.15, max_comp_streams above 1).
    Multi(u32),
}

impl Streams {
    /// The name of the policy.
    pub fn name(self) -> String {
        match self {
            Streams::PerCpu => "percpu".to_owned(),
            Streams::Single => "single".to_owned(),
            Streams::Multi(streams) => format!("multi:{streams}"),
        }
    }
}

/// The operation of the threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    Store,
    Load,
    /// Stores and loads, equally often.
    Mix,
}

impl Op {
    /// Whether the next operation is a store.
    pub fn stores(self, random: &mut fastrand::Rng) -> bool {
        self == Op::Store || self == Op::Mix && random.bool()
    }
}

/// The contents of the pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// The same eight bytes repeated: the slot holds them.
    SameFilled,
    /// Pages to compress. Each becomes an object of a pool.
    Pages,
}

/// The slots that the threads work on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Many pages: two threads rarely want the same slot.
    Spread,
    /// Eight pages: all threads want the same slots.
    Eight,
}

impl Workload {
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
    pub scheme: Scheme,
    pub workload: Workload,
    pub content: Content,
    pub op: Op,
    pub streams: Streams,
}

impl Cell {
    /// All situations: every scheme with everything, and other streams where they are wanted.
    pub fn all() -> Vec<Cell> {
        let (streams, mut cells) = (Streams::PerCpu, Vec::new());
        for &workload in Workload::value_variants() {
            for &content in Content::value_variants() {
                for &op in Op::value_variants() {
                    let cell = |scheme| Cell { scheme, workload, content, op, streams };
                    cells.extend(SCHEMES.map(cell));
                }
            }
        }
        // The scheme without locks, so that the streams show.
        let of = |cell: &&Cell| {
            (cell.scheme.name, cell.workload) == ("epoch", Workload::Spread)
                && (cell.content, cell.op) == (Content::Pages, Op::Store)
        };
        if let Some(cell) = cells.iter().find(of).copied() {
            let policies = [2, 4, 16].map(Streams::Multi);
            let policies = [Streams::Single].into_iter().chain(policies);
            cells.extend(policies.map(|streams| Cell { streams, ..cell }));
        }
        cells
    }
}
