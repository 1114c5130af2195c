//! The seam between a zone's locks and a lab that wants to know what they cost.
//!
//! A zone is generic over its trace. That of products is `()`: it reads no clock, and what it is
//! told is gone when the code is compiled. A lab brings one with a clock, which this crate
//! does not have.

use units::Cpu;

/// What of a zone a thread takes hold of, alone or beside others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockClass {
    /// The zone's lock, beside others who hold it this way.
    Read,
    /// The zone's lock, alone. The only way to hold a spin lock.
    Write,
    /// The head of a list of free blocks, which those inside `Read` take hold of in turn.
    Head,
    /// The lock of a range of frames, within which one thread merges at a time.
    Range,
}

impl LockClass {
    /// Every lock class, in the order of their numbers.
    pub const ALL: [LockClass; 4] =
        [LockClass::Read, LockClass::Write, LockClass::Head, LockClass::Range];

    /// What it is called in tables.
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

/// What a lab is told about. Every method may be called by any number of threads at once.
///
/// A zone calls [`LockTrace::took`] each time it has taken a lock and [`LockTrace::left`] when it
/// lets go. It reads the clock only if `WATCHES`, and before a lock only if the first try fails: a
/// thread that does not wait does not pay for measuring how long it waits.
pub trait LockTrace: Send + Sync + 'static {
    /// Whether anybody listens. If not, no method is called.
    const WATCHES: bool;

    /// The time, in ticks of any length; per thread it never goes back.
    fn now(&self) -> u64;

    /// Took a lock of `class` after waiting for `waited` ticks; 0 if it was free at the first try.
    fn took(&self, cpu: Cpu, class: LockClass, waited: u64);

    /// Lets go of a lock of `class` after `held` ticks, during which `pages` frames went in or out.
    fn left(&self, cpu: Cpu, class: LockClass, held: u64, pages: u64);
}

/// Nobody listens.
impl LockTrace for () {
    const WATCHES: bool = false;

    fn now(&self) -> u64 {
        0
    }

    fn took(&self, _: Cpu, _: LockClass, _: u64) {}

    fn left(&self, _: Cpu, _: LockClass, _: u64, _: u64) {}
}
