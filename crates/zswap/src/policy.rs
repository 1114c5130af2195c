//! The settings that an administrator changes at run time.

use alloc::format;

use control::ControlError;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tiers::Budgets;

/// The settings of an engine except the compressor. Any number of threads may read and change them
/// at any time.
pub struct Policy {
    /// The memory size in pages that `max_pool_percent` refers to.
    total_pages: u64,
    enabled: AtomicBool,
    max_pool_percent: AtomicU32,
    max_pool_bytes: AtomicU64,
    accept_threshold_percent: AtomicU32,
    max_compression_ratio: AtomicU32,
    same_filled: AtomicBool,
    non_same_filled: AtomicBool,
    exclusive_loads: AtomicBool,
    shrinker_enabled: AtomicBool,
    writebacks_max: AtomicU32,
    auto_age: AtomicU32,
    auto_cpu_percent: AtomicU32,
}

/// The getter and setter of a switch, with the doc text.
macro_rules! switches { ($($name:ident, $set:ident, $text:literal;)*) => {
    impl Policy {
        $(
            #[doc = $text]
            #[must_use]
            pub fn $name(&self) -> bool {
                self.$name.load(Ordering::Relaxed)
            }

            #[doc = concat!("Sets [`Policy::", stringify!($name), "`].")]
            pub fn $set(&self, on: bool) {
                self.$name.store(on, Ordering::Relaxed);
            }
        )*
    }
} }

switches! {
    enabled, set_enabled, "New pages are taken. What is there stays either way.";
    same_filled, set_same_filled, "Pages that are one pattern over and over are kept as that.";
    non_same_filled, set_non_same_filled, "Other pages are taken at all.";
    exclusive_loads, set_exclusive_loads,
        "A load takes the page out (Linux since 6.x) instead of keeping and refreshing it (2013).";
    shrinker_enabled, set_shrinker_enabled, "Pages are written back when memory is short.";
}

impl Policy {
    /// The defaults of Linux, but enabled, for a memory of `total_pages`.
    pub(crate) fn new(total_pages: u64, writebacks_max: u32) -> Policy {
        Policy {
            total_pages,
            enabled: AtomicBool::new(true),
            max_pool_percent: AtomicU32::new(20),
            max_pool_bytes: AtomicU64::new(0),
            accept_threshold_percent: AtomicU32::new(90),
            max_compression_ratio: AtomicU32::new(100),
            same_filled: AtomicBool::new(true),
            non_same_filled: AtomicBool::new(true),
            exclusive_loads: AtomicBool::new(false),
            shrinker_enabled: AtomicBool::new(false),
            writebacks_max: AtomicU32::new(writebacks_max),
            auto_age: AtomicU32::new(64),
            auto_cpu_percent: AtomicU32::new(Budgets::default().cpu_percent),
        }
    }

    /// The limit of the pool in percent: see `max_pool_percent` in Linux.
    #[must_use]
    pub fn max_pool_percent(&self) -> u32 {
        self.max_pool_percent.load(Ordering::Relaxed)
    }

    /// The limit of the pool in bytes; 0 if [`Policy::max_pool_percent`] sets the limit.
    #[must_use]
    pub fn max_pool_bytes(&self) -> u64 {
        self.max_pool_bytes.load(Ordering::Relaxed)
    }

    /// A pool that was full takes pages again when it has shrunk to this percentage of its limit.
    #[must_use]
    pub fn accept_threshold_percent(&self) -> u32 {
        self.accept_threshold_percent.load(Ordering::Relaxed)
    }

    /// The largest object that is kept, in percent of a page; 100 keeps all.
    #[must_use]
    pub fn max_compression_ratio(&self) -> u32 {
        self.max_compression_ratio.load(Ordering::Relaxed)
    }

    /// The most pages that may be on their way to devices at once.
    #[must_use]
    pub fn writebacks_max(&self) -> u32 {
        self.writebacks_max.load(Ordering::Relaxed)
    }

