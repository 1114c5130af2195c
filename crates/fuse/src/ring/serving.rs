//! The threads of a connection's rings: each takes all waiting requests, carries them out, and
//! answers them in the same system call that waits for the next ones.
//!
//! A driver sends all its requests from one CPU, and the thread of that CPU answers one at a time
//! soonest: nobody is woken elsewhere. Where many come at once it hands some of its entries, with
//! their requests, to the next thread, which gets the requests of these entries from then on. An
//! entry comes back when the next thread alone had requests for a while. The kernel takes the entry
//! that was free last, so those that stay there are not used then.
//!
//! A serving thread uses its stack, its ring with its memory, and the files: no heap, no log. The
//! exception is a panic of a device: its report and its unwinding use the heap.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::Wait;
use host::{Jobs, Mailbox, Role};
use sync::CachePadded;
use sync::atomic::{AtomicUsize, Ordering};

use super::plan::Part;
use super::{Entry, Event, Ring, Shape, deal};

/// Requests that wait behind one at once before its entry goes to the next thread.
const CROWD: usize = 2;
/// So many requests in a row without one at the home of their entries bring these home.
const ALONE: usize = 16;

/// What carries requests out. Threads call it at once.
pub(crate) trait CarryOut: Send + Sync + 'static {
    /// Carries out the request in `entry` and puts the answer there. Under `Wait::No` it may leave
    /// that to another thread, all of it.
    fn carry_out(&self, entry: &mut Entry, wait: Wait) -> Carried;
}

/// What became of a request.
pub(crate) enum Carried {
    /// The answer is in its entry.
    Out,
    /// It would have to wait. Files share the threads that wait, each under a number.
    WouldWait(Option<u64>),
    /// It is about names, and all of those wait for one thread.
    Names,
}

/// What the threads of a connection have in common.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// The threads have this name and a number.
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// Each calls it once, before it gives up its privileges.
    pub(crate) begin: fn(),
    pub(crate) shape: Shape,
    /// The number of threads for requests that would have to wait; with 0 the others do that.
    pub(crate) waiters: usize,
    /// Has it a thread for names, beside waiters?
    pub(crate) names: bool,
}

/// A request for a thread that may wait.
struct Job {
    ring: usize,
    entry: Entry,
}

/// What the thread of a ring gets from other threads.
enum Message {
    /// An answer, for the kernel.
    Answer(Entry),
    /// A request, with the entry for good.
    Request(Entry),
}

/// What all threads of a connection know.
struct Team {
    mailboxes: Vec<Mailbox<Message>>,
    /// For each ring, the last one that had a request of its entries: a hint.
    last: Vec<CachePadded<AtomicUsize>>,
    /// None if there are no waiters.
    lists: Option<Lists>,
}

/// The requests for threads that may wait.
struct Lists {
    data: Jobs<Job>,
    names: Jobs<Job>,
}

impl Team {
    fn new(parts: &[Part], waiters: usize) -> io::Result<Team> {
        let entries = |part: &Part| part.queues.len();
        let all = parts.iter().map(entries).sum();
        // A ring has its own entries, and some of the one before it.
        let before = parts.iter().cycle().skip(parts.len().saturating_sub(1));
        let mailboxes = parts.iter().zip(before);
        let mailboxes = mailboxes.map(|(own, before)| Mailbox::new(entries(own) + entries(before)));
        let mailboxes = mailboxes.collect::<io::Result<_>>()?;
        let last = (0..parts.len()).map(|it| CachePadded::new(AtomicUsize::new(it))).collect();
        let lists = || Lists { data: Jobs::new(all, waiters), names: Jobs::new(all, 1) };
        Ok(Team { mailboxes, last, lists: (waiters > 0).then(lists) })
    }

    /// Carries out what is on a list until it is closed.
    fn wait_on(&self, list: &Jobs<Job>, work: &impl CarryOut) {
        while let Some((owner, Job { ring, mut entry })) = list.take() {
            work.carry_out(&mut entry, Wait::Yes);
            list.done(owner);
            self.mailboxes[ring].send(Message::Answer(entry));
        }
    }

    fn close(&self) {
        if let Some(lists) = &self.lists {
            lists.data.close();
            lists.names.close();
        }
    }
}

