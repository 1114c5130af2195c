//! How the kernel reaches a swap device: by its driver ublk, or by a loop device on a FUSE file.
//!
//! ublk needs no memory of the kernel for a request. The loop driver and FUSE need memory for each
//! request and wait for it, while the thread that would free memory may wait for them. Under global
//! memory pressure such a device can hang for ever, whatever the daemon does
//! (docs/operating/memory-out.md). So it is used only on request.

use std::io::ErrorKind::NotFound;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::BlockDevice;
use control::{ControlError, Errno};
use fuse::{self, LoopOptions, SwapFile, SwapFileOptions};
use host::Faults;
use sync::Mutex;
use ublk::{self, Id, Ublk};
use units::PAGE_SIZE;

use super::report::ServingReport;
use super::{kill_point, protections};
use crate::failure::{frontend_error, ublk_error};
use crate::loops::{BlockFile, Loops};
use crate::root::Made;
use crate::transport::SwapTransport;
use crate::unfinished;

const PAGE: u64 = PAGE_SIZE as u64;

/// Threads that may wait for a backing device at once; other threads never wait. A device without
/// one has them too: its stores may have pages of another device written back.
const WAITING: usize = 8;
/// The largest request in bytes. The memory that the kernel and the daemon need for each request
/// grows with it.
const LARGEST: u32 = 128 << 10;
/// The most queues of a ublk device. Each has its thread.
const QUEUES: usize = 4;
/// Requests that a queue takes at once, each with a buffer of [`LARGEST`]: fewer where all buffers
/// would take more than this part of the machine's memory.
const DEPTH: u64 = 32;
const LEAST_DEPTH: u64 = 8;
const PART: u64 = 64;

/// The block device that the kernel swaps to. A drop removes it.
pub struct Served {
    way: Mutex<Way>,
    path: PathBuf,
    parts: Vec<PathBuf>,
    link: PathBuf,
    made: Arc<Made>,
    /// The threads that serve the device, and the page faults of each at the start of the count.
    threads: Mutex<Vec<(i32, Faults)>>,
}

enum Way {
    Ublk(Box<Ublk>),
    /// The device is dropped before its file.
    Loop(Attached, Box<SwapFile>),
}

/// A loop device. A drop detaches it, unless it is in use.
struct Attached {
    loops: Arc<Loops>,
    device: Option<BlockFile>,
}

impl Attached {
    fn detach(&mut self) -> Result<(), ControlError> {
        let Some(device) = &self.device else { return Ok(()) };
        self.loops.detach_patiently(device)?;
        self.device = None;
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.detach();
    }
}

/// A device that threads serve, before others can use it: a block device by ublk with its
/// partitions, or a file without its loop device. A drop removes it.
pub enum Serving {
    /// By ublk.
    Ublk(Box<Ublk>, Vec<PathBuf>),
    /// As a file.
    File(Box<SwapFile>),
}

impl Serving {
    /// Serves `device`. By ublk it has `parts` (ranges of pages); a loop device has none. `lasts`
    /// says whether another process may serve it on. `made` is the record of the root.
    ///
    /// # Errors
    /// The error of the frontend; nothing is left then.
    pub fn begin(
        at: &Path,
        device: Arc<dyn BlockDevice>,
        parts: &[Range<u64>],
        by: SwapTransport,
        lasts: bool,
        made: &Made,
    ) -> Result<Serving, ControlError> {
        match by {
            SwapTransport::Ublk => {
                let options = ublk_options(lasts, made.maker());
                let ublk = Ublk::serve(device, options).map_err(|error| ublk_error(&error))?;
                let bytes = |pages: &Range<u64>| pages.start * PAGE..pages.end * PAGE;
                let parts = match parts {
                    [_] => vec![ublk.path().to_path_buf()],
                    parts => {
                        let parts: Vec<Range<u64>> = parts.iter().map(bytes).collect();
                        ublk.split(&parts).map_err(|error| ublk_error(&error))?
                    }
                };
                Ok(Serving::Ublk(Box::new(ublk), parts))
            }
            SwapTransport::Loop | SwapTransport::LoopClassic | SwapTransport::LoopRing => {
                let ring = by != SwapTransport::LoopClassic && !lasts;
                let options = SwapFileOptions { ring, ..file_options(lasts) };
                let file = SwapFile::serve(at, device, options);
                if let Ok(file) = &file {
                    say_lack(by == SwapTransport::LoopRing, lasts, at, file.lacks_ring());
                }
                file.map(|file| Serving::File(Box::new(file)))
                    .map_err(|error| frontend_error(&error))
            }
        }
    }

