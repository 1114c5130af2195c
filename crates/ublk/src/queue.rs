//! The loop of a queue's thread: it takes all waiting requests, carries them out, and answers them
//! in the same system call that waits for the next ones.
//!
//! A serving thread uses its stack, its ring with its buffers, and the device: no heap, no log. The
//! exception is a panic of the device: its report and its unwinding use the heap.

use std::sync::Arc;

use block::Wait;
use host::{Jobs, Mailbox, errno};

use crate::answer::Served;
use crate::ring::{Event, Ring, Tag};
use crate::waiters::Job;
use crate::wire::Descriptor;

/// One queue, without its ring.
pub(crate) struct Queue {
    pub(crate) number: u16,
    pub(crate) served: Arc<Served>,
    pub(crate) mailbox: Arc<Mailbox<(Tag, i32)>>,
    /// The list for requests that would have to wait; None if there are no waiters.
    pub(crate) jobs: Option<Arc<Jobs<Job<Tag>>>>,
}

impl Queue {
    /// Serves until the device is stopped.
    pub(crate) fn serve(&self, ring: &mut Ring) {
        while ring.is_live() && !self.mailbox.is_to_leave() {
            ring.wait();
            while let Some(event) = ring.next() {
                match event {
                    Event::Request(tag, descriptor) => self.carry_out(ring, tag, &descriptor),
                    Event::Wake => {
                        self.mailbox.woken();
                        ring.rearm();
                    }
                }
            }
            while let Some((tag, result)) = self.mailbox.take() {
                ring.commit(tag, result);
            }
        }
    }

    fn carry_out(&self, ring: &mut Ring, mut tag: Tag, descriptor: &Descriptor) {
        let request = match self.served.parse(descriptor) {
            Ok(request) => request,
            Err(result) => return ring.commit(tag, result),
        };
        let wait = if self.jobs.is_some() { Wait::No } else { Wait::Yes };
        match (self.served.answer(request, tag.buffer(), wait), &self.jobs) {
            (None, Some(jobs)) => jobs.put(None, Job { queue: self.number, tag, request }),
            (result, _) => ring.commit(tag, result.unwrap_or(-errno::EIO)),
        }
    }
}
