//! A pool of rings: each caller has a ring of its own.

use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use sync::atomic::{AtomicBool, Ordering};

use crate::batch::{Done, Part, Queue};
use crate::plain::Plain;
use crate::ring::Ring;

/// The queue of a caller.
pub(crate) enum Rail {
    // Boxed, because they hold tables for all parts under way.
    Ring(Box<Ring>),
    Plain(Box<Plain>),
}

/// The rings of one file. They are made when needed, up to a limit, and kept.
pub(crate) struct Pool {
    file: Arc<File>,
    most: usize,
    /// There is no io_uring, or the options turn it off.
    without: AtomicBool,
    /// Operations of a ring that is gone may still be carried out.
    pub(crate) lost: Arc<AtomicBool>,
    state: Mutex<State>,
    /// Signalled when a ring is returned or dropped.
    freed: Condvar,
}

struct State {
    free: Vec<Rail>,
    made: usize,
}

impl Pool {
    /// A pool of at most `most` rings (at least one), with the first of them made.
    pub(crate) fn new(file: Arc<File>, most: usize, io_uring: bool) -> Pool {
        let most = most.max(1);
        let state = Mutex::new(State { free: Vec::with_capacity(most), made: 0 });
        let without = AtomicBool::new(!io_uring);
        let (lost, freed) = (Arc::default(), Condvar::new());
        let pool = Pool { file, most, without, lost, state, freed };
        drop(pool.lease());
        pool
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The list and the counter are valid even if a thread panicked under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ring for this thread until the lease is dropped; waits if all rings are taken.
    pub(crate) fn lease(&self) -> Lease<'_> {
        let mut state = self.state();
        loop {
            if let Some(rail) = state.free.pop() {
                return Lease { pool: self, rail: Some(rail), broken: false };
            }
            if state.made < self.most {
                break;
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.made += 1;
        drop(state);
        Lease { pool: self, rail: Some(self.make()), broken: false }
    }

    /// Makes all rings, up to the limit.
    pub(crate) fn make_all(&self) {
        // All leases are held until the last ring is made.
        let leases: Vec<Lease<'_>> = (0..self.most).map(|_| self.lease()).collect();
        drop(leases);
    }

    /// May writes that were reported as failed still be carried out? Then a later write to the same
    /// place could be overwritten by an older one.
    pub(crate) fn is_lost(&self) -> bool {
        // Pairs with the store in the drop of `Ring`.
        self.lost.load(Ordering::Acquire)
    }

    fn make(&self) -> Rail {
        if !self.without.load(Ordering::Relaxed) {
            match Ring::new(self.file.clone(), self.lost.clone()) {
                Ok(ring) => return Rail::Ring(Box::new(ring)),
                Err(error) => {
                    if !self.without.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            "no io_uring ({error}): writing back by plain reads and writes"
                        );
                    }
                }
            }
        }
        Rail::Plain(Box::new(Plain::new(self.file.clone())))
    }

    /// Ends the rings that can be ended: see [`Pool::is_lost`]. None is leased.
    pub(crate) fn close(&self) {
        let rails = std::mem::take(&mut self.state().free);
        drop(rails);
    }

    /// As if writes of a ring did not end.
    #[cfg(test)]
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Takes a ring for good.
    #[cfg(test)]
    pub(crate) fn take_one(&self) -> Rail {
        self.lease().rail.take().expect("a lease has one until it is dropped")
    }

    /// Takes over a ring.
    #[cfg(test)]
    pub(crate) fn put(&self, rail: Rail) {
        let mut state = self.state();
        state.made += 1;
        state.free.push(rail);
    }

    /// The number of rings.
    #[cfg(test)]
    pub(crate) fn made(&self) -> usize {
        self.state().made
    }
}

/// A ring in use by a caller.
pub(crate) struct Lease<'p> {
    pool: &'p Pool,
    /// None only during the drop.
    rail: Option<Rail>,
    /// The ring must not be used again.
    pub(crate) broken: bool,
}

impl Lease<'_> {
    fn rail(&mut self) -> &mut Rail {
        let pool = self.pool;
        self.rail.get_or_insert_with(|| pool.make())
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // A panic may leave operations under way: dropping the ring waits for them.
        if self.broken || std::thread::panicking() {
            self.rail = None;
        }
        let mut state = self.pool.state();
        match self.rail.take() {
            Some(rail) => state.free.push(rail),
            None => state.made -= 1,
        }
        drop(state);
        self.pool.freed.notify_one();
    }
}

impl Queue for Lease<'_> {
    fn memory(&mut self, first: usize, length: usize) -> &mut [u8] {
        match self.rail() {
            Rail::Ring(ring) => ring.memory(first, length),
            Rail::Plain(plain) => plain.memory(first, length),
        }
    }

    fn start(&mut self, part: Part) {
        match self.rail() {
            Rail::Ring(ring) => ring.start(part),
            Rail::Plain(plain) => plain.start(part),
        }
    }

    fn submit(&mut self, least: usize) -> io::Result<()> {
        match self.rail() {
            Rail::Ring(ring) => ring.submit(least),
            Rail::Plain(plain) => plain.submit(least),
        }
    }

    fn finished(&mut self) -> Option<Done> {
        match self.rail() {
            Rail::Ring(ring) => ring.finished(),
            Rail::Plain(plain) => plain.finished(),
        }
    }
}
