//! A compressed page store and RAM disk, as a library.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rampack::{DiskOptions, Rampack};
//!
//! let disk = Rampack::new()?.disk(DiskOptions { size: 1 << 30, ..Default::default() })?;
//! let page = [7; 4096];
//! disk.store(0, &page)?;
//! let mut back = [0; 4096];
//! disk.load(0, &mut back)?;
//! assert_eq!(page, back);
//! assert_eq!(disk.stats().pages_stored, 1);
//! disk.discard(0, 1)?;
//! # Ok(())
//! # }
//! ```
//!
//! Any number of threads may use a [`Disk`] at once. It is a [`BlockDevice`] too, for byte ranges
//! of any alignment, and every frontend can serve it.

mod disk;
mod host_files;
mod inspect;
mod kept;
mod kept_swap;
mod left;
mod machine;
mod recovery;
mod refused;

use std::sync::Arc;
use std::time::Duration;

/// Cold parts of a log, at stores on the network.
#[cfg(feature = "remote")]
pub use remote;
/// The crates below, for programs that need more than this crate's own interface.
pub use {
    backing, block, control, host, pagealloc, pagelog, store, sync, units, zcomp, zram, zswap,
};
/// The servers of block devices.
#[cfg(feature = "serve")]
pub use {fuse, nbd, ublk};

pub use block::{BlockDevice, IoError};
pub use control::{ControlError, Errno};
pub use disk::{Disk, DiskOptions};
pub use host::cpu;
pub use host_files::{HostSystem, path_of, text_of};
pub use inspect::{BelowSeen, Inspected, SwapSeen, inspect};
pub use kept::DiskOutcome;
pub use machine::{Machine, MachineOptions};
pub use recovery::{Progress, Tell};
pub use refused::RefusedDisk;
pub use store::{is_key, key_of, sealed};
pub use units::{PAGE_SIZE, Page};
pub use zcomp::{ALGORITHMS, DEFAULT_ALGORITHM};
pub use zram::{Budgets, Findings, HostFiles, NoHostFiles, SavedDisk, Stats, WhenFull};
pub use zswap::{
    AreaOptions, AreaStats, Key, LoadError, Memcg, Reject, SavedSwap, SwapDevice, SwapType, Work,
    Zswap,
};

/// Devices that share the memory of this process. Dropping it does not drop its devices.
#[derive(Clone)]
pub struct Rampack {
    machine: Arc<Machine>,
}

impl Rampack {
    /// Makes a zone for devices, with the CPUs and the memory of this machine.
    ///
    /// # Errors
    /// `ENOMEM` when the process cannot reserve the addresses.
    pub fn new() -> Result<Rampack, ControlError> {
        let (cpus, memory) = (host::cpus(), host::total_memory());
        let options = MachineOptions {
            cpus,
            memory,
            files: Arc::new(HostSystem),
            swap_memory: Arc::new(host::Mmap),
            track_access: false,
        };
        let machine = Machine::new(Arc::new(host::Mmap), options)?;
        Ok(Rampack { machine: Arc::new(machine) })
    }

    /// Makes a new device.
    ///
    /// # Errors
    /// `EINVAL` for a size of 0, an unknown algorithm or a level that it refuses; `ENODEV` for
    /// [`WhenFull::Spill`]; `ENOMEM` when there is no memory or there are no addresses left.
    pub fn disk(&self, options: DiskOptions) -> Result<Disk, ControlError> {
        Disk::create(&self.machine, options)
    }

    /// The compressed cache in front of swap areas. It is made at the first call; every clone has
    /// the same one. It shares the memory and the limits of the process with the devices.
    ///
    /// It starts no thread. For an area with a device below it, a thread of the program must call
    /// [`Zswap::work`] when [`Zswap::event`] is notified, and [`Zswap::shrink`] when memory is
    /// short. A process that serves an area ([`SwapDevice`]) to the kernel as swap space needs the
    /// protections that `rampack swap on` tries to get.
    ///
    /// ```
    /// # fn main() -> Result<(), rampack::ControlError> {
    /// use rampack::{AreaOptions, Key, Rampack, SwapType};
    ///
    /// let zswap = Rampack::new()?.swap()?;
    /// let (swap, memcg) = (SwapType::new(0)?, zswap.memcg("default")?);
    /// zswap.swapon(swap, 1024, AreaOptions { device: None, memcg: memcg.clone() })?;
    /// let (cpu, key) = (rampack::cpu(), Key { swap, offset: 7 });
    /// assert!(zswap.store(cpu, key, &memcg, &[3; 4096]).is_ok());
    /// let mut page = [0; 4096];
    /// assert!(zswap.load(cpu, key, &mut page).is_ok());
    /// assert_eq!(page, [3; 4096]);
    /// zswap.invalidate_area(cpu, swap);
    /// zswap.swapoff(swap)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory or there are no addresses left.
    pub fn swap(&self) -> Result<Arc<Zswap>, ControlError> {
        self.machine.swap()
    }

    /// Does deferred work on memory: it asks the system for huge pages under full pageblocks, at
    /// most `most` blocks of 2 MiB, and returns their number. A thread with time should call it
    /// regularly; the daemon calls it once a second for 8 blocks. Each block may take some
    /// milliseconds. Without these calls everything works, a few percent slower.
    pub fn maintain(&self, most: u32) -> u32 {
        self.machine.frames().maintain(most)
    }

    /// Moves pages of the devices with [`DiskOptions::auto`] to smaller forms, and those that are
    /// used again up. `elapsed` is the time since the call before. It takes no more CPU time of the
    /// calling thread than the budgets allow. A thread with time should call it each second. One
    /// call at a time does work; any thread may call it. Returns whether pages wait for CPU time.
    ///
    /// # Errors
    /// `ENOMEM`; pages stay where they are.
    pub fn move_pages(&self, elapsed: Duration) -> Result<bool, ControlError> {
        self.machine.set_clock(host::seconds_since_start());
        self.machine.move_pages(elapsed)
    }

    /// Its machine, for callers that need the attributes of its devices.
    #[must_use]
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }
}

/// The program in README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
