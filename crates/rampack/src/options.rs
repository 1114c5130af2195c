//! The options of a disk.

use crate::Algorithm;

/// The options of a disk: a size, and what differs from the defaults.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskOptions {
    pub(crate) size: u64,
    pub(crate) algorithm: Algorithm,
    pub(crate) mem_limit: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) auto: Option<Budgets>,
}

/// What a store does when the disk is at its limit.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WhenFull {
    /// It fails at once.
    #[default]
    Fail,
    /// The calling thread moves pages of [`DiskOptions::auto`] to smaller forms, whatever their
    /// age, and the store fails when none gets smaller.
    Wait,
}

/// What moving pages to smaller forms may cost.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budgets {
    /// CPU time, in percent of one CPU: 1 to 100.
    pub(crate) cpu_percent: u32,
    /// Bytes of memory that are aimed at: above them pages move, the oldest first. 0: all pages
    /// move that are old enough.
    pub(crate) target: u64,
    /// Forms with slower reads are not used, in microseconds. 0: all are.
    pub(crate) slowest_read: u32,
}

impl Default for Budgets {
    /// 5 percent of a CPU, no target, all forms.
    fn default() -> Budgets {
        Budgets { cpu_percent: 5, target: 0, slowest_read: 0 }
    }
}

impl Budgets {
    /// With so many percent of a CPU.
    #[must_use]
    pub fn cpu_percent(self, percent: u32) -> Budgets {
        Budgets { cpu_percent: percent, ..self }
    }

    /// With so many bytes as the target.
    #[must_use]
    pub fn target(self, bytes: u64) -> Budgets {
        Budgets { target: bytes, ..self }
    }

    /// With no form whose reads are slower than so many microseconds.
    #[must_use]
    pub fn slowest_read(self, microseconds: u32) -> Budgets {
        Budgets { slowest_read: microseconds, ..self }
    }
}

impl From<u64> for DiskOptions {
    fn from(size: u64) -> DiskOptions {
        DiskOptions::new(size)
    }
}

impl DiskOptions {
    /// A disk of `size` bytes, rounded up to pages. It costs memory only as pages are stored, and
    /// 8 bytes for each page of the parts that were used.
    #[must_use]
    pub fn new(size: u64) -> DiskOptions {
        DiskOptions {
            size,
            algorithm: Algorithm::default(),
            mem_limit: 0,
            when_full: WhenFull::Fail,
            auto: None,
        }
    }

    /// How pages are compressed.
    #[must_use]
    pub fn algorithm(self, algorithm: Algorithm) -> DiskOptions {
        DiskOptions { algorithm, ..self }
    }

    /// The memory limit for stored pages, in bytes; 0 for none.
    #[must_use]
    pub fn mem_limit(self, bytes: u64) -> DiskOptions {
        DiskOptions { mem_limit: bytes, ..self }
    }

    /// What a store does at that limit.
    #[must_use]
    pub fn when_full(self, when_full: WhenFull) -> DiskOptions {
        DiskOptions { when_full, ..self }
    }

    /// Pages that are not used move to smaller forms in upkeep, within `budgets`. It takes 16 bytes
    /// more a page, and needs the feature `zstd`.
    #[must_use]
    pub fn auto(self, budgets: Budgets) -> DiskOptions {
        DiskOptions { auto: Some(budgets), ..self }
    }
}
