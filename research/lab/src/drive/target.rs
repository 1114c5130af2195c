//! What is read and written: our engine in this process, or a block device.

use anyhow::{Result, anyhow};
use block::{BlockDevice, Operation};
use designs::Disk;
use units::{PAGE_SIZE, Page};

/// Something that takes blocks of whole pages. All threads may call it at any time.
pub trait Target: Sync {
    /// Writes `from` at `offset`, both multiples of a page; `from` begins on a page's boundary.
    ///
    /// # Errors
    /// The target's; it names the place.
    fn write(&self, offset: u64, from: &[u8]) -> Result<()>;

    /// Fills `into` from `offset`; the same holds of them.
    ///
    /// # Errors
    /// The target's; it names the place.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;
}

/// The engine in this process. A block is one `BlockDevice::submit`; of a single page, it's one
/// store or load.
pub struct Process {
    /// The device.
    pub disk: Disk,
    /// Take each page of a block by itself.
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
