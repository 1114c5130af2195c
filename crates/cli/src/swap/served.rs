//! How the kernel reaches a swap device: by its driver ublk, or by a loop device on a FUSE file.
//!
//! ublk needs no memory of the kernel for a request. The loop driver and FUSE need memory for each
//! request and wait for it, while the thread that would free memory may wait for them. Under global
//! memory pressure such a device can hang for ever, whatever the daemon does (docs/swap-safety.md).
//! So it is used only on request.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rampack::block::BlockDevice;
use rampack::control::{ControlError, Errno};
use rampack::fuse::{LoopDevice, LoopOptions, SwapFile, SwapFileOptions};
use rampack::host::Faults;
use rampack::sync::Mutex;
use rampack::ublk::Ublk;
use rampack::units::PAGE_SIZE;

use super::protections;
use super::report::ServingReport;
use crate::devices::Devices;
use crate::failure::{frontend_error, ublk_error};
use crate::root::Made;
use crate::transport::SwapTransport;

const PAGE: u64 = PAGE_SIZE as u64;

/// Threads that may wait for the backing device at once; other threads never wait.
const WAITING: usize = 8;
/// The largest request in bytes. The memory that the kernel and the daemon need for each request
/// grows with it.
const LARGEST: u32 = 128 << 10;
/// The most queues of a ublk device. Each has its thread.
const QUEUES: usize = 4;
/// Requests that a queue takes at once, each with a buffer of [`LARGEST`].
const DEPTH: u16 = 32;

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
    Loop(LoopDevice, SwapFile),
}

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
            let message = format!(
                "{error}; without it the kernel would reach the swap device by a loop device on a \
                 FUSE file, and could stand still for ever when all of its memory is short: \
                 --transport loop (or --force) takes that risk, which is small where every program \
                 that swaps has a memory limit of its own"
            );
            Err(ControlError::new(Errno::ENODEV, message))
        }
    }
}

/// Checks that ublk is available. Loads its module if necessary.
///
/// # Errors
/// The error that says what is missing.
pub fn is_there() -> Result<(), rampack::ublk::Error> {
    rampack::ublk::available().or_else(|error| {
        let mut load = Command::new("modprobe");
        load.args(["-q", "ublk_drv"]).stdin(Stdio::null()).stdout(Stdio::null());
        let loaded = load.stderr(Stdio::null()).status();
        match loaded.is_ok_and(|status| status.success()) {
            true => rampack::ublk::available(),
            false => Err(error),
        }
    })
}

impl Served {
    /// Serves `device`. By ublk it has `parts` (ranges of pages); a loop device has none. `waits`
    /// says whether its requests may have to wait for another device.
    ///
    /// # Errors
    /// The error of the frontend; nothing is left then.
    pub fn make(
        devices: &Devices,
        name: &str,
        device: Arc<dyn BlockDevice>,
        parts: &[Range<u64>],
        (by, waits): (SwapTransport, bool),
    ) -> Result<Served, ControlError> {
        let (made, root) = devices.place()?;
        let waiters = if waits { WAITING } else { 0 };
        let ((way, path, threads), parts) = match by {
            SwapTransport::Ublk => by_ublk(device, waiters, parts)?,
            SwapTransport::Loop => {
                made.directory(&root.swap())?;
                let serving = by_loop(&root.swap().join(name), device, waiters)?;
                let whole = vec![serving.1.clone()];
                (serving, whole)
            }
        };
        let link = root.device(name);
        made.link(&link, &path)?;
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

    /// # Errors
    /// `EBUSY` with its users.
    pub fn take_down(&self) -> Result<(), ControlError> {
        match &mut *self.way.lock() {
            Way::Ublk(ublk) => ublk.take_down().map_err(|error| ublk_error(&error))?,
            Way::Loop(device, file) => {
                device.detach().map_err(|error| frontend_error(&error))?;
                file.unmount(false).map_err(|error| frontend_error(&error))?;
            }
        }
        self.made.remove(&self.link);
        Ok(())
    }

    /// Counts the page faults of the serving threads from now on.
    pub fn count_faults(&self) {
        for (thread, faults) in self.threads.lock().iter_mut() {
            *faults = rampack::host::thread_faults(*thread).unwrap_or_default();
        }
    }

    /// The report of the threads.
    pub fn report(&self) -> ServingReport {
        let by = match &*self.way.lock() {
            Way::Ublk(_) => "ublk",
            Way::Loop(..) => "loop",
        };
        let mut report = ServingReport { by: by.into(), ..ServingReport::default() };
        for (thread, before) in self.threads.lock().iter() {
            let now = rampack::host::thread_faults(*thread).unwrap_or(*before);
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

/// The server of a device, its block device, and the threads.
type Serving = (Way, PathBuf, Vec<i32>);

fn by_ublk(
    device: Arc<dyn BlockDevice>,
    waiters: usize,
    parts: &[Range<u64>],
) -> Result<(Serving, Vec<PathBuf>), ControlError> {
    let options = rampack::ublk::Options {
        queues: rampack::host::online_cpus().min(QUEUES),
        depth: DEPTH,
        largest: LARGEST.max(rampack::host::page_bytes() as u32),
        waiters,
        cpu: rampack::host::cpu,
        begin: protections::begin_to_serve,
        recoverable: false,
    };
    let ublk = Ublk::serve(device, options).map_err(|error| ublk_error(&error))?;
    let (path, threads) = (ublk.path().to_path_buf(), ublk.threads().to_vec());
    let bytes = |pages: &Range<u64>| pages.start * PAGE..pages.end * PAGE;
    let parts = match parts {
        [_] => vec![path.clone()],
        parts => {
            let parts: Vec<Range<u64>> = parts.iter().map(bytes).collect();
            ublk.split(&parts).map_err(|error| ublk_error(&error))?
        }
    };
    Ok(((Way::Ublk(Box::new(ublk)), path, threads), parts))
}

fn by_loop(
    at: &Path,
    device: Arc<dyn BlockDevice>,
    waiters: usize,
) -> Result<Serving, ControlError> {
    let threads = rampack::host::online_cpus() + 1 + waiters;
    let begin = protections::begin_to_serve;
    let options = SwapFileOptions { threads, cpu: rampack::host::cpu, begin };
    let file = SwapFile::serve(at, device, options).map_err(|error| frontend_error(&error))?;
    let options =
        LoopOptions { flush: false, largest_kib: Some(LARGEST / 1024), ..LoopOptions::default() };
    let device =
        LoopDevice::attach(file.path(), options).map_err(|error| frontend_error(&error))?;
    let (path, threads) = (device.path().to_path_buf(), file.threads().to_vec());
    Ok((Way::Loop(device, file), path, threads))
}
