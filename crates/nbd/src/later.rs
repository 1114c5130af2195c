//! Requests that would have to wait, carried out beside their connection.
//!
//! Such a request goes to a thread that may wait, and its reply is sent when there is one, while
//! the connection goes on with later requests: the protocol lets a server answer in any order. The
//! replies of a connection go out one after another; a thread that finds another one sending
//! leaves its reply there, so that a client which takes nothing holds up one thread and no more.

use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use host::Waiters;
use units::Cpu;

use crate::MAX_PAYLOAD;
use crate::buffer::Output;
use crate::stream::Stream;

/// Requests of one connection that may be under way, and bytes of them; a longer one is under way
/// alone.
const MOST: usize = 64;
const MOST_BYTES: usize = MAX_PAYLOAD as usize;

/// The requests of a connection that are under way, and its way out.
pub(crate) struct Later {
    stream: Arc<Stream>,
    waiters: Arc<Waiters>,
    cpu: fn() -> Cpu,
    state: Mutex<State>,
    /// Signalled when a request has ended and when nobody sends any more.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    count: usize,
    bytes: usize,
    /// Some thread is sending.
    sending: bool,
    /// Replies for it to send next, and what each request has cost.
    ready: Vec<(Output, usize)>,
    /// The client is gone: nothing is sent any more.
    failed: bool,
}

impl Later {
    pub(crate) fn new(stream: Arc<Stream>, waiters: Arc<Waiters>, cpu: fn() -> Cpu) -> Later {
        Later { stream, waiters, cpu, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that panics runs while it is held.
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

    /// Has a request of `bytes` bytes carried out. `work` puts its reply.
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
            // Nobody would be told. The device goes before the connection that has it.
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
        // Without a thread it is this one that waits.
        if let Err(task) = self.waiters.take(task) {
            task();
        }
    }

    /// Sends what the connection itself has to say.
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

    /// Sends the replies that others left, then lets others send. `alive` is false when sending
    /// has failed.
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
            // The connection may be waiting for a request that never comes.
            self.stream.cut();
        }
    }

    /// Nothing is sent any more, and what is not yet begun is left.
    pub(crate) fn give_up(&self) {
        self.state().fail();
    }

    /// Waits until nothing is under way any more; what is gets its reply, unless the client is
    /// gone.
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

/// A request under way. Dropped without a reply, by a panic of the device for instance, it ends
/// its connection.
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
