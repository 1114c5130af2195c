//! Pins: readers say that they are reading, and a changer waits until all who might still see
//! the old state have left.
//!
//! The manner is that of sleepable RCU (McKenney, "Sleepable RCU", LWN 202847): two counters per
//! lane, a phase that says which to use, and a changer that turns the phase twice and waits for
//! the counter left behind each time. The second turn is for a reader who read the phase, slept
//! through the first turn, and only then counted itself.

use units::Lane;

use crate::atomic::{AtomicU32, Ordering, barrier_after_rmw, fence, spin_hint};
use crate::{CachePadded, Mutex, PerLane, park};

/// Readers of one structure, counted per lane.
pub struct Pins {
    phase: CachePadded<AtomicU32>,
    /// Written under the lock of the turn alone. The phase is this, or one more while readers of
    /// the phase before have not been seen to leave.
    epoch: CachePadded<AtomicU32>,
    readers: PerLane<[AtomicU32; 2]>,
    turn: Mutex<()>,
}

/// A reader. What was reachable when it began stays until it is dropped.
#[must_use = "a pin protects only while it lives"]
pub struct Pin<'a> {
    counter: &'a AtomicU32,
}

impl Pins {
    /// No readers yet.
    #[must_use]
    pub fn new(lanes: usize) -> Pins {
        let zeroes = |_| [AtomicU32::new(0), AtomicU32::new(0)];
        Pins {
            phase: CachePadded::new(AtomicU32::new(0)),
            epoch: CachePadded::new(AtomicU32::new(0)),
            readers: PerLane::new(lanes, zeroes),
            turn: Mutex::new(()),
        }
    }

    /// Begins to read. Never waits; pins nest.
    #[inline]
    pub fn pin(&self, lane: Lane) -> Pin<'_> {
        let phase = self.phase.load(Ordering::Relaxed) & 1;
        let counter = &self.readers.get(lane)[phase as usize];
        // The barrier pairs with the fences in `wait_for_readers`: either the changer counts this
        // reader, or this reader sees what the changer published before it counted.
        counter.fetch_add(1, Ordering::Relaxed);
        barrier_after_rmw();
        Pin { counter }
    }

    /// Waits until every pin taken before this call has been dropped. What was unpublished before
    /// the call can be reached by nobody after it. Must not be called by a thread that holds a pin.
    pub fn wait_for_readers(&self) {
        let _turn = self.turn.lock();
        for _ in 0..2 {
            let left_behind = self.turn_over();
            let mut spins = 0u32;
            while !self.have_left(left_behind) {
                spins += 1;
                if spins.is_multiple_of(64) { park::let_others_run() } else { spin_hint() }
            }
            self.count_epoch();
        }
        // The fence pairs with the barrier in `pin`: readers after this see all before it.
        fence(Ordering::SeqCst);
    }

    /// Looks once whether the readers left behind have gone, and if so lets the next epoch begin.
    /// Never waits; does nothing while somebody else is at it.
    pub fn try_turn(&self) {
        if let Some(_turn) = self.turn.try_lock() {
            let left_behind = self.turn_over();
            if self.have_left(left_behind) {
                self.count_epoch();
            }
        }
    }

    /// How often the readers of one phase or the other were seen to have left. The phases are
    /// looked at in turn, so after two times that began after some instant, every pin taken before
    /// it has been dropped. Wraps.
    #[inline]
    #[must_use]
    pub fn epoch(&self) -> u32 {
        // Acquire pairs with the Release in `count_epoch`: what the readers did is done.
        self.epoch.load(Ordering::Acquire)
    }

    /// Turns the phase, unless that was done and its readers have not been seen to leave yet.
    /// Returns the phase left behind. Under the turn's lock.
    fn turn_over(&self) -> u32 {
        // The fence pairs with the barrier in `pin`.
        fence(Ordering::SeqCst);
        let epoch = self.epoch.load(Ordering::Relaxed);
        if self.phase.load(Ordering::Relaxed) == epoch {
            self.phase.store(epoch.wrapping_add(1), Ordering::Relaxed);
            // As above: who does not see the new phase is counted in the old one.
            fence(Ordering::SeqCst);
        }
        epoch & 1
    }

    fn have_left(&self, phase: u32) -> bool {
        // Acquire pairs with the Release in `Pin::drop`.
        self.readers.iter().all(|lane| lane[phase as usize].load(Ordering::Acquire) == 0)
    }

    fn count_epoch(&self) {
        let next = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        // Release pairs with the Acquire in `epoch`.
        self.epoch.store(next, Ordering::Release);
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `wait_for_readers`.
        self.counter.fetch_sub(1, Ordering::Release);
    }
}
