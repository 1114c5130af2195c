//! Requests that would have to wait: other threads carry them out.
//!
//! A waiter thread takes such a request and sends its reply. Meanwhile the connection serves later
//! requests: the protocol lets a server answer in any order. The replies of a connection are sent
//! one after another. A thread that finds another thread sending leaves its reply to that thread.
//!
//! All connections share the waiters, so a waiter never waits for a client. It sends what the
//! client takes at once. It leaves the rest to a thread of the connection, which is started for
//! this and ends when everything is sent. Nor does a connection wait for a waiter that others have:
//! while it has none, its own thread waits for the device.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use host::{Task, Waiters};
use units::Cpu;

use crate::MAX_PAYLOAD;
use crate::buffer::{FIRST, Output};
use crate::peer::Peer;
use crate::shares::{Allowance, Share};
use crate::stream::Stream;

/// The most requests of one connection under way, and the most bytes of them. A longer request is
/// under way alone.
const MOST: usize = 64;
const MOST_BYTES: usize = MAX_PAYLOAD as usize;
/// This many of these bytes are not shared.
const OWN: usize = FIRST;
/// The stack of a thread that only sends, in bytes.
const STACK: usize = 128 << 10;

/// What all connections have for requests that would wait.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) waiters: Arc<Waiters>,
    /// The right to have one of them.
    pub(crate) turns: Allowance,
    pub(crate) memory: Allowance,
    pub(crate) cpu: fn() -> Cpu,
}

impl Common {
    /// The part of it that `peer` may have.
    pub(crate) fn of(&self, peer: Peer) -> Common {
        let (turns, memory) = (self.turns.of(peer), self.memory.of(peer));
        Common { turns, memory, ..self.clone() }
    }
}

/// The requests of a connection that are under way, and the stream for their replies.
pub(crate) struct Later {
    stream: Arc<Stream>,
    common: Common,
    state: Mutex<State>,
    /// Signalled, if somebody waits, when a request ends and when the sending thread is done.
    changed: Condvar,
}

/// Where a request that would wait is carried out.
pub(crate) enum Room {
    /// Nowhere, until others of this connection have ended.
    None,
    /// On the thread of the connection.
    Here,
    /// On a waiter.
    There(Permit),
}

/// The right to have a request of this many bytes under way.
pub(crate) struct Permit {
    bytes: usize,
    share: Option<Share>,
    /// None where the connection has a waiter, which takes this request next.
    turn: Option<Share>,
}

#[derive(Default)]
struct State {
    count: usize,
    bytes: usize,
    /// The waiters that this connection has, and what they do next.
    waiters: usize,
    tasks: VecDeque<Task>,
    /// The threads that wait for a change.
    waiting: usize,
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
    _share: Option<Share>,
}

impl Later {
    /// For `stream`, with what its peer may have.
    pub(crate) fn new(stream: Arc<Stream>, common: Common) -> Later {
        Later { stream, common, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that panics runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.waiting += 1;
        let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    /// Wakes who waits for a change. It takes a system call only if there is somebody.
    #[inline]
    fn wake(&self, state: MutexGuard<'_, State>) {
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// Finds room for one more request of `bytes` bytes.
    pub(crate) fn room(&self, bytes: usize) -> Room {
        let state = self.state();
        if !state.has_room(bytes) {
            return Room::None;
        }
        let (is_own, has_waiter) = (state.bytes + bytes <= OWN, state.waiters > 0);
        drop(state);
        let turn = self.common.turns.try_take(1);
        let share = if is_own { None } else { self.common.memory.try_take(bytes) };
        if (turn.is_none() && !has_waiter) || (share.is_none() && !is_own) {
            return Room::Here;
        }
        Room::There(Permit { bytes, share, turn })
    }

    /// Is no request under way, so that no other thread sends a reply?
    pub(crate) fn is_idle(&self) -> bool {
        self.state().count == 0
    }

    /// Waits until there is room for one more request of `bytes` bytes.
    pub(crate) fn wait_for_room(&self, bytes: usize) -> io::Result<()> {
        let mut state = self.state();
        while !state.has_room(bytes) && !state.failed {
            state = self.wait(state);
        }
        if state.failed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Hands a request to a waiter. `work` carries it out and puts its reply.
    pub(crate) fn begin(
        self: &Arc<Later>,
        permit: Permit,
        work: impl FnOnce(&mut Output, Cpu) -> io::Result<()> + Send + 'static,
    ) {
        let Permit { bytes, share, turn } = permit;
        let under_way = UnderWay { later: self.clone(), bytes, share, replied: false };
        let task: Task = Box::new(move || {
            // There is no client to answer. The device is dropped before the connection that has
            // it.
            if under_way.later.state().failed {
                drop(work);
                return;
            }
            let mut output = Output::small();
            // On an error `under_way` ends the connection.
            if work(&mut output, (under_way.later.common.cpu)()).is_ok() {
                under_way.reply(output);
            }
        });
        let mut state = self.state();
        state.count += 1;
        state.bytes += bytes;
        if turn.is_none() && state.waiters > 0 {
            state.tasks.push_back(task);
            return;
        }
        state.waiters += 1;
        drop(state);
        let Some(turn) = turn else {
            // Its waiter has just become another's.
            self.carry_out(task);
            return;
        };
        let later = self.clone();
        let tasks = Box::new(move || {
            later.carry_out(task);
            drop(turn);
        });
        // If there is no thread, this one waits.
        if let Err(tasks) = self.common.waiters.take(tasks) {
            tasks();
        }
    }

    /// Carries out a request, and those of this connection that wait for a waiter.
    fn carry_out(&self, first: Task) {
        let mut next = Some(first);
        while let Some(task) = next {
            // The panic hook has reported a panic; the request ends its connection.
            let _ = catch_unwind(AssertUnwindSafe(task));
            let mut state = self.state();
            next = state.tasks.pop_front();
            state.waiters -= usize::from(next.is_none());
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
        let sent = self.stream.send_all(output.filled(), None);
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
            if state.waiting > 0 {
                self.changed.notify_all();
            }
        }
        state.sending = false;
        self.wake(state);
        if !alive {
            // The connection's thread may still wait to receive: this wakes it.
            self.stream.cut();
        }
    }

    /// Sends one reply; false if the client does not take all of it now.
    fn send_one(&self, ready: &mut Ready, may_wait: bool) -> io::Result<bool> {
        if may_wait {
            let rest = &ready.output.filled()[ready.sent..];
            return self.stream.send_all(rest, None).map(|()| true);
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
    share: Option<Share>,
    replied: bool,
}

impl UnderWay {
    fn reply(mut self, output: Output) {
        self.replied = true;
        let later = &self.later;
        let ready = Ready { output, sent: 0, bytes: self.bytes, _share: self.share.take() };
        let mut state = later.state();
        state.ready.push_back(ready);
        if state.failed {
            state.fail();
            later.wake(state);
        } else if !state.sending {
            state.sending = true;
            drop(state);
            later.send_ready(true, false);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.replied {
            return;
        }
        let mut state = self.later.state();
        state.count -= 1;
        state.bytes -= self.bytes;
        state.fail();
        self.later.wake(state);
        self.later.stream.cut();
    }
}
