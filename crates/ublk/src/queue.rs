//! What the thread of a queue does: it takes what requests there are, carries them out, and
//! answers them all in the call that waits for the next.
//!
//! Once it serves it uses its stack, its ring with its buffers, and the device: no heap, no log.
//! The exception is a device that panics: the panic is told and unwound on the heap, as ever.

use std::io::Read;
use std::sync::Arc;

use block::Wait;

use crate::answer::Served;
use crate::ring::{Event, Ring, Tag};
use crate::waiters::{Job, Jobs, Mailbox};
use crate::wire::Descriptor;

/// One queue, but for its ring.
pub(crate) struct Queue {
    pub(crate) number: u16,
    pub(crate) served: Arc<Served>,
    pub(crate) mailbox: Arc<Mailbox<Tag>>,
    /// Where requests go that would have to wait; nowhere if there are no waiters.
    pub(crate) jobs: Option<Arc<Jobs<Tag>>>,
    pub(crate) wake: Arc<std::fs::File>,
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
                        // It is empty before the mailbox is looked into, so that what comes after
                        // that wakes this thread again.
                        let _ = (&*self.wake).read(&mut [0; 8]);
                        ring.rearm();
                    }
                }
            }
            while let Some((tag, result)) = self.mailbox.finished() {
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
        if let Some(result) = self.served.answer(request, tag.buffer(), wait) {
            return ring.commit(tag, result);
        }
        if let Some(jobs) = &self.jobs {
            match jobs.put(Job { queue: self.number, tag, request }) {
                Ok(()) => return,
                // There is room for all requests, so this does not happen.
                Err(job) => tag = job.tag,
            }
        }
        let result = self.served.answer(request, tag.buffer(), Wait::Yes);
        ring.commit(tag, result.unwrap_or(-libc::EIO));
    }
}
