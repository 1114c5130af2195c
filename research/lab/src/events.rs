//! What both simulators stand on: events in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events to come. Those of one instant happen in the order in which they were planned, so that a
/// simulation depends on nothing but its seed.
pub struct Events<T> {
    /// Bits of a time that is not negative, which are in its order; the number of the event; what
    /// happens.
    queue: BinaryHeap<Reverse<(u64, u64, T)>>,
    planned: u64,
}

impl<T: Ord> Events<T> {
    /// No events.
    pub fn new() -> Events<T> {
        Events { queue: BinaryHeap::new(), planned: 0 }
    }

    /// Plans an event at `time`, in nanoseconds.
    pub fn plan(&mut self, time: f64, event: T) {
        self.queue.push(Reverse((time.to_bits(), self.planned, event)));
        self.planned += 1;
    }

    /// Takes the next event, with its time.
    pub fn next(&mut self) -> Option<(f64, T)> {
        self.queue.pop().map(|Reverse((time, _, event))| (f64::from_bits(time), event))
    }
}
