//! Serves one file that the kernel may swap to.
//!
//! When there is no free memory, the kernel waits for its swap space, so a serving thread must not
//! wait for memory: a page fault in it would wait for writeback that only this thread can do. So
//! this file is served without the library that serves the other files. The threads have all their
//! memory before they begin: a stack and a buffer, written page by page. Then they read requests,
//! carry them out and answer them, and do nothing else.
//!
//! Two more conditions: the caller locks the memory of the process (`mlockall(2)`), and the device
//! does not allocate.
//!
//! The root of the mount is the file itself, so no name is looked up.
//!
//! The file can outlive its server. The mount, its open files and the requests of its users live in
//! the kernel as long as somebody has a descriptor of the connection. So whoever keeps all of
//! [`SwapFile::channels`] while a server dies can give them to the next one
//! ([`SwapFile::take_over`]). Requests that the dead one had read come again.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::BlockDevice;
use host::Role;
use units::Cpu;

use self::answer::File;
use self::buffer::Buffer;
use crate::place::{ENDING, Place};
use crate::ring::Shape;
use crate::ring::enabled::Enabled;
use crate::ring::plan::{OF_SWAP, parts};
use crate::ring::serving::{Kind, Rings};
use crate::{Error, handover, own_files};

mod answer;
mod buffer;
mod connection;
pub(crate) mod reply;
mod serve;
pub mod wire;

pub(crate) use connection::remove_point;

/// How a [`SwapFile`] is served.
#[derive(Clone, Copy, Debug)]
pub struct SwapFileOptions {
    /// The number of serving threads, which may wait for the device; at least one.
    pub threads: usize,
    /// Have the kernel hand requests over by io_uring if it can (Linux 6.14): a thread for each
    /// CPU serves then instead of `threads`, and no other process can take the file over. Requests
    /// under way fail when this process dies.
    pub ring: bool,
    /// With io_uring: the number of threads for requests that would wait for the device. With 0
    /// each thread waits itself.
    pub waiters: usize,
    /// Returns the CPU of the calling thread. Must neither allocate nor wait.
    pub cpu: fn() -> Cpu,
    /// Each thread calls it once, before it gives up its privileges and serves; it may set the
    /// thread's priority.
    pub begin: fn(),
}

impl Default for SwapFileOptions {
    fn default() -> SwapFileOptions {
        SwapFileOptions { threads: 2, ring: false, waiters: 0, cpu: host::cpu, begin: || {} }
    }
}

/// One file, served by its own threads, which never allocate and never wait for memory. Any thread
/// that does not serve it may call every method. Dropping it unmounts it, by force if needed.
pub struct SwapFile {
    place: Place,
    file: Arc<File>,
    threads: Vec<JoinHandle<()>>,
    ids: Vec<i32>,
    channels: Vec<Arc<fs::File>>,
    /// What serves it by io_uring. One thread remains for what the kernel sends in the other way.
    rings: Option<Rings>,
    /// Why there are none although they were wanted.
    lack: Option<String>,
    has_resend: bool,
}

impl SwapFile {
    /// Serves `device`, the outermost device of its chain, as the file `at`, to root only. It makes
    /// an empty file there as the mount point and removes it in the end; the directory must exist.
    /// The size of the file is the size of the device now, which must not change. All threads have
    /// their memory when this returns.
    ///
    /// # Errors
    /// [`Error`] names the missing thing: FUSE, the permission, or a file to mount on.
    pub fn serve(
        at: &Path,
        device: Arc<dyn BlockDevice>,
        options: SwapFileOptions,
    ) -> Result<SwapFile, Error> {
        let file = Arc::new(File::new(device, options.cpu, host::owner()));
        let mut lack = None;
        if options.ring {
            match SwapFile::serve_by_ring(at, &file, options)? {
                Ok(swap) => return Ok(swap),
                Err(error) => lack = Some(error.to_string()),
            }
        }
        let (mut swap, channel, _) = SwapFile::open(at, file, false)?;
        swap.lack = lack;
        for _ in 1..options.threads {
            swap.channels.push(connection::another(&channel)?.into());
        }
        swap.channels.push(channel);
        swap.start(options.begin)?;
        swap.reach()
    }