    /// Serves on what the daemon before served: a block device by ublk, or the file `at` with its
    /// `channels`. `None` if it is gone: that daemon had begun to take it down.
    ///
    /// # Errors
    /// The error of the frontend. What was there waits on, or is served as before.
    pub fn take_over(
        at: &Path,
        device: Arc<dyn BlockDevice>,
        ublk: Option<Id>,
        channels: Vec<OwnedFd>,
    ) -> Result<Option<Serving>, ControlError> {
        let Some(id) = ublk else {
            return match SwapFile::take_over(at, channels, device, file_options(true)) {
                Ok(file) => Ok(Some(Serving::File(Box::new(file)))),
                Err(fuse::Error::System { source, .. }) if source.kind() == NotFound => Ok(None),
                Err(error) => Err(frontend_error(&error)),
            };
        };
        match Ublk::recover(id, device, ublk_options(true, id.maker)) {
            Ok(ublk) => {
                let parts = match ublk.parts() {
                    Ok(parts) => parts,
                    Err(error) => {
                        // Its threads serve it on.
                        unfinished::leave(ublk);
                        return Err(ublk_error(&error));
                    }
                };
                let whole = ublk.path().to_path_buf();
                let parts = if parts.is_empty() { vec![whole] } else { parts };
                Ok(Some(Serving::Ublk(Box::new(ublk), parts)))
            }
            Err(ublk::Error::Unfit(_)) => Ok(None),
            Err(error) => Err(ublk_error(&error)),
        }
    }

    /// The device by ublk, for the next process.
    #[must_use]
    pub fn ublk(&self) -> Option<Id> {
        match self {
            Serving::Ublk(ublk, _) => Some(ublk.id()),
            Serving::File(_) => None,
        }
    }

    /// The descriptors of the file, for the next process.
    #[must_use]
    pub fn channels(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Serving::Ublk(..) => Vec::new(),
            Serving::File(file) => file.channels().collect(),
        }
    }

    /// Can another process serve it on?
    #[must_use]
    pub fn can_be_taken_over(&self) -> bool {
        match self {
            Serving::Ublk(..) => true,
            Serving::File(file) => file.can_be_taken_over(),
        }
    }

    /// The file below the loop device, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Serving::Ublk(..) => None,
            Serving::File(file) => Some(file.path()),
        }
    }
}

/// What a swap device would be without ublk, and how to have it all the same.
pub const WITHOUT_UBLK: &str = "\
without it the kernel would reach a swap device by a loop device on a FUSE file, and could stand \
still for ever when all of its memory is short: --transport fuse (or --force) takes that risk, \
which is small where every program that swaps has a memory limit of its own";

/// Chooses the best way to reach a swap device on this machine.
///
/// # Errors
/// `ENODEV` without ublk, unless `force` is given.
pub fn choose(asked: Option<SwapTransport>, force: bool) -> Result<SwapTransport, ControlError> {
    if let Some(asked) = asked {
        return Ok(asked);
    }
    match is_there() {
        Ok(()) => Ok(SwapTransport::Ublk),
        Err(_) if force => Ok(SwapTransport::Loop),
        Err(error) => {
            let message = format!("{error}; {WITHOUT_UBLK}");
            Err(ControlError::new(Errno::ENODEV, message))
        }
    }
}

/// Checks that ublk is available. Loads its module if necessary.
///
/// # Errors
/// The error that says what is missing.
pub fn is_there() -> Result<(), ublk::Error> {
    ublk::available().or_else(|error| {
        let mut load = Command::new("modprobe");
        load.args(["-q", "ublk_drv"]).stdin(Stdio::null()).stdout(Stdio::null());
        let loaded = load.stderr(Stdio::null()).status();
        match loaded.is_ok_and(|status| status.success()) {
            true => ublk::available(),
            false => Err(error),
        }
    })
}

impl Served {
    /// Lets others use a device: attaches a loop device to a file, unless it has `there` already,
    /// and makes the link. One that is not new has users, and is served without a link as well.
    ///
    /// # Errors
    /// The error of the kernel; nothing is left then.
    pub fn finish(
        (serving, is_new): (Serving, bool),
        (link, made): (PathBuf, Arc<Made>),
        loops: &Arc<Loops>,
        there: Option<BlockFile>,
    ) -> Result<Served, ControlError> {
        let (way, path, parts, threads) = match serving {
            Serving::Ublk(ublk, parts) => {
                let (path, threads) = (ublk.path().to_path_buf(), ublk.threads().to_vec());
                (Way::Ublk(ublk), path, parts, threads)
            }
            Serving::File(file) => {
                let largest_kib = Some(LARGEST / 1024);
                let options = LoopOptions { flush: false, largest_kib, ..LoopOptions::default() };
                let attach = || loops.attach(file.path(), options);
                let device = there.map_or_else(attach, Ok)?;
                let (path, threads) = (device.path().to_path_buf(), file.threads().to_vec());
                let attached = Attached { loops: loops.clone(), device: Some(device) };
                (Way::Loop(attached, file), path.clone(), vec![path], threads)
            }
        };
        made.link_for(&link, &path, is_new)?;
        let threads = threads.into_iter().map(|thread| (thread, Faults::default())).collect();
        let (way, threads) = (Mutex::new(way), Mutex::new(threads));
        Ok(Served { way, path, parts, link, made, threads })
    }

