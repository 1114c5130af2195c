//! The seam between a zone's locks and a laboratory that wants to know what they cost.
//!
//! A zone is generic over its trace. That of products is `()`: it reads no clock, and what it is
//! told is gone when the code is compiled. A laboratory brings one with a clock, which this crate
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

/// What a laboratory is told about. Every method may be called by any number of threads at once.
///
/// A zone calls [`LockTrace::took`] once each time it has come through a lock class and
/// [`LockTrace::left`] once when it lets go; it asks for the time only if `WATCHES`, and takes the
/// first reading only when the lock class was not open at the first try, so that who does not wait
/// pays for no clock while waiting.
pub trait LockTrace: Send + Sync + 'static {
    /// Whether anybody listens. If not, no method is called.
    const WATCHES: bool;

    /// The time, in ticks of any length; per thread it never goes back.
    fn now(&self) -> u64;

    /// Came through `class` after waiting for `waited` ticks; 0 if it was open at the first try.
    fn took(&self, cpu: Cpu, class: LockClass, waited: u64);

    /// Lets go of `class` after `held` ticks, during which `pages` frames went in or out.
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
