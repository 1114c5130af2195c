//! Pins: readers say that they are reading, and a changer waits until all who might still see
//! the old state have left.
//!
//! The manner is that of sleepable RCU (McKenney, "Sleepable RCU", LWN 202847): two counters per
//! lane, a phase that says which to use, and a changer that turns the phase twice and waits for
//! the counter left behind each time. The second turn is for a reader who read the phase, slept
//! through the first turn, and only then counted itself.

use units::Lane;

use crate::atomic::{AtomicU32, Ordering, barrier_after_rmw, fence, spin_hint};
use crate::{CachePadded, Mutex, PerLane};

/// Readers of one structure, counted per lane.
pub struct Pins {
    phase: CachePadded<AtomicU32>,
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
            // The fence pairs with the barrier in `pin`.
            fence(Ordering::SeqCst);
            let left_behind = self.phase.fetch_add(1, Ordering::Relaxed) & 1;
            fence(Ordering::SeqCst);
            let mut spins = 0u32;
            for lane in self.readers.iter() {
                // Acquire pairs with the Release in `Pin::drop`.
                while lane[left_behind as usize].load(Ordering::Acquire) != 0 {
                    spins += 1;
                    if spins.is_multiple_of(64) {
                        yield_now();
                    } else {
                        spin_hint();
                    }
                }
            }
        }
        // The fence pairs with the barrier in `pin`: readers after this see all before it.
        fence(Ordering::SeqCst);
    }
}

fn yield_now() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `wait_for_readers`.
        self.counter.fetch_sub(1, Ordering::Release);
    }
}
