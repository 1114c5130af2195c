//! Makes, serves and removes a device.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::BlockDevice;
use host::{Jobs, Mailbox, Role, errno};
use units::{Cpu, PAGE_SIZE};

use crate::Error;
use crate::answer::Served;
use crate::control::Control;
use crate::nodes::{self, Kind};
use crate::queue::Queue;
use crate::ring::{Ring, Shape, Tag};
use crate::waiters::{self, Job};
use crate::wire::{self, Info, Parameters};

pub(crate) mod quiesced;
pub(crate) mod recovery;

/// How long the threads may take to end after the device is stopped.
const ENDING: Duration = Duration::from_secs(5);
/// How long the nodes of a new device may take to appear, and the nodes of an old one to go.
const NODES: Duration = Duration::from_secs(5);

/// The fewest requests that the block layer can be limited to.
const FEWEST: u16 = 4;

/// How a [`Ublk`] is served.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of queues, each with its own thread: at least 1, and at most one for each CPU
    /// that this process may use.
    pub queues: usize,
    /// The number of requests that one queue takes at once, 1 to 4096. Each has its own buffer.
    pub depth: u16,
    /// The largest request in bytes; a multiple of the system's page.
    pub largest: u32,
    /// The number of threads for requests that would wait for a slower device. With 0 the queues'
    /// threads wait.
    pub waiters: usize,
    /// Returns the CPU of the calling thread. Must neither allocate nor wait.
    pub cpu: fn() -> Cpu,
    /// Each thread calls it once, before it gives up its privileges and serves; it may set the
    /// thread's priority.
    pub begin: fn(),
    /// When this process dies, the device stays and its requests wait for another process
    /// ([`Ublk::recover`]), without end if there is none. With a driver older than Linux 6.16 it
    /// has one queue then, whatever `queues` says: in Linux 6.12 a server that is killed when it
    /// has taken over one of several queues leaves a device that the driver cannot recover. `depth`
    /// must be at least 5.
    pub recoverable: bool,
    /// The [`Id::maker`] of a new device. [`Ublk::recover`] does not use it.
    pub maker: u32,
}

/// A device among all that ever were: its number is used again after it is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id {
    /// The N of `/dev/ublkbN`.
    pub number: u32,
    /// Who made it, by a number of the caller's choice. Processes that follow each other in one
    /// place have the same number, and others on this machine, in whatever container, have another
    /// one. No process number can do that: it says nothing in another PID namespace.
    pub maker: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            queues: 1,
            depth: 64,
            largest: 128 << 10,
            waiters: 2,
            cpu: host::cpu,
            begin: || {},
            recoverable: false,
            maker: 0,
        }
    }
}

impl Options {
    fn check(&self, device: &dyn BlockDevice) -> Result<(), Error> {
        let bytes = device.geometry().bytes;
        let wrong = if self.queues == 0 {
            "it needs a queue"
        } else if self.depth == 0 || self.depth > wire::MOST_DEPTH {
            "a queue takes 1 to 4096 requests at once"
        } else if self.recoverable && self.depth <= FEWEST {
            "a queue of a recoverable device takes at least 5 requests at once"
        } else if self.largest == 0 || !u64::from(self.largest).is_multiple_of(host::page_bytes()) {
            "the bytes of a request must be a multiple of the system's page"
        } else if bytes == 0 || !bytes.is_multiple_of(PAGE_SIZE as u64) {
            "its size must be a multiple of 4096 bytes, and not 0"
        } else {
            return Ok(());
        };
        Err(Error::Unfit(wrong))
    }
}

/// What this process has to do with the device of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    /// It serves the device.
    Serves,
    /// The driver keeps the device and its requests for the next server, in whatever process.
    Left,
    /// It was removed. Another device may have the number.
    Gone,
}

/// A block device /dev/ublkbN; threads of this process carry out its requests. Any thread that does
/// not serve it may call every method. Dropping it removes it, by force if needed: its users then
/// get errors. But one that was left to the next server ([`Ublk::quiesce`]) stays.
pub struct Ublk {
    control: Control,
    number: u32,
    path: PathBuf,
    stand: Stand,
    /// The driver can change its size.
    resizable: bool,
    /// The driver can keep requests for the next server.
    quiesces: bool,
    served: Arc<Served>,
    options: Options,
    /// The character device of the server.
    device: Option<Arc<File>>,
    mailboxes: Vec<Arc<Mailbox<(Tag, i32)>>>,
    jobs: Option<Arc<Jobs<Job<Tag>>>>,
    threads: Vec<JoinHandle<()>>,
    ids: Vec<i32>,
}

