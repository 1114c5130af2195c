//! Reader epochs: readers announce that they read, and a changer waits until all readers that may
//! still see the old state have left.
//!
//! The method is that of sleepable RCU (McKenney, "Sleepable RCU", LWN 202847): two counters per
//! CPU, and a phase that selects one of them. A changer flips the phase twice, and each time waits
//! for the counter left behind. The second flip is for a reader that read the phase, slept through
//! the first flip, and only then counted itself.

use units::Cpu;

use crate::atomic::{AtomicU32, Ordering, barrier_after_rmw, fence, spin_hint};
use crate::{CachePadded, Mutex, PerCpu, park};

/// Readers of one structure, counted per CPU.
pub struct ReaderEpochs {
    phase: CachePadded<AtomicU32>,
    /// Written only under the lock `turn`. The phase equals the epoch, or is one more while readers
    /// of the phase before have not been seen to leave.
    epoch: CachePadded<AtomicU32>,
    readers: PerCpu<[AtomicU32; 2]>,
    turn: Mutex<()>,
}

/// A reader. Data that was reachable when the reader entered stays until the reader is dropped.
#[must_use = "what was found stays only while the reader lives"]
pub struct Reader<'a> {
    counter: &'a AtomicU32,
    pub(crate) epochs: &'a ReaderEpochs,
}

impl ReaderEpochs {
    /// Makes epochs without readers.
    #[must_use]
    pub fn new(cpus: usize) -> ReaderEpochs {
        let zeroes = |_| [AtomicU32::new(0), AtomicU32::new(0)];
        ReaderEpochs {
            phase: CachePadded::new(AtomicU32::new(0)),
            epoch: CachePadded::new(AtomicU32::new(0)),
            readers: PerCpu::new(cpus, zeroes),
            turn: Mutex::new(()),
        }
    }

    /// Enters a reader. Never waits; readers nest.
    #[inline]
    pub fn enter(&self, cpu: Cpu) -> Reader<'_> {
        let phase = self.phase.load(Ordering::Relaxed) & 1;
        let counter = &self.readers.get(cpu)[phase as usize];
        // The barrier pairs with the fences in `wait_for_readers`: either the changer counts this
        // reader, or this reader sees what the changer published before it counted.
        counter.fetch_add(1, Ordering::Relaxed);
        barrier_after_rmw();
        Reader { counter, epochs: self }
    }

    /// Waits until every reader from before this call has left. Data that was unpublished before
    /// the call cannot be reached by any thread after it. The calling thread must not be a reader.
    /// Readers should leave soon: the wait spins and yields. After that it sleeps for moments, and
    /// no reader wakes it.
    pub fn wait_for_readers(&self) {
        let _turn = self.turn.lock();
        for _ in 0..2 {
            let left_behind = self.flip();
            let mut spins = 0u32;
            while !self.have_left(left_behind) {
                spins = spins.saturating_add(1);
                if spins.is_multiple_of(64) { park::nap(spins / 64) } else { spin_hint() }
            }
            self.count_epoch();
        }
        // The fence pairs with the barrier in `enter`: later readers see all earlier changes.
        fence(Ordering::SeqCst);
    }

    /// Checks once whether the readers left behind have gone, and if so begins the next epoch.
    /// Never waits. Does nothing while another thread waits or checks.
    pub fn try_flip(&self) {
        if let Some(_turn) = self.turn.try_lock() {
            let left_behind = self.flip();
            if self.have_left(left_behind) {
                self.count_epoch();
            }
        }
    }

    /// The number of times that the readers of a phase were seen to have left. The phases are
    /// checked in turn. So after two checks that began after some instant, every reader that
    /// entered before that instant has left. Wraps.
    #[inline]
    #[must_use]
    pub fn epoch(&self) -> u32 {
        // Acquire pairs with the Release in `count_epoch`: the reads are finished.
        self.epoch.load(Ordering::Acquire)
    }

    /// Flips the phase, unless it was flipped already and its readers have not been seen to leave
    /// yet. Returns the phase left behind. Called under the lock `turn`.
    fn flip(&self) -> u32 {
        // The fence pairs with the barrier in `enter`.
        fence(Ordering::SeqCst);
        let epoch = self.epoch.load(Ordering::Relaxed);
        if self.phase.load(Ordering::Relaxed) == epoch {
            self.phase.store(epoch.wrapping_add(1), Ordering::Relaxed);
            // As above: a reader that does not see the new phase is counted in the old one.
            fence(Ordering::SeqCst);
        }
        epoch & 1
    }

    fn have_left(&self, phase: u32) -> bool {
        // Acquire pairs with the Release in `Reader::drop`.
        self.readers.iter().all(|cpu| cpu[phase as usize].load(Ordering::Acquire) == 0)
    }

    fn count_epoch(&self) {
        let next = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        // Release pairs with the Acquire in `epoch`.
        self.epoch.store(next, Ordering::Release);
    }
}

impl Drop for Reader<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `wait_for_readers`.
        self.counter.fetch_sub(1, Ordering::Release);
    }
}
