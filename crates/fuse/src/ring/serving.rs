//! The threads of a connection's rings: each takes all waiting requests, carries them out, and
//! answers them in the same system call that waits for the next ones.
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

use super::plan::Part;
use super::{Entry, Event, Ring, Shape};

/// Bytes of a request which another thread carries out if others wait behind it: it takes longer
/// than waking that thread.
const LONG: usize = 32 << 10;
/// So many long writes one by one are given away after there were several at once.
const SEVERAL: usize = 16;

/// What carries requests out. Threads call it at once.
pub(crate) trait CarryOut: Send + Sync + 'static {
    /// Carries out the request in `entry` and puts the answer there. False if it would have to wait
    /// under `Wait::No`; nothing has changed then.
    fn carry_out(&self, entry: &mut Entry, wait: Wait) -> bool;
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
    /// The number of threads for requests that would have to wait, or are long and not alone; with
    /// 0 the others do that.
    pub(crate) waiters: usize,
}

/// A request for another thread: it would have to wait, or is long.
struct Job {
    ring: usize,
    entry: Entry,
}

/// The threads of a connection's rings. They end with the connection.
pub(crate) struct Rings {
    threads: Vec<JoinHandle<()>>,
    /// Those of requests that would have to wait or are long.
    waiters: Vec<JoinHandle<()>>,
    ids: Vec<i32>,
    jobs: Option<Arc<Jobs<Job>>>,
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
        let mut rings =
            Rings { threads: Vec::new(), waiters: Vec::new(), ids: Vec::new(), jobs: None };
        let mut start = Start { begin: Vec::new(), has_begun };
        let entries = parts.iter().map(|part| part.queues.len());
        if kind.waiters > 0 {
            rings.jobs = Some(Arc::new(Jobs::new(entries.clone().sum())));
        }
        let mailboxes = entries.map(|most| Mailbox::new(most).map(Arc::new));
        let mailboxes = mailboxes.collect::<io::Result<Vec<Arc<Mailbox<Entry>>>>>()?;
        for (number, part) in parts.into_iter().enumerate() {
            let mailbox = rings.jobs.is_some().then(|| mailboxes[number].clone());
            let (work, jobs) = (work.clone(), rings.jobs.clone());
            let (ready, begun) = (ready.clone(), begun.clone());
            let (begin, is_to_begin) = mpsc::channel();
            start.begin.push(begin);
            let thread = spawn(format!("{}-{number}", kind.name), kind, move || {
                let wake = mailbox.as_ref().map(|mailbox| mailbox.wake().clone());
                let made = make(&part, kind, wake);
                let Some(mut ring) = tell(made, ready) else { return };
                // It never comes if something else could not be made.
                let Ok(channel) = is_to_begin.recv() else { return };
                let is_begun = ring.begin(channel).and_then(|()| host::enter(kind.role));
                let may_serve = is_begun.is_ok();
                let _ = begun.send(is_begun);
                drop(begun);
                if may_serve {
                    Server { number, mailbox, jobs, work: &*work, several: 0 }.serve(&mut ring);
                }
            });
            rings.threads.push(thread?);
        }
        for number in 0..kind.waiters {
            let (work, jobs, mailboxes) = (work.clone(), rings.jobs.clone(), mailboxes.clone());
            let ready = ready.clone();
            let thread = spawn(format!("{}-w{number}", kind.name), kind, move || {
                prepare(kind);
                let Some(()) = tell(host::enter(kind.role), ready) else { return };
                while let Some(Job { ring, mut entry }) = jobs.as_ref().and_then(|it| it.take()) {
                    work.carry_out(&mut entry, Wait::Yes);
                    mailboxes[ring].send(entry);
                }
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
    pub(crate) fn join(mut self, end: Instant) -> bool {
        // A thread of a ring ends when the waiters have given its requests back.
        let wait = |threads: &[JoinHandle<()>]| {
            while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
        };
        wait(&self.threads);
        self.close();
        wait(&self.waiters);
        self.are_over() && self.waiters.iter().all(JoinHandle::is_finished)
    }

    fn close(&mut self) {
        if let Some(jobs) = &self.jobs {
            jobs.close();
        }
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.close();
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

/// Prepares a thread, and makes its ring.
fn make(part: &Part, kind: Kind, wake: Option<Arc<File>>) -> io::Result<Ring> {
    let ring = Ring::new(&part.queues, kind.shape, wake)?;
    // Where its CPU is taken away at this moment, it runs anywhere, only slower.
    let _ = part.cpu.map(host::pin_to_cpu);
    prepare(kind);
    Ok(ring)
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
    /// There with the list.
    mailbox: Option<Arc<Mailbox<Entry>>>,
    /// The list for requests that would have to wait or are long; None if there are no waiters.
    jobs: Option<Arc<Jobs<Job>>>,
    work: &'a W,
    /// How many long writes are still given away although they come alone.
    several: usize,
}

impl<W: CarryOut> Server<'_, W> {
    /// Serves until the connection ends.
    fn serve(&mut self, ring: &mut Ring) {
        while ring.is_live() {
            ring.wait();
            while let Some(event) = ring.next() {
                match event {
                    Event::Request(entry) => self.carry_out(ring, entry),
                    Event::Wake => {
                        self.mailbox.iter().for_each(|mailbox| mailbox.woken());
                        ring.rearm();
                    }
                }
            }
            while let Some(entry) = self.mailbox.as_ref().and_then(|mailbox| mailbox.take()) {
                ring.commit(entry);
            }
        }
    }

    fn carry_out(&mut self, ring: &mut Ring, mut entry: Entry) {
        if self.is_for_another(ring, &mut entry)
            && let Some(jobs) = &self.jobs
        {
            match jobs.offer(Job { ring: self.number, entry }) {
                Ok(()) => return,
                Err(job) => entry = job.entry,
            }
        }
        let wait = if self.jobs.is_some() { Wait::No } else { Wait::Yes };
        if !self.work.carry_out(&mut entry, wait)
            && let Some(jobs) = &self.jobs
        {
            match jobs.put(Job { ring: self.number, entry }) {
                Ok(()) => return,
                // The list has room for all requests, so this does not happen.
                Err(job) => {
                    entry = job.entry;
                    self.work.carry_out(&mut entry, Wait::Yes);
                }
            }
        }
        ring.commit(entry);
    }

    /// Whether a request is long, and others are under way or to be expected. A driver that sends
    /// the next request from this CPU is held up by the one that is carried out here, so several at
    /// once are seen as one after another; reads are too quick for that to matter.
    fn is_for_another(&mut self, ring: &mut Ring, entry: &mut Entry) -> bool {
        let (bytes, is_write) = entry.data_bytes();
        if bytes < LONG {
            return false;
        }
        let has_more = ring.has_more();
        if !is_write {
            return has_more;
        }
        let is_alone = !has_more && ring.under_way() == 1;
        self.several = if is_alone { self.several.saturating_sub(1) } else { SEVERAL };
        self.several > 0
    }
}
