//! Requests that would have to wait: other threads carry them out.
//!
//! A waiter thread takes such a request and sends its reply. Meanwhile the connection serves later
//! requests: the protocol lets a server answer in any order. The replies of a connection are sent
//! one after another. A thread that finds another thread sending leaves its reply to that thread,
//! so a client that does not receive blocks only one thread.

use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use host::Waiters;
use units::Cpu;

use crate::MAX_PAYLOAD;
use crate::buffer::Output;
use crate::stream::Stream;

/// The most requests of one connection under way, and the most bytes of them. A longer request is
/// under way alone.
const MOST: usize = 64;
const MOST_BYTES: usize = MAX_PAYLOAD as usize;

/// The requests of a connection that are under way, and the stream for their replies.
pub(crate) struct Later {
    stream: Arc<Stream>,
    waiters: Arc<Waiters>,
    cpu: fn() -> Cpu,
    state: Mutex<State>,
    /// Signalled when a request ends and when the sending thread is done.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    count: usize,
    bytes: usize,
    /// A thread is sending.
    sending: bool,
    /// Replies that this thread sends next, each with the cost of its request.
    ready: Vec<(Output, usize)>,
    /// The client is gone: no reply is sent any more.
    failed: bool,
}

impl Later {
    pub(crate) fn new(stream: Arc<Stream>, waiters: Arc<Waiters>, cpu: fn() -> Cpu) -> Later {
        Later { stream, waiters, cpu, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that panics runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Is there room for one more request of `bytes` bytes?
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.state().has_room(bytes)
    }

    /// Waits until there is room for one more request of `bytes` bytes.
    pub(crate) fn wait_for_room(&self, bytes: usize) -> io::Result<()> {
        let mut state = self.state();
        while !state.has_room(bytes) && !state.failed {
            state = self.wait(state);
        }
        if state.failed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Hands a request of `bytes` bytes to a waiter. `work` carries it out and puts its reply.
    pub(crate) fn begin(
        self: &Arc<Later>,
        bytes: usize,
        work: impl FnOnce(&mut Output, Cpu) -> io::Result<()> + Send + 'static,
    ) {
        let mut state = self.state();
        state.count += 1;
        state.bytes += bytes;
        drop(state);
        let under_way = UnderWay { later: self.clone(), bytes, ended: false };
        let task = Box::new(move || {
            // There is no client to answer. The device is dropped before the connection that has
            // it.
            if under_way.later.state().failed {
                drop(work);
                return;
            }
            let mut output = Output::small();
            // On an error `under_way` ends the connection.
            if work(&mut output, (under_way.later.cpu)()).is_ok() {
                under_way.reply(output);
            }
        });
        // If there is no waiter, this thread waits.
        if let Err(task) = self.waiters.take(task) {
            task();
        }
    }

    /// Sends the output of the connection's own thread.
    #[inline]
    pub(crate) fn send(&self, output: &mut Output) -> io::Result<()> {
        if output.len() == 0 {
            return Ok(());
        }
        let mut state = self.state();
        while state.sending {
            state = self.wait(state);
        }
        if state.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.sending = true;
        drop(state);
        let sent = output.send(&self.stream);
        self.send_ready(sent.is_ok());
        sent
    }

    /// Sends the replies that other threads left, then lets other threads send. `alive` is false
    /// when sending has failed.
    fn send_ready(&self, mut alive: bool) {
        let mut state = self.state();
        loop {
            if !alive {
                state.fail();
            }
            let ready = mem::take(&mut state.ready);
            if ready.is_empty() {
                break;
            }
            drop(state);
            let mut freed = (0, 0);
            for (mut output, bytes) in ready {
                alive = alive && output.send(&self.stream).is_ok();
                freed = (freed.0 + 1, freed.1 + bytes);
            }
            state = self.state();
            state.count -= freed.0;
            state.bytes -= freed.1;
            self.changed.notify_all();
        }
        state.sending = false;
        drop(state);
        self.changed.notify_all();
        if !alive {
            // The connection's thread may still wait to receive: this wakes it.
            self.stream.cut();
        }
    }

    /// Stops sending. A request that has not begun is dropped.
    pub(crate) fn give_up(&self) {
        self.state().fail();
    }

    /// Waits for every request under way. Each gets its reply, unless the client is gone.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        while state.count > 0 || state.sending {
            state = self.wait(state);
        }
    }
}

impl State {
    fn has_room(&self, bytes: usize) -> bool {
        self.count == 0 || (self.count < MOST && self.bytes + bytes <= MOST_BYTES)
    }

    fn fail(&mut self) {
        self.failed = true;
        for (_, bytes) in self.ready.drain(..) {
            self.count -= 1;
            self.bytes -= bytes;
        }
    }
}

/// A request under way. When it is dropped without a reply, for example by a panic of the device,
/// it ends its connection.
struct UnderWay {
    later: Arc<Later>,
    bytes: usize,
    ended: bool,
}

impl UnderWay {
    fn reply(mut self, output: Output) {
        self.ended = true;
        let later = &*self.later;
        let mut state = later.state();
        state.ready.push((output, self.bytes));
        if state.failed {
            state.fail();
            drop(state);
            later.changed.notify_all();
        } else if !state.sending {
            state.sending = true;
            drop(state);
            later.send_ready(true);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.later.state();
        state.count -= 1;
        state.bytes -= self.bytes;
        state.fail();
        drop(state);
        self.later.changed.notify_all();
        self.later.stream.cut();
    }
}