    /// A page that was not read for this time is recompressed, in seconds.
    #[must_use]
    pub fn auto_age(&self) -> u32 {
        self.auto_age.load(Ordering::Relaxed)
    }

    pub(crate) fn auto_age_ns(&self) -> u64 {
        u64::from(self.auto_age()) * 1_000_000_000
    }

    /// The most CPU time of recompression, in percent of one CPU.
    #[must_use]
    pub fn auto_cpu_percent(&self) -> u32 {
        self.auto_cpu_percent.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max_pool_percent(&self, percent: u32) -> Result<(), ControlError> {
        percentage("max_pool_percent", percent)?;
        self.max_pool_percent.store(percent, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn set_max_pool_bytes(&self, bytes: u64) {
        self.max_pool_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Sets [`Policy::accept_threshold_percent`].
    ///
    /// # Errors
    /// `EINVAL` above 100.
    pub fn set_accept_threshold_percent(&self, percent: u32) -> Result<(), ControlError> {
        percentage("accept_threshold_percent", percent)?;
        self.accept_threshold_percent.store(percent, Ordering::Relaxed);
        Ok(())
    }

    /// Sets [`Policy::max_compression_ratio`].
    ///
    /// # Errors
    /// `EINVAL` above 100.
    pub fn set_max_compression_ratio(&self, percent: u32) -> Result<(), ControlError> {
        percentage("max_compression_ratio", percent)?;
        self.max_compression_ratio.store(percent, Ordering::Relaxed);
        Ok(())
    }

    /// Sets [`Policy::writebacks_max`].
    ///
    /// # Errors
    /// `EINVAL` for 0.
    pub fn set_writebacks_max(&self, pages: u32) -> Result<(), ControlError> {
        if pages == 0 {
            return Err(ControlError::invalid(
                "writebacks_max takes a number of pages from 1 on, not 0",
            ));
        }
        self.writebacks_max.store(pages, Ordering::Relaxed);
        Ok(())
    }

    /// Sets [`Policy::auto_age`].
    ///
    /// # Errors
    /// `EINVAL` for 0.
    pub fn set_auto_age(&self, seconds: u32) -> Result<(), ControlError> {
        if seconds == 0 {
            return Err(ControlError::invalid("auto_age takes a number of seconds from 1 on"));
        }
        self.auto_age.store(seconds, Ordering::Relaxed);
        Ok(())
    }

    /// Sets [`Policy::auto_cpu_percent`].
    ///
    /// # Errors
    /// `EINVAL` unless it is from 1 to 100.
    pub fn set_auto_cpu_percent(&self, percent: u32) -> Result<(), ControlError> {
        if percent == 0 {
            return Err(ControlError::invalid("auto_cpu_percent takes a percentage from 1 to 100"));
        }
        percentage("auto_cpu_percent", percent)?;
        self.auto_cpu_percent.store(percent, Ordering::Relaxed);
        Ok(())
    }

    /// The most frames the pool may have.
    pub(crate) fn max_frames(&self) -> u64 {
        match self.max_pool_bytes() {
            0 => part(self.total_pages, self.max_pool_percent()),
            bytes => bytes / units::PAGE_SIZE as u64,
        }
    }

    /// A pool that was full takes pages again when it has shrunk to this number of frames.
    pub(crate) fn accept_frames(&self) -> u64 {
        part(self.max_frames(), self.accept_threshold_percent())
    }

    /// The background writeback starts at this number of frames: halfway between the limit and the
    /// accept threshold, so that a store seldom finds the pool full.
    pub(crate) fn wake_frames(&self) -> u64 {
        u64::midpoint(self.max_frames(), self.accept_frames())
    }
}

fn part(pages: u64, percent: u32) -> u64 {
    (u128::from(pages) * u128::from(percent) / 100) as u64
}

fn percentage(name: &str, percent: u32) -> Result<(), ControlError> {
    match percent {
        0..=100 => Ok(()),
        _ => Err(ControlError::invalid(format!(
            "{name} takes a percentage from 0 to 100, not {percent}"
        ))),
    }
}