/// The threads of a connection's rings. They end with the connection.
pub(crate) struct Rings {
    threads: Vec<JoinHandle<()>>,
    /// Those of requests that would have to wait.
    waiters: Vec<JoinHandle<()>>,
    ids: Vec<i32>,
    team: Arc<Team>,
}

/// Lets the threads begin. A drop ends them.
pub(crate) struct Start {
    /// Tells each ring what to serve.
    begin: Vec<Sender<Arc<File>>>,
    has_begun: Receiver<io::Result<()>>,
}

impl Start {
    /// Serves the connection of `channel`, whose first request is answered. When it returns, the
    /// kernel hands requests to the rings.
    ///
    /// # Errors
    /// The kernel's refusal of a ring. The connection serves nobody then.
    pub(crate) fn begin(self, channel: &Arc<File>) -> io::Result<()> {
        for begin in &self.begin {
            begin.send(channel.clone()).map_err(io::Error::other)?;
        }
        for _ in &self.begin {
            self.has_begun.recv().map_err(io::Error::other)??;
        }
        Ok(())
    }
}

impl Rings {
    /// Starts the threads. When it returns they have all their memory, and wait for
    /// [`Start::begin`].
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn new(
        parts: Vec<Part>,
        kind: Kind,
        work: &Arc<impl CarryOut>,
    ) -> io::Result<(Rings, Start)> {
        let (ready, is_ready) = mpsc::channel();
        let (begun, has_begun) = mpsc::channel();
        let team = Arc::new(Team::new(&parts, kind.waiters)?);
        let mut rings =
            Rings { threads: Vec::new(), waiters: Vec::new(), ids: Vec::new(), team: team.clone() };
        let mut start = Start { begin: Vec::new(), has_begun };
        let dealt = deal(&parts, kind.shape)?;
        let all = dealt.iter().map(Vec::len).sum();
        for (number, (part, own)) in parts.into_iter().zip(dealt).enumerate() {
            let (work, team) = (work.clone(), team.clone());
            let (ready, begun) = (ready.clone(), begun.clone());
            let (begin, is_to_begin) = mpsc::channel();
            start.begin.push(begin);
            let thread = spawn(format!("{}-{number}", kind.name), kind, move || {
                let most = own.len() / 2;
                let made = Ring::new(own, all, team.mailboxes[number].wake().clone());
                let made = made.inspect(|_| {
                    // Where its CPU is taken away at this moment, it runs anywhere, only slower.
                    let _ = part.cpu.map(host::pin_to_cpu);
                    prepare(kind);
                });
                let Some(mut ring) = tell(made, ready) else { return };
                // It never comes if something else could not be made.
                let Ok(channel) = is_to_begin.recv() else { return };
                let is_begun = ring.begin(channel).and_then(|()| host::enter(kind.role));
                let may_serve = is_begun.is_ok();
                let _ = begun.send(is_begun);
                drop(begun);
                if may_serve {
                    let (team, work) = (&*team, &*work);
                    Server { number, team, work, most, away: 0, alone: 0 }.serve(&mut ring);
                }
            });
            rings.threads.push(thread?);
        }
        // The last one is for names.
        let names = usize::from(kind.names && kind.waiters > 0);
        for number in 0..kind.waiters + names {
            let (work, team, ready) = (work.clone(), team.clone(), ready.clone());
            let thread = spawn(format!("{}-w{number}", kind.name), kind, move || {
                prepare(kind);
                let Some(()) = tell(host::enter(kind.role), ready) else { return };
                let Some(lists) = &team.lists else { return };
                let list = if number < kind.waiters { &lists.data } else { &lists.names };
                team.wait_on(list, &*work);
            });
            rings.waiters.push(thread?);
        }
        drop(ready);
        for _ in 0..rings.threads.len() + rings.waiters.len() {
            // Only a thread that panicked sends nothing.
            rings.ids.push(is_ready.recv().map_err(io::Error::other)??);
        }
        Ok((rings, start))
    }

