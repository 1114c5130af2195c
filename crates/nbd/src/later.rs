//! Requests that would have to wait: other threads carry them out.
//!
//! A waiter thread takes such a request and sends its reply. Meanwhile the connection serves later
//! requests: the protocol lets a server answer in any order. The replies of a connection are sent
//! one after another. A thread that finds another thread sending leaves its reply to that thread.
//!
//! All connections share the waiters, so a waiter never waits for a client. It sends what the
//! client takes at once. It leaves the rest to a thread of the connection, which is started for
//! this and ends when everything is sent.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use host::Waiters;
use units::Cpu;

use crate::MAX_PAYLOAD;
use crate::budget::{Budget, Share};
use crate::buffer::Output;
use crate::stream::Stream;

/// The most requests of one connection under way, and the most bytes of them. A longer request is
/// under way alone.
const MOST: usize = 64;
const MOST_BYTES: usize = MAX_PAYLOAD as usize;
/// The stack of a thread that only sends, in bytes.
const STACK: usize = 128 << 10;

/// The requests of a connection that are under way, and the stream for their replies.
pub(crate) struct Later {
    stream: Arc<Stream>,
    waiters: Arc<Waiters>,
    budget: Arc<Budget>,
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
    /// Replies that this thread sends next.
    ready: VecDeque<Ready>,
    /// The client is gone: no reply is sent any more.
    failed: bool,
}

/// A reply that is to be sent.
struct Ready {
    output: Output,
    /// This many bytes of it are sent.
    sent: usize,
    /// The cost of its request.
    bytes: usize,
    _share: Share,
}

impl Later {
    pub(crate) fn new(
        stream: Arc<Stream>,
        waiters: Arc<Waiters>,
        budget: Arc<Budget>,
        cpu: fn() -> Cpu,
    ) -> Later {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Later { stream, waiters, budget, cpu, state, changed }
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

    /// The memory for a request of `bytes` bytes, if it is there.
    pub(crate) fn try_share(&self, bytes: usize) -> Option<Share> {
        self.budget.try_take(bytes)
    }

    /// Hands a request of `bytes` bytes to a waiter. `work` carries it out and puts its reply.
    pub(crate) fn begin(
        self: &Arc<Later>,
        bytes: usize,
        share: Share,
        work: impl FnOnce(&mut Output, Cpu) -> io::Result<()> + Send + 'static,
    ) {
        let mut state = self.state();
        state.count += 1;
        state.bytes += bytes;
        drop(state);
        let under_way = UnderWay { later: self.clone(), bytes, share: Some(share) };
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

    /// Sends the output of the connection's own thread, which may wait for the client.
    #[inline]
    pub(crate) fn send(self: &Arc<Later>, output: &mut Output) -> io::Result<()> {
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
        let shared = output.has_share();
        let sent =
            self.stream.send_all(output.filled(), |stalled| !shared || self.budget.bears(stalled));
        output.sent();
        self.send_ready(sent.is_ok(), true);
        sent
    }

    /// Sends the replies that other threads left, then lets other threads send. `alive` is false
    /// when sending has failed. If this thread may not wait for the client, another thread sends
    /// the rest.
    fn send_ready(self: &Arc<Later>, mut alive: bool, may_wait: bool) {
        let mut state = self.state();
        loop {
            if !alive || state.failed {
                state.fail();
            }
            let Some(mut ready) = state.ready.pop_front() else { break };
            drop(state);
            let sent = self.send_one(&mut ready, may_wait);
            state = self.state();
            if let Ok(false) = sent {
                state.ready.push_front(ready);
                drop(state);
                if self.hand_over() {
                    return;
                }
                (alive, state) = (false, self.state());
                continue;
            }
            alive = sent.is_ok();
            state.count -= 1;
            state.bytes -= ready.bytes;
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

    /// Sends one reply; false if the client does not take all of it now.
    fn send_one(&self, ready: &mut Ready, may_wait: bool) -> io::Result<bool> {
        if may_wait {
            let rest = &ready.output.filled()[ready.sent..];
            return self.stream.send_all(rest, |it| self.budget.bears(it)).map(|()| true);
        }
        while ready.sent < ready.output.len() {
            match self.stream.send_now(&ready.output.filled()[ready.sent..])? {
                0 => return Ok(false),
                sent => ready.sent += sent,
            }
        }
        self.stream.flush_now()
    }

    /// Lets a new thread send the rest; false if there can be none.
    #[cold]
    fn hand_over(self: &Arc<Later>) -> bool {
        let later = self.clone();
        let thread = thread::Builder::new().name("nbd-send".into()).stack_size(STACK);
        thread.spawn(move || later.send_ready(true, true)).is_ok()
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
        for ready in self.ready.drain(..) {
            self.count -= 1;
            self.bytes -= ready.bytes;
        }
    }
}

/// A request under way. When it is dropped without a reply, for example by a panic of the device,
/// it ends its connection.
struct UnderWay {
    later: Arc<Later>,
    bytes: usize,
    /// None after the reply.
    share: Option<Share>,
}

impl UnderWay {
    fn reply(mut self, output: Output) {
        let Some(share) = self.share.take() else { return };
        let later = &self.later;
        let mut state = later.state();
        state.ready.push_back(Ready { output, sent: 0, bytes: self.bytes, _share: share });
        if state.failed {
            state.fail();
            drop(state);
            later.changed.notify_all();
        } else if !state.sending {
            state.sending = true;
            drop(state);
            later.send_ready(true, false);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.share.is_none() {
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
