//! The target of reads and writes: our engine in this process, or a block device.

use anyhow::{Result, anyhow};
use block::{BlockDevice, Operation};
use designs::Disk;
use units::{PAGE_SIZE, Page};

/// A device of blocks of whole pages. All threads may call it at any time.
pub trait Target: Sync {
    /// Writes `from` at `offset`. Both are multiples of a page; `from` begins at a page boundary.
    ///
    /// # Errors
    /// The error of the target, with the offset.
    fn write(&self, offset: u64, from: &[u8]) -> Result<()>;

    /// Fills `into` from `offset`, under the same conditions as `write`.
    ///
    /// # Errors
    /// The error of the target, with the offset.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;
}

/// The engine in this process. A block is one `BlockDevice::submit`; a single page is one store or
/// load.
pub struct Process {
    /// The device.
    pub disk: Disk,
    /// Whether each page of a block is a call of its own.
    pub by_page: bool,
}

impl Process {
    fn write_pages(&self, offset: u64, from: &[u8]) -> Result<()> {
        let first = offset / PAGE_SIZE as u64;
        for (index, page) in (first..).zip(crate::page::pages(from)) {
            self.disk
                .store(index, page)
                .map_err(|error| anyhow!("storing page {index}: {error}"))?;
        }
        Ok(())
    }

    fn read_pages(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let first = offset / PAGE_SIZE as u64;
        for (index, page) in (first..).zip(into.chunks_exact_mut(PAGE_SIZE)) {
            let page: &mut Page = page.try_into()?;
            self.disk
                .load(index, page)
                .map_err(|error| anyhow!("loading page {index}: {error}"))?;
        }
        Ok(())
    }
}

impl Target for Process {
    #[inline]
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        if self.by_page || from.len() == PAGE_SIZE {
            return self.write_pages(offset, from);
        }
        let operation = Operation::Write { offset, from };
        let done = self.disk.device().submit(host::cpu(), operation);
        done.map_err(|error| anyhow!("writing at {offset}: {error}"))
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if self.by_page || into.len() == PAGE_SIZE {
            return self.read_pages(offset, into);
        }
        let operation = Operation::Read { offset, into };
        let done = self.disk.device().submit(host::cpu(), operation);
        done.map_err(|error| anyhow!("reading at {offset}: {error}"))
    }
}
