//! Lists by which threads hand requests to each other without the heap: a serving thread gives away
//! what would have to wait, and gets it back when it is done.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use sync::atomic::{AtomicBool, Ordering};
use sync::{EventCount, Mutex};

/// A list with a fixed capacity; it never allocates.
struct Room<T> {
    list: Mutex<VecDeque<Option<T>>>,
    most: usize,
}

impl<T> Room<T> {
    /// A list with room for `most`; all its memory is written.
    fn new(most: usize) -> Room<T> {
        let mut list = VecDeque::with_capacity(most);
        list.extend((0..most).map(|_| None));
        list.clear();
        Room { list: Mutex::new(list), most }
    }

    /// Puts `thing` at the end; gives it back if there is no room.
    fn put(&self, thing: T) -> Result<(), T> {
        let mut list = self.list.lock();
        if list.len() >= self.most {
            return Err(thing);
        }
        list.push_back(Some(thing));
        Ok(())
    }

    /// Takes the oldest entry.
    fn take(&self) -> Option<T> {
        self.list.lock().pop_front().flatten()
    }
}

/// Messages of other threads to one thread, which sleeps until its wake-up is readable. Any thread
/// may call every method.
pub struct Mailbox<T> {
    done: Room<T>,
    wake: Arc<File>,
    leave: AtomicBool,
}

impl<T> Mailbox<T> {
    /// A mailbox with room for `most` messages, with its wake-up: an eventfd.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new(most: usize) -> io::Result<Mailbox<T>> {
        let wake = File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Mailbox { done: Room::new(most), wake: Arc::new(wake), leave: AtomicBool::new(false) })
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

    /// Sends a message. One that has no room is lost: the caller counts what may be under way.
    pub fn send(&self, message: T) {
        let _ = self.done.put(message);
        self.ring();
    }

    /// The oldest message.
    pub fn take(&self) -> Option<T> {
        self.done.take()
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
    room: Room<J>,
    event: EventCount,
    closed: AtomicBool,
    given_up: AtomicBool,
}

impl<J> Jobs<J> {
    /// A list with room for `most` jobs.
    #[must_use]
    pub fn new(most: usize) -> Jobs<J> {
        let (closed, given_up) = (AtomicBool::new(false), AtomicBool::new(false));
        Jobs { room: Room::new(most), event: EventCount::default(), closed, given_up }
    }

    /// Hands a job over.
    ///
    /// # Errors
    /// The job, if there is no room.
    pub fn put(&self, job: J) -> Result<(), J> {
        self.room.put(job)?;
        self.event.notify_one();
        Ok(())
    }

    /// Waits for the next job. None when the list is closed and empty, or given up.
    pub fn take(&self) -> Option<J> {
        loop {
            let ticket = self.event.ticket();
            if self.given_up.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(job) = self.room.take() {
                return Some(job);
            }
            if self.closed.load(Ordering::Relaxed) {
                return None;
            }
            self.event.wait(ticket);
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
    fn a_room_has_an_end() {
        let room = Room::new(2);
        assert_eq!(room.take(), None);
        assert_eq!((room.put(1), room.put(2), room.put(3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!((room.take(), room.put(4)), (Some(1), Ok(())));
        assert_eq!((room.take(), room.take(), room.take()), (Some(2), Some(4), None));
    }

    #[test]
    fn jobs_that_were_given_up_are_carried_out_by_nobody() {
        let jobs = Jobs::new(4);
        assert_eq!((jobs.put(1), jobs.put(2)), (Ok(()), Ok(())));
        jobs.close();
        assert_eq!(jobs.take(), Some(1));
        jobs.give_up();
        assert_eq!((jobs.take(), jobs.put(3), jobs.take()), (None, Ok(()), None));
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
