//! Requests that would have to wait, carried out beside the workers.

use std::sync::Arc;
use std::time::Duration;

use host::Waiters;
use sync::atomic::{AtomicUsize, Ordering};

/// Bytes written by requests under way, at most: they are kept until the device has taken them.
const MOST_BYTES: usize = 64 << 20;

/// What is to be written; counted until it is dropped.
pub(crate) struct Payload {
    pub(crate) data: Vec<u8>,
    bytes: usize,
    patient: Arc<Patient>,
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.patient.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Threads for requests that would have to wait, started when there are any.
pub(crate) struct Patient {
    waiters: Option<Waiters>,
    bytes: AtomicUsize,
}

impl Patient {
    /// At most `most` threads; with none nothing is put off.
    pub(crate) fn new(most: usize) -> Patient {
        let waiters = (most > 0).then(|| Waiters::new("fuse-wait", most));
        Patient { waiters, bytes: AtomicUsize::new(0) }
    }

    /// Is there a place for requests that would have to wait?
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.waiters.is_some()
    }

    /// A copy of what is to be written; nothing if too much is under way or memory is out.
    pub(crate) fn copy(self: &Arc<Patient>, data: &[u8]) -> Option<Payload> {
        let before = self.bytes.fetch_add(data.len(), Ordering::Relaxed);
        let mut payload = Payload { data: Vec::new(), bytes: data.len(), patient: self.clone() };
        let room = before + data.len() <= MOST_BYTES;
        if !room || payload.data.try_reserve_exact(data.len()).is_err() {
            return None;
        }
        payload.data.extend_from_slice(data);
        Some(payload)
    }

    /// Has `task` done; by this thread if no other can be had.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        let taken = match &self.waiters {
            Some(waiters) => waiters.take(Box::new(task)),
            None => Err(Box::new(task) as host::Task),
        };
        if let Err(task) = taken {
            task();
        }
    }

    /// Waits for what is under way, at most for `backoff`.
    pub(crate) fn close(&self, backoff: Duration) {
        if let Some(waiters) = &self.waiters {
            waiters.close(Some(backoff));
        }
    }
}
