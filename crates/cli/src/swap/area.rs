//! One swap device, from its making to its end.

use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rampack::block::{BlockDevice, Operation};
use rampack::control::{ControlError, Errno};
use rampack::sync::Mutex;
use rampack::units::PAGE_SIZE;
use rampack::zswap::Headroom;

use super::backing::OpenedBacking;
use super::cache::Cache;
use super::report::SwapReport;
use super::served::Served;
use super::{active, header, name, off, parts, protections};
use crate::devices::Devices;
use crate::failure::failed;
use crate::machine::Machine;
use crate::transport::SwapTransport;

const PAGE: u64 = PAGE_SIZE as u64;

/// Frames for the header of a swap device: a zspage of the largest size class.
const FOR_HEADER: u64 = 8;

/// A swap device. If it is dropped while the kernel swaps to it, the kernel loses it and all pages
/// swapped out to it.
pub struct Area {
    number: usize,
    pages: u64,
    /// The pages of each part, and the priority that the kernel gives it while it swaps there.
    parts: Vec<Part>,
    // Dropped in this order: each field uses the next one.
    served: Served,
    cache: Cache,
    backing: Option<OpenedBacking>,
}

/// A swap space of its own for the kernel; see [`parts`].
struct Part {
    path: PathBuf,
    pages: Range<u64>,
    priority: Mutex<Option<u16>>,
}

/// The options for making a swap device.
pub struct Making {
    /// Its number.
    pub number: usize,
    /// Its size in pages.
    pub pages: u64,
    /// The file or device below it.
    pub backing: Option<OpenedBacking>,
    /// Whether what is written back is encrypted.
    pub seal: bool,
    /// How the kernel reaches it.
    pub by: SwapTransport,
    /// The memory that must be present before pages come.
    pub headroom: Headroom,
}

impl Part {
    fn swap_on(&self) -> Result<(), ControlError> {
        let priority = *self.priority.lock();
        rampack::host::swap_on(&self.path, priority).map_err(|error| {
            let what = format!("cannot swap on {}", self.path.display());
            match error.raw_os_error() {
                Some(libc::EPERM) => {
                    let message = format!(
                        "{what}: it needs CAP_SYS_ADMIN, and the kernel has at most some thirty \
                         swap areas"
                    );
                    ControlError::new(Errno::EPERM, message)
                }
                _ => failed(what, &error),
            }
        })
    }

    /// Discards all pages except the header: they will not be read again, but the kernel does not
    /// discard them at swapoff.
    fn forget(&self, device: &dyn BlockDevice) {
        let (start, end) = ((self.pages.start + 1) * PAGE, self.pages.end * PAGE);
        let discard = Operation::Discard { offset: start, length: end - start };
        if let Err(error) = device.submit(rampack::host::cpu(), discard) {
            tracing::warn!("{} keeps what was swapped to it: {error}", self.path.display());
        }
    }
}

/// Writes the header of a part.
fn write_header(
    device: &dyn BlockDevice,
    part: &Range<u64>,
    name: &str,
) -> Result<(), ControlError> {
    let label = format!("rampack-{name}");
    let header = header::header(part.end - part.start, header::new_uuid(), &label)?;
    let write = Operation::Write { offset: part.start * PAGE, from: &header };
    device.submit(rampack::host::cpu(), write).map_err(|error| {
        let message = format!("the swap header cannot be written: {error}");
        ControlError::new(Errno(error.errno()), message)
    })
}

impl Area {
    /// Makes everything except the swapon.
    ///
    /// # Errors
    /// The error of the step that failed. Everything made before it is removed again.
    pub fn make(
        devices: &Arc<Devices>,
        machine: &Arc<Machine>,
        making: Making,
    ) -> Result<Area, ControlError> {
        let Making { number, pages, backing, seal, by, headroom } = making;
        let name = name(number);
        let parts = match by {
            SwapTransport::Ublk => parts::of(pages, active::all().len() as u64),
            // A loop device has no partitions.
            SwapTransport::Loop => iter::once(0..pages).collect(),
        };
        let below = |backing: &OpenedBacking| {
            let device = backing.device().clone();
            if !seal {
                return Ok(device);
            }
            let path = backing.path().display().to_string();
            // Only this run reads what it has written, so its own key is enough.
            rampack::sealed(device, &rampack::host::MmapAhead, pages * PAGE, &path)
        };
        let below = backing.as_ref().map(below).transpose()?;
        let cache = Cache::open(machine, number, pages, below)?;
        // The header of the swap device needs a frame, however small the headroom is.
        cache.provide(headroom.at_least(FOR_HEADER * parts.len() as u64));
        let device = Arc::new(cache.device());
        for part in &parts {
            write_header(&*device, part, &name)?;
        }
        let waits = backing.is_some();
        let served = Served::make(devices, &name, device, &parts, (by, waits))?;
        let part = |(path, pages): (&PathBuf, Range<u64>)| {
            let priority = Mutex::new(None);
            Part { path: path.clone(), pages, priority }
        };
        let parts = served.parts().iter().zip(parts).map(part).collect();
        Ok(Area { number, pages, parts, served, cache, backing })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The path of the block device.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.served.path()
    }

