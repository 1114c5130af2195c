//! Requests that would have to wait: threads beside the workers carry them out.

use std::sync::Arc;
use std::time::Duration;

use host::Waiters;
use sync::atomic::{AtomicUsize, Ordering};

/// The most bytes of waiting writes: they are kept until the device has taken them.
const MOST_BYTES: usize = 64 << 20;

/// The data of a write; its bytes are counted until it is dropped.
pub(crate) struct Payload {
    pub(crate) data: Vec<u8>,
    bytes: usize,
    later: Arc<Later>,
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.later.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Threads for requests that would have to wait. They start with the first such request.
pub(crate) struct Later {
    waiters: Option<Waiters>,
    bytes: AtomicUsize,
}

impl Later {
    /// At most `most` threads; with 0 no request is put off.
    pub(crate) fn new(most: usize) -> Later {
        let waiters = (most > 0).then(|| Waiters::new("fuse-wait", most));
        Later { waiters, bytes: AtomicUsize::new(0) }
    }

    /// Are there threads for requests that would have to wait?
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.waiters.is_some()
    }

    /// Copies the data of a write; None if too many bytes are under way or there is no memory.
    pub(crate) fn copy(self: &Arc<Later>, data: &[u8]) -> Option<Payload> {
        let before = self.bytes.fetch_add(data.len(), Ordering::Relaxed);
        let mut payload = Payload { data: Vec::new(), bytes: data.len(), later: self.clone() };
        let room = before + data.len() <= MOST_BYTES;
        if !room || payload.data.try_reserve_exact(data.len()).is_err() {
            return None;
        }
        payload.data.extend_from_slice(data);
        Some(payload)
    }

    /// Runs `task` on a waiter, or on this thread if there is none.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        let taken = match &self.waiters {
            Some(waiters) => waiters.take(Box::new(task)),
            None => Err(Box::new(task) as host::Task),
        };
        if let Err(task) = taken {
            task();
        }
    }

    /// Waits for the requests under way, for `backoff` at most.
    pub(crate) fn close(&self, backoff: Duration) {
        if let Some(waiters) = &self.waiters {
            waiters.close(Some(backoff));
        }
    }
}