    /// Serves it by io_uring. Where that cannot be, nothing is left, and the second error says why.
    fn serve_by_ring(
        at: &Path,
        file: &Arc<File>,
        options: SwapFileOptions,
    ) -> Result<io::Result<SwapFile>, Error> {
        let page = host::page_bytes() as usize;
        let shape = Shape { largest: connection::largest(page), page, present: true };
        let SwapFileOptions { waiters, begin, .. } = options;
        let (role, names) = (Role::SwapFile, false);
        let kind = Kind { name: "swap-io", role, begin, shape, waiters, names };
        let cpus = (host::possible_cpus(), host::cpus());
        let parts = parts(&OF_SWAP, cpus, &host::allowed_cpus());
        let (rings, start) = match parts.and_then(|parts| Rings::new(parts, kind, file)) {
            Ok(made) => made,
            Err(error) => return Ok(Err(error)),
        };
        let enabled = match Enabled::now() {
            Ok(enabled) => enabled,
            Err(error) => return Ok(Err(error)),
        };
        let (mut swap, channel, has_ring) = SwapFile::open(at, file.clone(), true)?;
        drop(enabled);
        if !has_ring {
            return Ok(Err(io::Error::other("the kernel does not offer it")));
        }
        if let Err(error) = start.begin(&channel) {
            return Ok(Err(error));
        }
        swap.ids.extend(rings.ids());
        swap.rings = Some(rings);
        swap.channels.push(channel);
        swap.start(begin)?;
        swap.reach().map(Ok)
    }

    /// Mounts the file. Dropping the result undoes everything. Returns the descriptor of its
    /// requests, and whether the kernel waits for rings.
    fn open(
        at: &Path,
        file: Arc<File>,
        ring: bool,
    ) -> Result<(SwapFile, Arc<fs::File>, bool), Error> {
        let page = host::page_bytes() as usize;
        let path = connection::prepare(at)?;
        let mut buffer = Buffer::new(connection::largest(page), page);
        let opened = connection::open(path.clone(), host::owner(), (page, ring), &mut buffer);
        let (place, channel, agreed) = opened.inspect_err(|_| remove_point(&path))?;
        Ok((SwapFile::new(place, file, agreed.resend), channel.into(), agreed.ring))
    }

    /// Here the kernel learns the size. The answer shows that the threads serve.
    fn reach(self) -> Result<SwapFile, Error> {
        own_files::metadata(self.path()).map_err(Error::system("reach the new file"))?;
        Ok(self)
    }

    /// Serves on what a process that died served as the file `at`. `channels` are all of its
    /// [`SwapFile::channels`]; there is a thread for each, whatever `options.threads` says.
    /// `device` has the contents that the file had, and its size. The kernel asks again for every
    /// request that the process had not answered, also for one that it had carried out. For users
    /// of the file the dead process was slow, no more.
    ///
    /// The process must have ended with all its threads: one that still answered would answer
    /// requests that this one has as well.
    ///
    /// # Errors
    /// [`Error::System`] if the file is not mounted any more. If the kernel cannot ask again, which
    /// [`SwapFile::can_be_taken_over`] tells before, all requests fail and the file is unmounted.
    /// After another error the file stays, and its users wait for the next process, but for what
    /// threads that could be started answer until this one ends.
    pub fn take_over(
        at: &Path,
        channels: Vec<OwnedFd>,
        device: Arc<dyn BlockDevice>,
        options: SwapFileOptions,
    ) -> Result<SwapFile, Error> {
        let channels: Vec<Arc<fs::File>> =
            channels.into_iter().map(|channel| Arc::new(channel.into())).collect();
        let place = handover::take_over(at, channels.first().map(|channel| &**channel))?;
        let file = Arc::new(File::new(device, options.cpu, host::owner()));
        let mut swap = SwapFile::new(place, file, true);
        swap.channels = channels;
        match swap.start(options.begin) {
            Ok(()) => Ok(swap),
            Err(error) => {
                // Its drop would take the file away from its users.
                mem::forget(swap);
                Err(error)
            }
        }
    }

    fn new(place: Place, file: Arc<File>, has_resend: bool) -> SwapFile {
        let (threads, ids, channels) = (Vec::new(), Vec::new(), Vec::new());
        SwapFile { place, file, threads, ids, channels, rings: None, lack: None, has_resend }
    }

