//! The interface between the locks of a zone and a lab that measures their cost.
//!
//! A zone is generic over its trace. The product uses `()`: it reads no clock, and the compiler
//! removes the calls. A lab brings a trace with a clock, which this crate does not have.

use units::Cpu;

/// The locks of a zone, and the ways to hold them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockClass {
    /// The zone's lock, shared with other holders.
    Read,
    /// The zone's lock, exclusive. A spin lock is always held this way.
    Write,
    /// The head of a list of free blocks. Holders of `Read` take it in turn.
    Head,
    /// The lock of a range of frames. Within the range one thread merges at a time.
    Range,
}

impl LockClass {
    /// Every lock class, in the order of their numbers.
    pub const ALL: [LockClass; 4] =
        [LockClass::Read, LockClass::Write, LockClass::Head, LockClass::Range];

    /// The name of the class in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LockClass::Read => "read",
            LockClass::Write => "write",
            LockClass::Head => "head",
            LockClass::Range => "range",
        }
    }
}

/// The events that a lab receives. Any number of threads may call every method at once.
///
/// A zone calls [`LockTrace::took`] each time it has taken a lock and [`LockTrace::left`] when it
/// releases the lock. It reads the clock only if `WATCHES` is set, and before a lock only if the
/// first try fails: a thread that does not wait does not pay for measuring a wait.
pub trait LockTrace: Send + Sync + 'static {
    /// Whether the trace listens. If not, no method is called.
    const WATCHES: bool;

    /// The time in ticks of any length. On each thread it never goes back.
    fn now(&self) -> u64;

    /// The thread took a lock of `class` after it waited `waited` ticks; 0 if the first try
    /// succeeded.
    fn took(&self, cpu: Cpu, class: LockClass, waited: u64);

    /// The thread releases a lock of `class` after `held` ticks, in which `pages` frames went in or
    /// out.
    fn left(&self, cpu: Cpu, class: LockClass, held: u64, pages: u64);
}

/// The trace that does not listen.
impl LockTrace for () {
    const WATCHES: bool = false;

    fn now(&self) -> u64 {
        0
    }

    fn took(&self, _: Cpu, _: LockClass, _: u64) {}

    fn left(&self, _: Cpu, _: LockClass, _: u64, _: u64) {}
}
