//! Requests that would have to wait: threads beside the workers carry them out.

use std::time::Duration;

use host::Waiters;

/// Threads for requests that would have to wait. They start with the first such request.
pub(crate) struct Later(Option<Waiters>);

impl Later {
    /// At most `most` threads; with 0 no request is put off.
    pub(crate) fn new(most: usize) -> Later {
        Later((most > 0).then(|| Waiters::new("fuse-wait", most)))
    }

    /// Are there threads for requests that would have to wait?
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Runs `task` of the file with this number on a waiter, or on this thread if there is none.
    pub(crate) fn run(&self, file: u64, task: impl FnOnce() + Send + 'static) {
        let taken = match &self.0 {
            Some(waiters) => waiters.take_of(Some(file), Box::new(task)),
            None => Err(Box::new(task) as host::Task),
        };
        if let Err(task) = taken {
            task();
        }
    }

    /// Waits for the requests under way, for `backoff` at most.
    pub(crate) fn close(&self, backoff: Duration) {
        if let Some(waiters) = &self.0 {
            waiters.close(Some(backoff));
        }
    }
}
