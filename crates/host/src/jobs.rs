//! Lists by which threads hand requests to each other without the heap: a serving thread gives away
//! what would have to wait, and gets it back when it is done.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use sync::atomic::{AtomicBool, Ordering};
use sync::{EventCount, Mutex};

use crate::line::Line;

/// Messages of other threads to one thread, which sleeps until its wake-up is readable. Any thread
/// may call every method.
pub struct Mailbox<T> {
    done: Mutex<Line<T>>,
    wake: Arc<File>,
    leave: AtomicBool,
}

impl<T> Mailbox<T> {
    /// A mailbox with its wake-up: an eventfd. Up to `most` messages it does not allocate.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new(most: usize) -> io::Result<Mailbox<T>> {
        let wake = File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (done, leave) = (Mutex::new(Line::new(most, 0)), AtomicBool::new(false));
        Ok(Mailbox { done, wake: Arc::new(wake), leave })
    }

    /// The wake-up: readable while there is something new since [`Mailbox::woken`].
    #[must_use]
    pub fn wake(&self) -> &Arc<File> {
        &self.wake
    }

    /// Empties the wake-up. A message that comes after it wakes the thread again, so it is called
    /// before [`Mailbox::take`].
    pub fn woken(&self) {
        // Without a wake-up there is nothing to read.
        let _ = (&*self.wake).read(&mut [0; 8]);
    }

    /// Sends a message.
    pub fn send(&self, message: T) {
        self.done.lock().put(None, message);
        self.ring();
    }

    /// The oldest message.
    pub fn take(&self) -> Option<T> {
        self.done.lock().take().map(|(_, message)| message)
    }

    /// Tells the thread to end.
    pub fn leave(&self) {
        self.leave.store(true, Ordering::Relaxed);
        self.ring();
    }

    /// Must the thread end?
    #[must_use]
    pub fn is_to_leave(&self) -> bool {
        self.leave.load(Ordering::Relaxed)
    }

    fn ring(&self) {
        // It fails only after 2^64 wake-ups that the thread did not read.
        let _ = (&*self.wake).write(&1u64.to_ne_bytes());
    }
}

/// The list that threads which may wait take their work from. Any thread may call every method.
pub struct Jobs<J> {
    line: Mutex<Line<J>>,
    event: EventCount,
    closed: AtomicBool,
    given_up: AtomicBool,
}

impl<J> Jobs<J> {
    /// A list for `threads` threads. Up to `most` jobs it does not allocate.
    #[must_use]
    pub fn new(most: usize, threads: usize) -> Jobs<J> {
        let (closed, given_up) = (AtomicBool::new(false), AtomicBool::new(false));
        let line = Mutex::new(Line::new(most, threads));
        Jobs { line, event: EventCount::default(), closed, given_up }
    }

    /// Hands a job over. An owner of jobs has at most half of the threads that others leave.
    pub fn put(&self, owner: Option<u64>, job: J) {
        self.line.lock().put(owner, job);
        self.event.notify_one();
    }

    /// Waits for the next job whose owner may have a thread, which is to call [`Jobs::done`]. None
    /// when the list is closed and has none, or given up.
    pub fn take(&self) -> Option<(Option<u64>, J)> {
        loop {
            let ticket = self.event.ticket();
            if self.given_up.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(job) = self.line.lock().take() {
                return Some(job);
            }
            if self.closed.load(Ordering::Relaxed) {
                return None;
            }
            self.event.wait(ticket);
        }
    }

    /// A job of `owner` is done.
    pub fn done(&self, owner: Option<u64>) {
        if self.line.lock().done(owner) {
            self.event.notify_one();
        }
    }

    /// Closes the list: its threads carry out the remaining jobs, then end.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.event.notify_all();
    }

    /// Closes the list, whose jobs nobody carries out any more: its threads end.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.event.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_were_given_up_are_carried_out_by_nobody() {
        let jobs = Jobs::new(4, 1);
        jobs.put(None, 1);
        jobs.put(None, 2);
        jobs.close();
        assert_eq!(jobs.take(), Some((None, 1)));
        jobs.give_up();
        assert_eq!(jobs.take(), None);
        jobs.put(None, 3);
        assert_eq!(jobs.take(), None);
    }

    #[test]
    fn a_thread_is_told_to_leave() {
        let mailbox = Mailbox::<()>::new(1).unwrap();
        assert!(!mailbox.is_to_leave());
        mailbox.leave();
        assert!(mailbox.is_to_leave());
        assert_eq!((&**mailbox.wake()).read(&mut [0; 8]).unwrap(), 8);
    }
}
