//! What is noted of single calls, besides how long all of them took together.

use pagealloc::Frames;
use units::{Cpu, Frame, Order};

use super::histogram::Histogram;
use super::lock_stat::{LockStat, Phase};
use super::ticks;

/// Notes something of each call.
pub trait Meter: Send {
    /// Calls count from now on, or not.
    fn count(&mut self, _counts: bool) {}

    /// Allocates a frame.
    fn alloc(&mut self, zone: &dyn Frames, cpu: Cpu) -> Option<Frame>;

    /// Frees one.
    fn free(&mut self, zone: &dyn Frames, cpu: Cpu, frame: Frame);
}

/// Nothing: for times of all calls together.
impl Meter for () {
    #[inline]
    fn alloc(&mut self, zone: &dyn Frames, cpu: Cpu) -> Option<Frame> {
        zone.alloc(cpu, Order::ZERO)
    }

    #[inline]
    fn free(&mut self, zone: &dyn Frames, cpu: Cpu, frame: Frame) {
        zone.free(cpu, frame, Order::ZERO);
    }
}

/// How long each call took.
#[derive(Default)]
pub struct Sampler {
    counts: bool,
    /// Allocations.
    pub alloc: Histogram,
    /// Frees.
    pub free: Histogram,
}

impl Meter for Sampler {
    fn count(&mut self, counts: bool) {
        self.counts = counts;
    }

    #[inline]
    fn alloc(&mut self, zone: &dyn Frames, cpu: Cpu) -> Option<Frame> {
        let begun = ticks::now();
        let frame = zone.alloc(cpu, Order::ZERO);
        let taken = ticks::now().saturating_sub(begun);
        if self.counts {
            self.alloc.add(taken);
        }
        frame
    }

    #[inline]
    fn free(&mut self, zone: &dyn Frames, cpu: Cpu, frame: Frame) {
        let begun = ticks::now();
        zone.free(cpu, frame, Order::ZERO);
        let taken = ticks::now().saturating_sub(begun);
        if self.counts {
            self.free.add(taken);
        }
    }
}

/// Tells what listens at the locks what is going on.
pub struct Listener {
    counts: bool,
    lock_stat: LockStat,
}

impl Listener {
    /// Through this lock statistics.
    #[must_use]
    pub fn new(lock_stat: LockStat) -> Listener {
        Listener { counts: false, lock_stat }
    }

    #[inline]
    fn listen(&self, cpu: Cpu, phase: Phase) {
        self.lock_stat.listen(cpu, self.counts.then_some(phase));
    }
}

impl Meter for Listener {
    fn count(&mut self, counts: bool) {
        self.counts = counts;
    }

    #[inline]
    fn alloc(&mut self, zone: &dyn Frames, cpu: Cpu) -> Option<Frame> {
        self.listen(cpu, Phase::Alloc);
        zone.alloc(cpu, Order::ZERO)
    }

    #[inline]
    fn free(&mut self, zone: &dyn Frames, cpu: Cpu, frame: Frame) {
        self.listen(cpu, Phase::Free);
        zone.free(cpu, frame, Order::ZERO);
    }
}
