//! An event count: something to wait for.
//!
//! Who wants something that is not there takes a ticket, looks again, and waits until the event is
//! rung after the ticket was taken. So a ring between looking and waiting is never missed.

use crate::atomic::{AtomicU32, Ordering, barrier_after_rmw, spin_hint};
use crate::park;

/// Rung when something may be there that others wait for.
#[derive(Default)]
pub struct EventCount {
    rings: AtomicU32,
    sleepers: AtomicU32,
}

/// Says what has been rung already.
#[derive(Clone, Copy)]
#[must_use = "look again for what is wanted, then wait"]
pub struct Ticket(u32);

impl EventCount {
    /// A ticket. What is wanted must be looked for after this; if it is not there,
    /// [`EventCount::wait`].
    pub fn ticket(&self) -> Ticket {
        // Acquire pairs with the Release in `ring`: who has a new ticket finds what was rung for.
        Ticket(self.rings.load(Ordering::Acquire))
    }

    /// Waits until the event is notified, if it was not since `ticket` was taken: spins for a
    /// moment, then sleeps. May return early; callers look again.
    #[cold]
    pub fn wait(&self, ticket: Ticket) {
        for _ in 0..park::SPINS {
            if self.rings.load(Ordering::Relaxed) != ticket.0 {
                return;
            }
            spin_hint();
        }
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Pairs with the barrier in `ring`: either that one counts this sleeper, or this one sees
        // that the event was notified and does not sleep.
        barrier_after_rmw();
        park::wait(&self.rings, ticket.0);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// There is something for one of those who wait.
    pub fn notify_one(&self) {
        if self.ring() {
            park::wake_one(&self.rings);
        }
    }

    /// There is something for everybody who waits.
    pub fn notify_all(&self) {
        if self.ring() {
            park::wake_all(&self.rings);
        }
    }

    /// Tells whether anybody sleeps.
    fn ring(&self) -> bool {
        // Release pairs with the Acquire in `ticket`.
        self.rings.fetch_add(1, Ordering::Release);
        // Pairs with the barrier in `wait`.
        barrier_after_rmw();
        self.sleepers.load(Ordering::Relaxed) > 0
    }
}
