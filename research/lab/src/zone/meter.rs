//! The measurements of single calls, besides the total time.

use pagealloc::Frames;
use units::{Cpu, Frame};

use super::histogram::Histogram;
use super::lock_stat::{LockStat, Phase};
use super::ticks;

/// Measures something at each call.
pub trait Meter: Send {
    /// Starts or stops the count of calls.
    fn count(&mut self, _counts: bool) {}

    /// Allocates a frame.
    fn alloc(&mut self, zone: &dyn Frames, cpu: Cpu) -> Option<Frame>;

    /// Frees a frame.
    fn free(&mut self, zone: &dyn Frames, cpu: Cpu, frame: Frame);
}

/// No measurement: for the total time of all calls.
impl Meter for () {
    #[inline]
    fn alloc(&mut self, zone: &dyn Frames, cpu: Cpu) -> Option<Frame> {
        zone.alloc(cpu)
    }

    #[inline]
    fn free(&mut self, zone: &dyn Frames, cpu: Cpu, frame: Frame) {
        zone.free(cpu, frame);
    }
}

/// The time of each call.
#[derive(Default)]
pub struct Sampler {
    counts: bool,
    /// Times of allocations.
    pub alloc: Histogram,
    /// Times of frees.
    pub free: Histogram,
}

impl Meter for Sampler {
    fn count(&mut self, counts: bool) {
        self.counts = counts;
    }

    #[inline]
    fn alloc(&mut self, zone: &dyn Frames, cpu: Cpu) -> Option<Frame> {
        let begun = ticks::now();
        let frame = zone.alloc(cpu);
        let taken = ticks::now().saturating_sub(begun);
        if self.counts {
            self.alloc.add(taken);
        }
        frame
    }

    #[inline]
    fn free(&mut self, zone: &dyn Frames, cpu: Cpu, frame: Frame) {
        let begun = ticks::now();
        zone.free(cpu, frame);
        let taken = ticks::now().saturating_sub(begun);
        if self.counts {
            self.free.add(taken);
        }
    }
}

/// Tells the probe at the locks the phase of each call.
pub struct Listener {
    counts: bool,
    lock_stat: LockStat,
}

impl Listener {
    /// A meter for this lock statistics.
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
        zone.alloc(cpu)
    }

    #[inline]
    fn free(&mut self, zone: &dyn Frames, cpu: Cpu, frame: Frame) {
        self.listen(cpu, Phase::Free);
        zone.free(cpu, frame);
    }
}
