//! Requests that would have to wait: threads beside the workers carry them out.

use std::sync::Arc;
use std::time::Duration;

use host::Waiters;
use sync::atomic::{AtomicU64, Ordering};

/// The data of a write; its bytes are counted until it is dropped.
pub(crate) struct Payload {
    pub(crate) data: Vec<u8>,
    bytes: u64,
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
    /// Of waiting writes, which are kept until the device has taken them.
    bytes: AtomicU64,
    most_bytes: u64,
}

impl Later {
    /// At most `most` threads; with 0 no request is put off.
    pub(crate) fn new(most: usize) -> Later {
        let waiters = (most > 0).then(|| Waiters::new("fuse-wait", most));
        // Loop devices have fewer under way than that. A program may write by thousands of threads.
        let most_bytes = (host::total_memory() / 16).clamp(64 << 20, 1 << 30);
        Later { waiters, bytes: AtomicU64::new(0), most_bytes }
    }

    /// Are there threads for requests that would have to wait?
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.waiters.is_some()
    }

    /// Copies the data of a write; None if too many bytes wait or there is no memory.
    pub(crate) fn copy(self: &Arc<Later>, data: &[u8]) -> Option<Payload> {
        let bytes = data.len() as u64;
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut payload = Payload { data: Vec::new(), bytes, later: self.clone() };
        let has_room = before + bytes <= self.most_bytes;
        if !has_room || payload.data.try_reserve_exact(data.len()).is_err() {
            return None;
        }
        payload.data.extend_from_slice(data);
        Some(payload)
    }

    /// Runs `task` of the file with this number on a waiter, or on this thread if there is none.
    pub(crate) fn run(&self, file: u64, task: impl FnOnce() + Send + 'static) {
        let taken = match &self.waiters {
            Some(waiters) => waiters.take_of(Some(file), Box::new(task)),
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
