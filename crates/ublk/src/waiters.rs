//! Requests that would have to wait: waiters carry them out beside the queues.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use block::Wait;
use host::errno;
use sync::atomic::{AtomicBool, Ordering};
use sync::{EventCount, Mutex};

use crate::answer::{Request, Served};
use crate::ring::Tag;

/// A list with a fixed capacity; it never allocates.
pub(crate) struct Room<T> {
    list: Mutex<VecDeque<T>>,
    most: usize,
}

impl<T> Room<T> {
    /// A list with room for `most`; all its memory is written.
    pub(crate) fn new(most: usize, any: impl Fn() -> T) -> Room<T> {
        let mut list = VecDeque::with_capacity(most);
        list.extend((0..most).map(|_| any()));
        list.clear();
        Room { list: Mutex::new(list), most }
    }

    /// Puts `thing` at the end; gives it back if there is no room.
    pub(crate) fn put(&self, thing: T) -> Result<(), T> {
        let mut list = self.list.lock();
        if list.len() == self.most {
            return Err(thing);
        }
        list.push_back(thing);
        Ok(())
    }

    /// Takes the oldest entry.
    pub(crate) fn take(&self) -> Option<T> {
        self.list.lock().pop_front()
    }
}

/// Messages of other threads to one queue.
pub(crate) struct Mailbox<T> {
    done: Room<Option<(T, i32)>>,
    wake: Arc<File>,
    leave: AtomicBool,
}

impl<T> Mailbox<T> {
    /// The mailbox of a queue with `depth` requests, whose thread is woken by `wake`.
    pub(crate) fn new(depth: usize, wake: Arc<File>) -> Mailbox<T> {
        Mailbox { done: Room::new(depth, || None), wake, leave: AtomicBool::new(false) }
    }

    /// Reports the result of a request.
    pub(crate) fn finish(&self, tag: T, result: i32) {
        // The list has room for every request of the queue.
        let _ = self.done.put(Some((tag, result)));
        self.ring();
    }

    /// The next request that was carried out, and its result.
    pub(crate) fn finished(&self) -> Option<(T, i32)> {
        self.done.take().flatten()
    }

    /// Tells the thread to end, even if the driver still has tags.
    pub(crate) fn leave(&self) {
        self.leave.store(true, Ordering::Relaxed);
        self.ring();
    }

    /// Must the thread end?
    pub(crate) fn is_to_leave(&self) -> bool {
        self.leave.load(Ordering::Relaxed)
    }

    fn ring(&self) {
        // It fails only after 2^64 wake-ups that the thread did not read.
        let _ = (&*self.wake).write(&1u64.to_ne_bytes());
    }
}

/// A request that would have to wait.
pub(crate) struct Job<T> {
    pub(crate) queue: u16,
    pub(crate) tag: T,
    pub(crate) request: Request,
}

/// The list that waiters take from.
pub(crate) struct Jobs<T> {
    room: Room<Option<Job<T>>>,
    event: EventCount,
    closed: AtomicBool,
}

impl<T> Jobs<T> {
    /// A list with room for `most` requests.
    pub(crate) fn new(most: usize) -> Jobs<T> {
        let room = Room::new(most, || None);
        Jobs { room, event: EventCount::default(), closed: AtomicBool::new(false) }
    }

    /// Hands a job over; gives it back if there is no room.
    pub(crate) fn put(&self, job: Job<T>) -> Result<(), Job<T>> {
        match self.room.put(Some(job)) {
            Ok(()) => {
                self.event.notify_one();
                Ok(())
            }
            Err(Some(job)) => Err(job),
            // `put` returns the value it was given.
            Err(None) => Ok(()),
        }
    }

    /// Waits for the next job. None when the list is closed and empty.
    pub(crate) fn take(&self) -> Option<Job<T>> {
        loop {
            let ticket = self.event.ticket();
            if let Some(job) = self.room.take().flatten() {
                return Some(job);
            }
            if self.closed.load(Ordering::Relaxed) {
                return None;
            }
            self.event.wait(ticket);
        }
    }

    /// Closes the list: waiters carry out the remaining jobs, then end.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.event.notify_all();
    }
}

/// The loop of a waiter, until the list of jobs is closed.
pub(crate) fn wait(jobs: &Jobs<Tag>, mailboxes: &[Arc<Mailbox<Tag>>], served: &Served) {
    while let Some(Job { queue, mut tag, request }) = jobs.take() {
        let result = served.answer(request, tag.buffer(), Wait::Yes).unwrap_or(-errno::EIO);
        mailboxes[usize::from(queue)].finish(tag, result);
    }
}