    /// The path of the block device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The paths that are swap space, each with its own header: the partitions of the device, or
    /// the device itself.
    pub fn parts(&self) -> &[PathBuf] {
        &self.parts
    }

    /// Has the driver ublk keep its requests for the next program, and answers those that it has
    /// given (Linux 6.16).
    ///
    /// # Errors
    /// If that takes until `end`; the error of the driver.
    pub fn quiesce(&self, end: Instant) -> Result<(), ControlError> {
        let Way::Ublk(ublk) = &mut *self.way.lock() else { return Ok(()) };
        ublk.quiesce(end).map(drop).map_err(|error| ublk_error(&error))
    }

    /// Serves on after that. Does nothing for a device that is served.
    ///
    /// # Errors
    /// The error of the driver; it is to be tried again.
    pub fn serve_on(&self, patience: Duration) -> Result<(), ControlError> {
        let Way::Ublk(ublk) = &mut *self.way.lock() else { return Ok(()) };
        ublk.serve_on(patience).map_err(|error| ublk_error(&error))?;
        let mut threads = self.threads.lock();
        if !threads.iter().map(|(thread, _)| thread).eq(ublk.threads()) {
            let faults = |thread: &i32| host::thread_faults(*thread).unwrap_or_default();
            *threads = ublk.threads().iter().map(|thread| (*thread, faults(thread))).collect();
        }
        Ok(())
    }

    /// # Errors
    /// `EBUSY` with its users.
    pub fn take_down(&self) -> Result<(), ControlError> {
        match &mut *self.way.lock() {
            Way::Ublk(ublk) => ublk.take_down(false).map_err(|error| ublk_error(&error))?,
            Way::Loop(attached, file) => {
                attached.detach()?;
                file.unmount(false).map_err(|error| frontend_error(&error))?;
            }
        }
        self.made.remove(&self.link);
        Ok(())
    }

    /// Counts the page faults of the serving threads from now on.
    pub fn count_faults(&self) {
        for (thread, faults) in self.threads.lock().iter_mut() {
            *faults = host::thread_faults(*thread).unwrap_or_default();
        }
    }

    /// The report of the threads.
    pub fn report(&self) -> ServingReport {
        let by = match &*self.way.lock() {
            Way::Ublk(_) => "ublk",
            Way::Loop(_, file) if file.is_by_ring() => "loop, io_uring",
            Way::Loop(..) => "loop",
        };
        let mut report = ServingReport { by: by.into(), ..ServingReport::default() };
        for (thread, before) in self.threads.lock().iter() {
            let now = host::thread_faults(*thread).unwrap_or(*before);
            report.threads += 1;
            report.minor_faults += now.minor - before.minor;
            report.major_faults += now.major - before.major;
        }
        report
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.made.remove(&self.link);
    }
}

/// Logs why the requests for a file do not come by io_uring: one that outlives the daemon could not
/// answer those under way when it is killed.
pub(crate) fn say_lack(is_asked: bool, lasts: bool, at: &Path, lack: Option<&str>) {
    let why = if lasts { Some("it outlives this daemon") } else { lack };
    match why {
        Some(why) if is_asked => {
            tracing::warn!("{} is served without io_uring: {why}", at.display());
        }
        Some(why) => tracing::info!("{} is served without io_uring: {why}", at.display()),
        None => {}
    }
}

/// What each thread that serves does first.
fn begin() {
    kill_point("thread");
    protections::begin_to_serve();
}

fn ublk_options(lasts: bool, maker: u32) -> ublk::Options {
    let queues = host::online_cpus().min(QUEUES);
    ublk::Options {
        queues,
        depth: depth(host::total_memory(), queues as u64),
        largest: LARGEST.max(host::page_bytes() as u32),
        waiters: WAITING,
        cpu: host::cpu,
        begin,
        recoverable: lasts,
        maker,
    }
}

/// The depth of each of `queues` queues on a machine with so many bytes of memory.
fn depth(memory: u64, queues: u64) -> u16 {
    let depth = memory / PART / (queues * u64::from(LARGEST));
    depth.clamp(LEAST_DEPTH, DEPTH) as u16
}

fn file_options(lasts: bool) -> SwapFileOptions {
    let cpus = host::online_cpus();
    // The service manager has room for some hundred descriptors.
    let cpus = if lasts { cpus.min(QUEUES) } else { cpus };
    let threads = cpus + 1 + WAITING;
    SwapFileOptions { threads, ring: false, waiters: WAITING, cpu: host::cpu, begin }
}