    /// The numbers of the threads, as in /proc/self/task.
    pub(crate) fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// Does nobody serve the connection any more?
    pub(crate) fn are_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all requests are carried out and the threads have ended, until `end` at most.
    /// Returns whether they have.
    pub(crate) fn join(self, end: Instant) -> bool {
        // A thread of a ring ends when the waiters have given its requests back.
        let wait = |threads: &[JoinHandle<()>]| {
            while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
        };
        wait(&self.threads);
        self.team.close();
        wait(&self.waiters);
        self.are_over() && self.waiters.iter().all(JoinHandle::is_finished)
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.team.close();
        // A thread that still carries out a request ends after it.
        let threads = self.threads.drain(..).chain(self.waiters.drain(..));
        for thread in threads.filter(JoinHandle::is_finished) {
            // The panic hook has reported a panic of this thread.
            let _ = thread.join();
        }
    }
}

fn spawn(
    name: String,
    kind: Kind,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name);
    match kind.shape.present {
        true => thread.stack_size(host::SERVING_STACK).spawn(run),
        // A usual stack takes memory where it is used, also when the process locks its memory later
        // (`host::make_resident`).
        false => thread.spawn(run),
    }
}

/// The last preparation of a thread.
fn prepare(kind: Kind) {
    if kind.shape.present {
        host::touch_stack();
    }
    (kind.begin)();
}

/// Reports the number of this thread, or why it cannot serve.
fn tell<T>(made: io::Result<T>, ready: Sender<io::Result<i32>>) -> Option<T> {
    let (made, told) = match made {
        Ok(made) => (Some(made), Ok(host::thread_id())),
        Err(error) => (None, Err(error)),
    };
    // The receiver is gone if another thread could not be started.
    let _ = ready.send(told);
    made
}

/// What serves one ring.
struct Server<'a, W> {
    number: usize,
    team: &'a Team,
    work: &'a W,
    /// The most entries of its own that the next ring may have.
    most: usize,
    /// How many that has.
    away: usize,
    /// Requests in a row of entries of another ring, with none there.
    alone: usize,
}

impl<W: CarryOut> Server<'_, W> {
    /// Serves until the connection ends.
    fn serve(&mut self, ring: &mut Ring) {
        let mailbox = &self.team.mailboxes[self.number];
        while ring.is_live() {
            ring.wait();
            while let Some(event) = ring.next() {
                match event {
                    Event::Request(entry) => self.take(ring, entry),
                    Event::Wake => {
                        mailbox.woken();
                        ring.rearm();
                    }
                }
            }
            while let Some(message) = mailbox.take() {
                match message {
                    Message::Request(entry) => {
                        ring.accept(&entry);
                        self.alone = 0;
                        self.carry_out(ring, entry);
                    }
                    Message::Answer(entry) => {
                        let is_back = ring.accept(&entry) && entry.home() == self.number;
                        self.away -= usize::from(is_back);
                        ring.commit(entry);
                    }
                }
            }
        }
    }

    /// Carries out a request of the kernel, or hands it to the next thread.
    fn take(&mut self, ring: &mut Ring, entry: Entry) {
        let rings = self.team.mailboxes.len();
        let is_at_home = entry.home() == self.number;
        if is_at_home && rings > 1 && self.away < self.most && ring.waiting() >= CROWD {
            ring.give(&entry);
            self.away += 1;
            self.team.mailboxes[(self.number + 1) % rings].send(Message::Request(entry));
            return;
        }
        let last = &self.team.last[entry.home()];
        let is_alone = last.load(Ordering::Relaxed) == self.number;
        if !is_alone {
            last.store(self.number, Ordering::Relaxed);
        }
        if !is_at_home {
            self.alone = if is_alone { self.alone + 1 } else { 0 };
        }
        self.carry_out(ring, entry);
    }

    fn carry_out(&mut self, ring: &mut Ring, mut entry: Entry) {
        let lists = self.team.lists.as_ref();
        let wait = if lists.is_some() { Wait::No } else { Wait::Yes };
        let (list, owner) = match (self.work.carry_out(&mut entry, wait), lists) {
            (Carried::WouldWait(owner), Some(lists)) => (&lists.data, owner),
            (Carried::Names, Some(lists)) => (&lists.names, None),
            _ => return self.answer(ring, entry),
        };
        list.put(owner, Job { ring: self.number, entry });
    }

    fn answer(&mut self, ring: &mut Ring, entry: Entry) {
        let home = entry.home();
        if home != self.number && self.alone >= ALONE {
            ring.give(&entry);
            self.team.mailboxes[home].send(Message::Answer(entry));
        } else {
            ring.commit(entry);
        }
    }
}
