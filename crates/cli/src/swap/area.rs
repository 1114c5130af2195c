//! One swap device, from its making to its end.

use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, Checked, Operation};
use control::{Errno, Fault};
use stack::Machine;
use units::PAGE_SIZE;
use zswap::Headroom;

use super::backing::Backing;
use super::cache::Cache;
use super::report::SwapReport;
use super::served::Served;
use super::{active, header, name, off, protections};
use crate::args::SwapTransport;
use crate::devices::Devices;
use crate::failure::failed;

const PAGE: u64 = PAGE_SIZE as u64;

/// Frames for the header of a swap device: those of a zspage of the largest size class.
const FOR_HEADER: u64 = 8;

/// A swap device. Dropping it while the kernel swaps to it leaves the kernel without it: what is
/// swapped out is lost.
pub struct Area {
    number: usize,
    pages: u64,
    // Dropped in this order: nobody uses what the next one is made of.
    served: Served,
    cache: Cache,
    backing: Option<Backing>,
}

/// How a swap device is made.
pub struct Making {
    /// Its number.
    pub number: usize,
    /// Its size in pages.
    pub pages: u64,
    /// What is below it.
    pub backing: Option<Backing>,
    /// How the kernel reaches it.
    pub by: SwapTransport,
    /// Memory that is to be there before pages come.
    pub headroom: Headroom,
}

impl Area {
    /// Makes everything but the kernel's use of it.
    ///
    /// # Errors
    /// What stood in the way; nothing is left of it then.
    pub fn make(
        devices: &Arc<Devices>,
        machine: &Arc<Machine>,
        making: Making,
    ) -> Result<Area, Fault> {
        let Making { number, pages, backing, by, headroom } = making;
        let name = name(number);
        let label = format!("rampack-{name}");
        let first = header::header(pages, header::new_uuid(), &label)?;
        let below = backing.as_ref().map(|backing| backing.device().clone());
        let cache = Cache::open(machine, number, pages, below)?;
        // The header of the swap device needs a frame, whatever is kept ready afterwards.
        cache.provide(headroom.at_least(FOR_HEADER));
        let device = Arc::new(Checked::new(cache.device()));
        let write = Operation::Write { offset: 0, from: &first };
        let ready = device.submit(host::cpu(), write).map_err(|error| {
            let message = format!("the swap header cannot be written: {error}");
            Fault::new(Errno(error.errno()), message)
        });
        let waits = backing.is_some();
        let served = ready.and_then(|()| Served::make(devices, &name, device, (by, waits)));
        Ok(Area { number, pages, served: served?, cache, backing })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The block device.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.served.path()
    }

    /// What is below it.
    #[must_use]
    pub fn backing(&self) -> Option<&Backing> {
        self.backing.as_ref()
    }

    /// Has the kernel swap to it. Everything that serves it is in memory before.
    ///
    /// # Errors
    /// What swapon(2) reports.
    pub fn swap_on(&self, priority: Option<u16>) -> Result<(), Fault> {
        let priority = priority.map(|priority| priority.max(active::above_dead()));
        protections::make_resident();
        self.served.count_faults();
        host::swap_on(self.path(), priority).map_err(|error| {
            let what = format!("cannot swap on {}", self.path().display());
            match error.raw_os_error() {
                Some(libc::EPERM) => {
                    let message = format!(
                        "{what}: it needs CAP_SYS_ADMIN, and the kernel has at most some thirty \
                         swap areas"
                    );
                    Fault::new(Errno::EPERM, message)
                }
                _ => failed(what, &error),
            }
        })
    }

    /// Has the kernel read everything back and let go of it. Does nothing if it does not swap to
    /// it any more.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory for what is there: everything stays as it was then.
    pub fn swap_off(&self) -> Result<(), Fault> {
        let path = self.path();
        let Some(before) = active::find(path) else { return Ok(()) };
        let Err(why) = off::swap_off(path) else { return Ok(()) };
        // Somebody else may have been quicker.
        let Some(now) = active::find(path) else { return Ok(()) };
        let name = name(self.number);
        let (used, before) = (units::human(now.used), units::human(before.used));
        let message = format!(
            "{name} ({}) stays in use with {used} of {before} swapped out: {why}; free memory or \
             add other swap space, and try again",
            path.display()
        );
        Err(Fault::new(why.errno(), message))
    }

    /// Takes everything down, after [`Area::swap_off`]. Can be tried again.
    ///
    /// # Errors
    /// `EBUSY` while the kernel swaps to it or somebody else has it, or pages are left.
    pub fn take_down(&self) -> Result<(), Fault> {
        let path = self.path();
        if active::find(path).is_some() {
            let message = format!("{} is swapped to", path.display());
            return Err(Fault::new(Errno::EBUSY, message));
        }
        self.served.take_down()?;
        self.cache.close()
    }

    /// What there is to say of it, but for what protects the daemon.
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
            backing_created: self.backing.as_ref().is_some_and(Backing::is_created),
            cached_pages: stats.cached,
            disk_pages: stats.on_device,
            serving: self.served.report(),
            protections: Vec::new(),
        }
    }
}
