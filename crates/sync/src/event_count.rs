//! An event count: threads wait on it for a change.
//!
//! A thread takes a ticket, checks for what it needs, and waits until the event is notified after
//! the ticket was taken. So a notification between the check and the wait is never missed.

use crate::atomic::{AtomicU32, Ordering, barrier_after_rmw, spin_hint};
use crate::park;

/// Notified when the thing that threads wait for may be there.
#[derive(Default)]
pub struct EventCount {
    rings: AtomicU32,
    sleepers: AtomicU32,
}

/// The notifications that a thread has seen already.
#[derive(Clone, Copy)]
#[must_use = "look again for what is wanted, then wait"]
pub struct Ticket(u32);

impl EventCount {
    /// Takes a ticket. The caller checks after this call, and calls [`EventCount::wait`] if the
    /// check fails.
    pub fn ticket(&self) -> Ticket {
        // Acquire pairs with the Release in `ring`: a thread with a new ticket finds the change.
        Ticket(self.rings.load(Ordering::Acquire))
    }

    /// Waits until the event is notified after `ticket` was taken: spins for a moment, then sleeps.
    /// May return early; the caller checks again.
    #[cold]
    pub fn wait(&self, ticket: Ticket) {
        for _ in 0..park::SPINS {
            if self.rings.load(Ordering::Relaxed) != ticket.0 {
                return;
            }
            spin_hint();
        }
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Pairs with the barrier in `ring`: either the notifier counts this sleeper, or this thread
        // sees the notification and does not sleep.
        barrier_after_rmw();
        park::wait(&self.rings, ticket.0);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notifies the event for one of the waiting threads.
    pub fn notify_one(&self) {
        if self.ring() {
            park::wake_one(&self.rings);
        }
    }

    /// Notifies the event for all waiting threads.
    pub fn notify_all(&self) {
        if self.ring() {
            park::wake_all(&self.rings);
        }
    }

    /// Counts a notification, and returns whether a thread sleeps.
    fn ring(&self) -> bool {
        // Release pairs with the Acquire in `ticket`.
        self.rings.fetch_add(1, Ordering::Release);
        // Pairs with the barrier in `wait`.
        barrier_after_rmw();
        self.sleepers.load(Ordering::Relaxed) > 0
    }
}