    /// Starts a thread for each channel. All have their memory when this returns.
    fn start(&mut self, begin: fn()) -> Result<(), Error> {
        let page = host::page_bytes() as usize;
        let size = connection::largest(page);
        let (ready, is_ready) = mpsc::channel();
        let doing = || Error::system("start the threads of the file");
        let ringed = self.ids.len();
        for (number, channel) in (ringed..).zip(&self.channels) {
            let (file, ready) = (self.file.clone(), ready.clone());
            let channel = channel.clone();
            let run = move || {
                let mut buffer = Buffer::new(size, page);
                if get_ready(begin, ready) {
                    serve::serve(&channel, &file, &mut buffer);
                }
            };
            let thread = thread::Builder::new();
            let thread = thread.name(format!("swap-io-{number}")).stack_size(host::SERVING_STACK);
            self.threads.push(thread.spawn(run).map_err(doing())?);
        }
        drop(ready);
        for _ in 0..self.threads.len() {
            // Only a thread that panicked sends nothing.
            let id = is_ready.recv().map_err(io::Error::other).and_then(|id| id);
            self.ids.push(id.map_err(doing())?);
        }
        Ok(())
    }

    /// The file, as an absolute path without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.at
    }

    /// The numbers of the serving threads, as in /proc/self/task.
    #[must_use]
    pub fn threads(&self) -> &[i32] {
        &self.ids
    }

    /// The descriptors that it is served by. A process that has copies of all of them keeps the
    /// file, its mount and the requests of its users from ending with this process.
    pub fn channels(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.channels.iter().map(AsFd::as_fd)
    }

    /// Can another process serve it on after this one ([`SwapFile::take_over`])? The kernel must be
    /// able to ask again (`FUSE_NOTIFY_RESEND`, Linux 6.9). Without that, do not keep its
    /// descriptors: its users would wait for ever for the requests that a dead process had read.
    #[must_use]
    pub fn can_be_taken_over(&self) -> bool {
        self.has_resend
    }

    /// Does the kernel hand its requests over by io_uring?
    #[must_use]
    pub fn is_by_ring(&self) -> bool {
        self.rings.is_some()
    }

    /// Why its requests do not come by io_uring, if [`SwapFileOptions::ring`] wanted it.
    #[must_use]
    pub fn lacks_ring(&self) -> Option<&str> {
        self.lack.as_deref()
    }

    /// How many opens it has now; a loop device on it counts as one. Opens from before a
    /// [`SwapFile::take_over`] do not count.
    #[must_use]
    pub fn open_count(&self) -> u64 {
        self.file.open_count()
    }

    /// Is it still served? False after another process unmounted or aborted it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.threads.iter().any(|thread| !thread.is_finished())
            || self.rings.as_ref().is_some_and(|rings| !rings.are_over())
    }

    /// Unmounts the file and waits until its threads have ended. With `force` it unmounts even if
    /// the file is open: requests under way and later ones fail. Does nothing the second time.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is open and `force` is not given; nothing has changed then.
    pub fn unmount(&mut self, force: bool) -> Result<(), Error> {
        // Whoever closes a file that is not served any more is not seen.
        let is_used = || self.is_served().then(|| self.open_count() > 0);
        let backoff = match self.place.is_mounted() {
            true => self.place.take_down(force, is_used, || {})?,
            false => ENDING,
        };
        self.join(backoff);
        remove_point(&self.place.at);
        Ok(())
    }

    fn join(&mut self, backoff: Duration) {
        let end = Instant::now() + backoff;
        while self.is_served() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        for thread in self.threads.drain(..).filter(JoinHandle::is_finished) {
            // The panic hook has reported a panic of this thread.
            let _ = thread.join();
        }
        self.rings = None;
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        let _ = self.unmount(true);
    }
}

/// The last preparation of a thread before it serves. May it serve?
fn get_ready(begin: fn(), ready: Sender<io::Result<i32>>) -> bool {
    host::touch_stack();
    begin();
    let entered = host::enter(Role::SwapFile);
    let may_serve = entered.is_ok();
    // The receiver is gone if another thread could not be started; the mount is gone then too.
    let _ = ready.send(entered.map(|()| host::thread_id()));
    may_serve
}

/// Answers one request in memory, for fuzzing and tests. A request is cut off at the longest
/// length. None if the request has no answer.
#[must_use]
pub fn drive(request: &[u8], device: Arc<dyn BlockDevice>) -> Option<Vec<u8>> {
    let page = host::page_bytes() as usize;
    let mut buffer = Buffer::new(connection::largest(page), page);
    let room = buffer.request();
    let length = request.len().min(room.len());
    room[..length].copy_from_slice(&request[..length]);
    let file = File::new(device, || Cpu(0), (0, 0));
    let answer = serve::respond(&file, &mut buffer, length)?;
    let mut bytes = answer.reply.bytes().to_vec();
    bytes.extend_from_slice(&buffer.data()[..answer.data]);
    Some(bytes)
}

#[cfg(test)]
mod tests;