impl Ublk {
    /// Serves `device`, the outermost device of its chain, as a new block device for root only. Its
    /// size is the size of `device` now; [`Ublk::resize`] follows a change. When this returns, all
    /// threads have their memory and the node of the block device exists.
    ///
    /// # Errors
    /// Those of [`crate::available`]; [`Error::Unfit`] for invalid options or a device that cannot
    /// be served.
    pub fn serve(device: Arc<dyn BlockDevice>, options: Options) -> Result<Ublk, Error> {
        options.check(&*device)?;
        let mut control = Control::open()?;
        let only_one = options.recoverable && control.features & wire::PER_IO_DAEMON == 0;
        let queues = if only_one { 1 } else { options.queues.min(host::online_cpus()) };
        let queues = u16::try_from(queues).unwrap_or(u16::MAX);
        let mark = wire::mark(options.maker);
        let mut info = Info::new(queues, options.depth, options.largest, mark);
        let known = |flags| control.features & flags;
        info.flags = known(wire::RESIZABLE | wire::NO_PARTITIONS);
        if options.recoverable {
            info.flags |= wire::RECOVERABLE | known(wire::QUIESCES);
        }
        control.add(&mut info).map_err(|error| match error.raw_os_error() {
            Some(errno::EPERM | errno::EACCES) => Error::NoPermission,
            _ => Error::system("add a ublk device")(error),
        })?;
        let parameters = Parameters::new(device.geometry(), device.abilities(), info.largest);
        // From here on, dropping `ublk` undoes everything.
        let mut ublk = Ublk::new(control, &info, device, options);
        if options.recoverable && !info.is_recoverable() {
            return Err(Error::Unfit("the driver keeps no device of a server that died"));
        }
        let set = ublk.control.set(info.number, parameters);
        set.map_err(Error::system(format!("describe {} to the driver", ublk.path.display())))?;
        ublk.start(&info)?;
        let started = ublk.control.start(info.number);
        started.map_err(Error::system(format!("start {}", ublk.path.display())))?;
        wait_for_node(Kind::Block, info.number)?;
        nodes::pass_at_once(info.number);
        if options.recoverable {
            // In Linux 6.12 the driver notices the end of a server by a tag that the server
            // has not got, or else by the time-out of a request. So one tag is never used.
            nodes::limit_requests(info.number, options.depth - 1);
        }
        Ok(ublk)
    }

    fn new(control: Control, info: &Info, device: Arc<dyn BlockDevice>, options: Options) -> Ublk {
        let served = Served::new(device, options.cpu, info.largest as usize);
        Ublk {
            control,
            number: info.number,
            path: nodes::path(Kind::Block, info.number),
            stand: Stand::Serves,
            resizable: info.flags & wire::RESIZABLE != 0,
            quiesces: info.flags & wire::QUIESCES != 0,
            served: Arc::new(served),
            options,
            device: None,
            mailboxes: Vec::new(),
            jobs: None,
            threads: Vec::new(),
            ids: Vec::new(),
        }
    }

    fn start(&mut self, info: &Info) -> Result<(), Error> {
        let (served, options) = (self.served.clone(), self.options);
        let doing = || Error::system("start the threads of a ublk device");
        let node = wait_for_node(Kind::Character, self.number)?;
        let device = open(&node).map_err(Error::system(format!("open {}", node.display())))?;
        let device = Arc::new(device);
        self.device = Some(device.clone());
        let requests = usize::from(info.queues) * usize::from(info.depth);
        self.jobs = (options.waiters > 0).then(|| Arc::new(Jobs::new(requests, options.waiters)));
        let (ready, is_ready) = mpsc::channel();
        let begin = options.begin;
        for number in 0..info.queues {
            let mailbox = Mailbox::new(usize::from(info.depth)).map_err(doing())?;
            let (wake, mailbox) = (mailbox.wake().clone(), Arc::new(mailbox));
            self.mailboxes.push(mailbox.clone());
            let (served, jobs) = (served.clone(), self.jobs.clone());
            let queue = Queue { number, served, mailbox, jobs };
            let shape = Shape {
                queue: number,
                depth: info.depth,
                largest: info.largest as usize,
                page: host::page_bytes() as usize,
            };
            let (device, ready) = (device.clone(), ready.clone());
            self.spawn(format!("ublk-io-{number}"), move || {
                let made = Ring::new(device, shape, wake).and_then(|mut ring| {
                    get_ready(begin)?;
                    ring.begin()?;
                    Ok(ring)
                });
                if let Some(mut ring) = say(made, ready) {
                    queue.serve(&mut ring);
                }
            })?;
        }
        for number in 0..options.waiters {
            let (served, mailboxes) = (served.clone(), self.mailboxes.clone());
            let (Some(jobs), ready) = (self.jobs.clone(), ready.clone()) else { break };
            self.spawn(format!("ublk-wait-{number}"), move || {
                if say(get_ready(begin), ready).is_some() {
                    waiters::wait(&jobs, &mailboxes, &served);
                }
            })?;
        }
        drop(ready);
        self.await_threads(&is_ready).map_err(doing())
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = thread::Builder::new().name(name).stack_size(host::SERVING_STACK).spawn(run);
        self.threads.push(thread.map_err(Error::system("start a thread of a ublk device"))?);
        Ok(())
    }

