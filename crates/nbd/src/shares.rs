//! What the connections of a server have in common: places, memory for long requests, and threads
//! for requests that wait.
//!
//! A peer has a share of each, whatever the number of its connections. Nobody waits for a share
//! that others have: who finds no place is refused, and a request that finds no memory or no thread
//! is carried out with what its own connection has.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::peer::Peer;

/// This part of everything is not for clients over a network, and half of it is for the server's
/// own user only.
const RESERVE: usize = 16;

/// Who has how much of something.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    total: usize,
    by: Vec<(Peer, usize)>,
}

impl Held {
    pub(crate) fn new(total: usize) -> Held {
        Held { total, by: Vec::new() }
    }

    /// How much those have that `of` says.
    fn sum(&self, of: impl Fn(Peer) -> bool) -> usize {
        self.by.iter().filter(|(peer, _)| of(*peer)).map(|(_, amount)| amount).sum()
    }

    /// How much `peer` has.
    pub(crate) fn of(&self, peer: Peer) -> usize {
        self.sum(|other| other == peer)
    }

    /// The most that peers of a rank and of higher ones may have together.
    fn limit(&self, rank: u8) -> usize {
        let reserve = self.total.div_ceil(RESERVE);
        match rank {
            0 => self.total,
            1 => self.total - reserve.div_ceil(2),
            _ => self.total - reserve,
        }
    }

    /// May `peer` have `amount` more? Another peer than the server's own user may have half of what
    /// others of its rank leave: so something is left for the next one.
    pub(crate) fn grants(&self, peer: Peer, amount: usize) -> bool {
        let fits = |has: usize, limit: usize| has.checked_add(amount).is_some_and(|it| it <= limit);
        let rank = peer.rank();
        let others = self.sum(|other| other != peer && other.rank() >= rank);
        (0..=rank).all(|rank| fits(self.sum(|it| it.rank() >= rank), self.limit(rank)))
            && (rank == 0 || fits(self.of(peer), self.limit(rank).saturating_sub(others) / 2))
    }

    pub(crate) fn add(&mut self, peer: Peer, amount: usize) {
        match self.by.iter_mut().find(|(known, _)| *known == peer) {
            Some((_, has)) => *has += amount,
            None => self.by.push((peer, amount)),
        }
    }

    pub(crate) fn remove(&mut self, peer: Peer, amount: usize) {
        if let Some((_, has)) = self.by.iter_mut().find(|(known, _)| *known == peer) {
            *has -= amount;
        }
        self.by.retain(|(_, has)| *has > 0);
    }
}

/// Something to be shared. Any thread may take from it.
#[derive(Debug)]
struct Pool(Mutex<Held>);

impl Pool {
    fn held(&self) -> MutexGuard<'_, Held> {
        // No code that panics runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a peer may have of something that is shared.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    pool: Arc<Pool>,
    peer: Peer,
}

/// A part of something; it goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Allowance,
    amount: usize,
}

impl Allowance {
    /// The allowance of the server's own user, of `total` in all.
    pub(crate) fn new(total: usize) -> Allowance {
        Allowance { pool: Arc::new(Pool(Mutex::new(Held::new(total)))), peer: Peer::Own }
    }

    /// What `peer` may have of the same.
    pub(crate) fn of(&self, peer: Peer) -> Allowance {
        Allowance { pool: self.pool.clone(), peer }
    }

    /// Takes `amount`, if the peer may have it.
    pub(crate) fn try_take(&self, amount: usize) -> Option<Share> {
        let mut held = self.pool.held();
        if !held.grants(self.peer, amount) {
            return None;
        }
        held.add(self.peer, amount);
        Some(Share { of: self.clone(), amount })
    }
}

impl Share {
    /// Its size.
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// Adds another share of the same allowance.
    pub(crate) fn add(&mut self, mut other: Share) {
        self.amount += mem::take(&mut other.amount);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.pool.held().remove(self.of.peer, self.amount);
    }
}

#[cfg(test)]
mod tests;
