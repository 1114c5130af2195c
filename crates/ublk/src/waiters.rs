//! Requests that would have to wait: waiters carry them out beside the queues.

use std::sync::Arc;

use block::Wait;
use host::{Jobs, Mailbox, errno};

use crate::answer::{Request, Served};
use crate::ring::Tag;

/// A request that would have to wait.
pub(crate) struct Job<T> {
    pub(crate) queue: u16,
    pub(crate) tag: T,
    pub(crate) request: Request,
}

/// The loop of a waiter, until the list of jobs is closed.
pub(crate) fn wait(jobs: &Jobs<Job<Tag>>, mailboxes: &[Arc<Mailbox<(Tag, i32)>>], served: &Served) {
    while let Some((_, Job { queue, mut tag, request })) = jobs.take() {
        let result = served.answer(request, tag.buffer(), Wait::Yes).unwrap_or(-errno::EIO);
        mailboxes[usize::from(queue)].send((tag, result));
    }
}