    fn await_threads(&mut self, is_ready: &Receiver<io::Result<i32>>) -> io::Result<()> {
        for _ in 0..self.threads.len() {
            // Only a thread that panicked sends nothing.
            let id = is_ready.recv().map_err(io::Error::other)??;
            self.ids.push(id);
        }
        Ok(())
    }

    /// Makes a partition of each range of bytes and returns their nodes, `/dev/ublkbNp1` and on. It
    /// writes nothing to the device; the partitions go with the device. Call it once, from one
    /// thread.
    ///
    /// # Errors
    /// The error of the system, also for ranges that overlap or pass the end of the device.
    /// Partitions that were made stay.
    pub fn split(&self, parts: &[Range<u64>]) -> Result<Vec<PathBuf>, Error> {
        let doing = || Error::system(format!("cut {} into partitions", self.path.display()));
        let device = OpenOptions::new().read(true).write(true).open(&self.path).map_err(doing())?;
        let mut nodes = Vec::new();
        for (number, part) in (1..).zip(parts) {
            host::add_partition(&device, number, part.clone()).map_err(doing())?;
            nodes.push(wait_for(|| nodes::make_part(self.number, number)).map_err(doing())?);
        }
        Ok(nodes)
    }

    /// The nodes of its partitions, in order: those of [`Ublk::split`], also of a process before
    /// this one.
    ///
    /// # Errors
    /// The error of the system if a node cannot be made.
    pub fn parts(&self) -> Result<Vec<PathBuf>, Error> {
        let doing = || Error::system(format!("find the partitions of {}", self.path.display()));
        let part = |number| match nodes::make_part(self.number, number) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            made => Some(made.map_err(doing())),
        };
        (1..).map_while(part).collect()
    }

    /// Whether [`Ublk::resize`] can work: the driver is of Linux 6.16 or later.
    #[must_use]
    pub fn is_resizable(&self) -> bool {
        self.resizable
    }

    /// Tells the driver that the device has `bytes` bytes now, a multiple of 4096 and not 0. Its
    /// users see the new size when this returns; requests go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Unfit`] for another size, or a driver that changes none; the error of the driver.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Error> {
        if !self.resizable {
            return Err(Error::Unfit("the driver changes no device's size before Linux 6.16"));
        }
        if bytes == 0 || !bytes.is_multiple_of(PAGE_SIZE as u64) {
            return Err(Error::Unfit("its size must be a multiple of 4096 bytes, and not 0"));
        }
        let resized = self.control.resize(self.number, bytes);
        resized.map_err(Error::system(format!("change the size of {}", self.path.display())))
    }

    /// Its node, `/dev/ublkbN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The N of `/dev/ublkbN`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// By what another process can recover it ([`Ublk::recover`]).
    #[must_use]
    pub fn id(&self) -> Id {
        Id { number: self.number, maker: self.options.maker }
    }

    /// The numbers of its threads, as in /proc/self/task: queue threads and waiters.
    #[must_use]
    pub fn threads(&self) -> &[i32] {
        &self.ids
    }

    /// Does it exist? False after it was removed or another process deleted it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.stand != Stand::Gone && nodes::attributes(Kind::Block, self.number).exists()
    }

    /// Is it mounted, swapped to, or held by another device? A program that only has it open does
    /// not count.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        let claimed = nodes::claim(self.number);
        claimed.is_err_and(|error| error.raw_os_error() == Some(errno::EBUSY))
    }

    /// Removes the device, also one that was left to the next server. Waits until the requests
    /// under way are answered and its threads have ended. Does nothing the second time. With
    /// `force` its users get errors.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is mounted, swapped to, or held by another device; nothing has changed
    /// then. A program that only has it open does not prevent the removal.
    pub fn take_down(&mut self, force: bool) -> Result<(), Error> {
        if self.stand == Stand::Gone {
            return Ok(());
        }
        if force {
            let stopped = self.control.stop(self.number);
            return self.end(stopped);
        }
        // The exclusive open is held until the device is stopped, so that no user can begin.
        let claim = match nodes::claim(self.number) {
            Err(error) if error.raw_os_error() == Some(errno::EBUSY) => {
                return Err(Error::Busy(self.path.clone()));
            }
            // A device without a node, or a node without a device, has no users.
            claimed => claimed.ok(),
        };
        let stopped = self.control.stop(self.number);
        drop(claim);
        self.end(stopped)
    }

    /// Cleans up after the driver was told to stop the device.
    fn end(&mut self, stopped: io::Result<()>) -> Result<(), Error> {
        let doing = Error::system(format!("take {} down", self.path.display()));
        let stopped = match stopped {
            // Another process deleted it.
            Err(error) if error.raw_os_error() == Some(errno::ENODEV) => Ok(()),
            stopped => stopped,
        };
        self.join();
        // While this process has it open, no other device gets its number, even if another process
        // deletes it.
        let deleted = self.control.delete_later(self.number);
        self.device = None;
        let deleted = deleted.or_else(|_| self.control.delete(self.number));
        self.stand = Stand::Gone;
        wait_until_gone(self.number);
        nodes::remove(self.number);
        stopped.and(deleted).map_err(doing)
    }

    /// Ends its threads and closes it; the driver keeps it, and what they have not answered comes
    /// again. False if one still carries out a request at `end`: it could do so after what comes
    /// later, so nobody may serve on before it has ended.
    fn leave(&mut self, end: Instant) -> bool {
        self.mailboxes.iter().for_each(|mailbox| mailbox.leave());
        if let Some(jobs) = &self.jobs {
            jobs.give_up();
        }
        if !self.wait_for_threads(end) {
            return false;
        }
        // The panic hook has reported a panic of a thread.
        self.threads.drain(..).for_each(|thread| _ = thread.join());
        (self.mailboxes, self.ids) = (Vec::new(), Vec::new());
        (self.jobs, self.device) = (None, None);
        true
    }

    /// Whether all threads have ended, at `end` at the latest.
    fn wait_for_threads(&self, end: Instant) -> bool {
        let is_over = || self.threads.iter().all(JoinHandle::is_finished);
        while !is_over() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        is_over()
    }

    fn join(&mut self) {
        if let Some(jobs) = &self.jobs {
            jobs.close();
        }
        let end = Instant::now() + ENDING;
        if !self.wait_for_threads(end) {
            // The driver still has a request; the kernel cancels it when the ring is closed.
            self.mailboxes.iter().for_each(|mailbox| mailbox.leave());
            self.wait_for_threads(end + ENDING);
        }
        for thread in self.threads.drain(..).filter(JoinHandle::is_finished) {
            // The panic hook has reported a panic of this thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Ublk {
    fn drop(&mut self) {
        match self.stand {
            Stand::Serves => _ = self.take_down(true),
            // Another server is to have it.
            Stand::Left => _ = self.leave(Instant::now() + ENDING),
            Stand::Gone => {}
        }
    }
}

/// The last preparation of a thread before it serves.
fn get_ready(begin: fn()) -> io::Result<()> {
    host::touch_stack();
    begin();
    host::enter(Role::SwapUblk)
}

/// Reports the result of the preparation to the waiting thread, and returns the value that was
/// made.
fn say<T>(made: io::Result<T>, ready: Sender<io::Result<i32>>) -> Option<T> {
    let (made, told) = match made {
        Ok(made) => (Some(made), Ok(host::thread_id())),
        Err(error) => (None, Err(error)),
    };
    // The receiver is gone if another thread could not be started; the device is deleted then.
    let _ = ready.send(told);
    made
}

/// Opens the node of the server. The kernel may still be closing the file of a server that died.
fn open(node: &Path) -> io::Result<File> {
    let end = Instant::now() + NODES;
    loop {
        match OpenOptions::new().read(true).write(true).open(node) {
            Err(error) if error.raw_os_error() == Some(errno::EBUSY) && Instant::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}

/// Waits for the node of a new device.
fn wait_for_node(kind: Kind, number: u32) -> Result<PathBuf, Error> {
    let node = nodes::path(kind, number);
    wait_for(|| nodes::make(kind, number))
        .map_err(Error::system(format!("make {}", node.display())))
}

/// The result of `make`, repeated until the system shows the device.
fn wait_for(make: impl Fn() -> io::Result<PathBuf>) -> io::Result<PathBuf> {
    let end = Instant::now() + NODES;
    loop {
        match make() {
            Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            made => return made,
        }
    }
}

/// Waits until the system no longer shows the device.
pub(crate) fn wait_until_gone(number: u32) {
    let end = Instant::now() + NODES;
    while nodes::attributes(Kind::Character, number).exists() && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
}