    /// The file or device below it.
    #[must_use]
    pub fn backing(&self) -> Option<&OpenedBacking> {
        self.backing.as_ref()
    }

    /// Has the kernel swap to it. Everything that serves it is in memory before that.
    ///
    /// # Errors
    /// The error of swapon(2); the kernel swaps to no part of it then.
    pub fn swap_on(&self, priority: Option<u16>) -> Result<(), ControlError> {
        protections::make_resident();
        self.served.count_faults();
        let (count, dead) = (self.parts.len(), active::above_dead());
        for (number, part) in self.parts.iter().enumerate() {
            *part.priority.lock() = parts::priority(priority, number, count, dead);
            if let Err(error) = part.swap_on() {
                let stays = |part: &&Part| off::swap_off(&part.path).is_err();
                if self.parts[..number].iter().filter(stays).count() == 0 {
                    return Err(error);
                }
                // Pages were swapped out meanwhile and cannot be read back: they are kept.
                tracing::error!("{} is smaller than it should be: {error}", name(self.number));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Has the kernel read everything back and release it. Does nothing if the kernel does not swap
    /// to it any more.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory for its pages: everything stays as it was then.
    pub fn swap_off(&self) -> Result<(), ControlError> {
        let path = self.path();
        let Some(before) = active::find(path) else { return Ok(()) };
        let device = self.cache.device();
        let mut ended = Vec::new();
        // The last part is used least.
        for part in self.parts.iter().rev() {
            if active::find(&part.path).is_none() {
                continue;
            }
            let Err(why) = off::swap_off(&part.path) else {
                part.forget(&*device);
                ended.push(part);
                continue;
            };
            // Another process may have swapped it off first.
            if active::find(&part.path).is_none() {
                continue;
            }
            for part in ended {
                if let Err(error) = part.swap_on() {
                    tracing::error!("{} is smaller than before: {error}", name(self.number));
                }
            }
            let name = name(self.number);
            let used = active::find(path).map_or(0, |now| now.used);
            let (used, before) = (rampack::units::human(used), rampack::units::human(before.used));
            let message = format!(
                "{name} ({}) stays in use with {used} of {before} swapped out: {why}; free memory \
                 or add other swap space, and try again",
                path.display()
            );
            return Err(ControlError::new(why.errno(), message));
        }
        Ok(())
    }

    /// Takes everything down, after [`Area::swap_off`]. It can be tried again.
    ///
    /// # Errors
    /// `EBUSY` while the kernel swaps to it, another program has it open, or pages are left.
    pub fn take_down(&self) -> Result<(), ControlError> {
        let path = self.path();
        if active::find(path).is_some() {
            let message = format!("{} is swapped to", path.display());
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        self.served.take_down()?;
        self.cache.close()
    }

    /// The report of it, without the protections of the daemon.
    #[must_use]
    pub fn report(&self) -> SwapReport {
        let active = active::find(self.path());
        let stats = self.cache.stats();
        SwapReport {
            name: name(self.number),
            block_device: self.path().display().to_string(),
            bytes: self.pages * PAGE,
            active: active.is_some(),
            used: active.as_ref().map_or(0, |active| active.used),
            priority: active.map(|active| active.priority),
            backing: self.backing.as_ref().map(|it| it.path().display().to_string()),
            backing_created: self.backing.as_ref().is_some_and(OpenedBacking::is_created),
            cached_pages: stats.cached,
            disk_pages: stats.on_device,
            serving: self.served.report(),
            protections: Vec::new(),
        }
    }
}
