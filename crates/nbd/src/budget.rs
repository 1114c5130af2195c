//! The memory that all connections together may have beyond their first buffers.
//!
//! A long request takes its share of the memory before its buffer grows. A connection that finds
//! too little waits, and has nothing then that another one could wait for: short requests of other
//! connections go on. What a client holds and does not use is the server's loss, so while others
//! wait, a client that stalls in the middle of a long request is cut off.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::MAX_PAYLOAD;

/// The first size of a buffer, in bytes: room for 63 WRITEs of a page. It is not shared.
pub(crate) const FIRST: usize = 256 << 10;
/// The longest request with its headers needs less.
const LEAST: usize = MAX_PAYLOAD as usize + (1 << 20);
/// How often a waiting connection looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes to be shared.
pub(crate) struct Budget {
    total: usize,
    stall: Duration,
    state: Mutex<State>,
    /// Signalled when bytes come back and when the front of the queue changes.
    changed: Condvar,
}

struct State {
    left: usize,
    next: u64,
    /// Those that wait, in order.
    queue: VecDeque<u64>,
}

/// Bytes of a budget; they go back when it is dropped.
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// A budget of `bytes` bytes, or of what the longest request needs if that is more. A client
    /// may stall for `stall` while others wait.
    pub(crate) fn new(bytes: usize, stall: Duration) -> Budget {
        let total = bytes.max(LEAST);
        let state = State { left: total, next: 0, queue: VecDeque::new() };
        Budget { total, stall, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that panics runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` bytes if they are there, and if nobody waits for a long request.
    pub(crate) fn try_take(self: &Arc<Budget>, bytes: usize) -> Option<Share> {
        let mut state = self.state();
        if state.left < bytes || (bytes > FIRST && !state.queue.is_empty()) {
            return None;
        }
        state.left -= bytes;
        Some(Share { budget: self.clone(), bytes })
    }

    /// Takes `bytes` bytes, at most all there are; waits for them, in order.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`] when `gone` says that nobody needs them any more.
    pub(crate) fn take(
        self: &Arc<Budget>,
        bytes: usize,
        gone: impl Fn() -> bool,
    ) -> io::Result<Share> {
        let bytes = bytes.min(self.total);
        let mut state = self.state();
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back(ticket);
        let taken = loop {
            if state.left >= bytes && state.queue.front() == Some(&ticket) {
                state.left -= bytes;
                break Ok(Share { budget: self.clone(), bytes });
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            let gone = gone();
            state = self.state();
            if gone {
                break Err(io::ErrorKind::BrokenPipe.into());
            }
        };
        state.queue.retain(|waiting| *waiting != ticket);
        drop(state);
        self.changed.notify_all();
        taken
    }

    /// Does somebody wait for bytes?
    pub(crate) fn is_short(&self) -> bool {
        !self.state().queue.is_empty()
    }

    /// May a client that has a share, and did nothing for `stalled`, keep it?
    pub(crate) fn bears(&self, stalled: Duration) -> bool {
        stalled < self.stall || !self.is_short()
    }
}

impl Share {
    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds another share of the same budget.
    pub(crate) fn add(&mut self, mut other: Share) {
        self.bytes += mem::take(&mut other.bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.state().left += self.bytes;
            self.budget.changed.notify_all();
        }
    }
}
