//! The thread of a ring: it carries out what is available, and sleeps until its driver signals.

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use block::Wait;
use host::{For, Role, Waiters, wait};
use rustix::event::{EventfdFlags, eventfd};
use sync::atomic::{AtomicBool, Ordering};
use vm_memory::GuestAddress;

use crate::memory::Memory;
use crate::request::{PIECE, Request, Served, Status};
use crate::ring::{Broken, Ring, Signal, signal};

/// The most requests of a ring that wait beside it. Its thread waits for the next one itself.
const WAITING: usize = 32;

/// Tells the thread of a ring to end.
pub(crate) struct Stop {
    given: AtomicBool,
    event: OwnedFd,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Stop> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stop { given: AtomicBool::new(false), event })
    }

    pub(crate) fn give(&self) {
        // relaxed: the event wakes the thread.
        self.given.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Is it given?
    pub(crate) fn given(&self) -> bool {
        // relaxed: a thread that misses it sees the event.
        self.given.load(Ordering::Relaxed)
    }

    /// Readable after it is given.
    pub(crate) fn event(&self) -> std::os::fd::BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// A ring that is served.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    memory: Arc<Memory>,
    table: GuestAddress,
    size: u16,
    served: Arc<Served>,
    waiters: Option<Arc<Waiters>>,
    kick: File,
    stop: Stop,
    /// Signalled when the ring is broken.
    error: Signal,
}

struct Shared {
    state: Mutex<State>,
    /// Signalled when a request that waits is done.
    changed: Condvar,
}

struct State {
    ring: Ring,
    /// Requests that wait on other threads.
    waiting: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that panics runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Serves `ring`, whose driver signals `kick`.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn new(
        ring: Ring,
        (kick, error): (File, Signal),
        served: Arc<Served>,
        waiters: Option<Arc<Waiters>>,
    ) -> io::Result<Queue> {
        let (memory, (table, size)) = (ring.memory.clone(), ring.table());
        let (state, changed) = (Mutex::new(State { ring, waiting: 0 }), Condvar::new());
        let shared = Arc::new(Shared { state, changed });
        let stop = Stop::new()?;
        Ok(Queue { shared, memory, table, size, served, waiters, kick, stop, error })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// Has the thread end, once it has done what it has begun.
    pub(crate) fn stop(&self) {
        self.stop.give();
    }

    /// The available requests that were taken.
    pub(crate) fn taken(&self) -> u16 {
        self.state().ring.taken()
    }

    /// Serves until it is told to stop, or the ring is broken.
    pub(crate) fn serve(self: &Arc<Queue>) {
        if let Err(error) = host::enter(Role::VhostQueue) {
            tracing::error!("a ring is not served: its thread cannot be confined: {error}");
            return signal(&self.error);
        }
        let (mut request, mut buffer) = (Request::default(), vec![0; PIECE]);
        loop {
            if let Err(Broken) = self.carry_out_all(&mut request, &mut buffer) {
                tracing::warn!("a virtual machine has broken a ring; it is not served any more");
                signal(&self.error);
                break;
            }
            if self.stop.given() {
                break;
            }
            match wait([self.kick.as_fd(), self.stop.event()], For::Reading, None) {
                // What cannot be read would be ready for ever.
                Ok([true, _]) if !self.empty_kick() => break,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let mut state = self.state();
        while state.waiting > 0 {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads the signal. False if there can be no other one.
    fn empty_kick(&self) -> bool {
        match (&self.kick).read(&mut [0; 8]) {
            Ok(bytes) => bytes > 0,
            Err(error) => {
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }

    /// Carries out what is available. What a process before has begun comes first, and before a
    /// stop.
    pub(crate) fn carry_out_all(
        self: &Arc<Queue>,
        request: &mut Request,
        buffer: &mut [u8],
    ) -> Result<(), Broken> {
        loop {
            self.state().ring.stay_awake()?;
            loop {
                let mut state = self.state();
                if self.stop.given() && !state.ring.has_older() {
                    return Ok(());
                }
                let Some(head) = state.ring.take()? else { break };
                drop(state);
                request.head = head;
                self.carry_out(request, buffer)?;
            }
            if !self.state().ring.may_sleep()? {
                return Ok(());
            }
        }
    }

    fn carry_out(
        self: &Arc<Queue>,
        request: &mut Request,
        buffer: &mut [u8],
    ) -> Result<(), Broken> {
        let guest = &self.memory.guest;
        let read = request.chain.read(guest, self.table, self.size, request.head);
        if read.is_err() || request.chain.writable.length() == 0 {
            // There is no place for a status.
            return self.state().ring.put(request.head, 0);
        }
        if let Err(status) = request.parse(guest) {
            return self.answer(request, status);
        }
        let wait = if self.waiters.is_some() { Wait::No } else { Wait::Yes };
        let piece = request.buffer();
        match self.served.carry_out(request, guest, &mut buffer[..piece], wait) {
            Some(status) => self.answer(request, status),
            None => self.put_off(request, buffer),
        }
    }

    /// Hands a request to a thread that may wait; if there are enough, this one waits.
    #[cold]
    fn put_off(self: &Arc<Queue>, request: &mut Request, buffer: &mut [u8]) -> Result<(), Broken> {
        let mut state = self.state();
        let waiters = self.waiters.as_ref().filter(|_| state.waiting < WAITING);
        let Some(waiters) = waiters else {
            drop(state);
            return self.wait_for(request, buffer);
        };
        state.waiting += 1;
        drop(state);
        let (queue, mut request) = (self.clone(), mem::take(request));
        let task = Box::new(move || {
            let mut buffer = Vec::new();
            let piece = request.buffer();
            // A ring that is broken is found by its thread.
            let _ = match buffer.try_reserve_exact(piece) {
                Ok(()) => {
                    buffer.resize(piece, 0);
                    queue.wait_for(&mut request, &mut buffer)
                }
                Err(_) => queue.answer(&request, Status::Failed),
            };
            // Whoever waits for the end of this request waits for the device as well.
            let shared = queue.shared.clone();
            drop(queue);
            shared.state().waiting -= 1;
            shared.changed.notify_all();
        });
        if let Err(task) = waiters.take(task) {
            task();
        }
        Ok(())
    }

    /// Carries out a request on a thread that may wait.
    fn wait_for(&self, request: &mut Request, buffer: &mut [u8]) -> Result<(), Broken> {
        let piece = request.buffer();
        let buffer = &mut buffer[..piece];
        let done = self.served.carry_out(request, &self.memory.guest, buffer, Wait::Yes);
        self.answer(request, done.unwrap_or(Status::Failed))
    }

    fn answer(&self, request: &Request, status: Status) -> Result<(), Broken> {
        let writable = &request.chain.writable;
        let (length, status) = (writable.length(), [status as u8]);
        let written = match writable.write(&self.memory.guest, length - 1, &status) {
            Ok(()) => u32::try_from(length).unwrap_or(u32::MAX),
            Err(_) => 0,
        };
        self.state().ring.put(request.head, written)
    }
}
