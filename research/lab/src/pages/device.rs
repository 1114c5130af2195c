//! A block device, or a file of the right size, read and written past the page cache.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use units::{PAGE_SIZE, Page};

use super::kernel;
use super::target::{Figures, Target};
use crate::sys;

/// An open device. Its contents are lost, so it is opened exclusively: the kernel refuses that
/// while it is mounted or otherwise in use. Its pages are discarded at the beginning and at the
/// end, if it can do that.
pub struct Device {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Device {
    /// Opens the device at `path` for this many pages.
    ///
    /// # Errors
    /// The device cannot be opened, is in use or too small, or is neither a device nor a file.
    pub fn open(path: &Path, pages: usize) -> Result<Device> {
        let shown = path.display();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(sys::O_DIRECT | sys::O_EXCL)
            .open(path)
            .with_context(|| format!("cannot open {shown} for direct I/O and exclusively"))?;
        let kind = file.metadata()?.file_type();
        if !kind.is_block_device() && !kind.is_file() {
            bail!("{shown} is neither a block device nor a file");
        }
        let bytes = (pages * PAGE_SIZE) as u64;
        let size = file.seek(SeekFrom::End(0)).with_context(|| format!("the size of {shown}"))?;
        if size < bytes {
            bail!("{shown} has {size} bytes; the corpus needs {bytes}");
        }
        let device = Device { path: path.to_owned(), file, bytes };
        device.discard();
        Ok(device)
    }

    /// Writes `from` at `offset` in one call. Both are multiples of a page.
    ///
    /// # Errors
    /// The error of the system call, with the offset.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.file
            .write_all_at(from, offset)
            .with_context(|| format!("{}: writing at {offset}", self.path.display()))
    }

    /// Fills `into` from `offset`. Both are multiples of a page.
    ///
    /// # Errors
    /// The error of the system call, with the offset.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(into, offset)
            .with_context(|| format!("{}: reading at {offset}", self.path.display()))
    }

    /// Discards all pages. A device that cannot discard keeps them, and its first store overwrites
    /// them.
    fn discard(&self) {
        let _ = sys::discard(&self.file, self.bytes);
    }
}

impl Target for Device {
    fn store(&self, index: u64, page: &Page) -> Result<()> {
        self.file
            .write_all_at(page, index * PAGE_SIZE as u64)
            .with_context(|| format!("{}: storing page {index}", self.path.display()))
    }

    fn load(&self, index: u64, page: &mut Page) -> Result<()> {
        self.file
            .read_exact_at(page, index * PAGE_SIZE as u64)
            .with_context(|| format!("{}: loading page {index}", self.path.display()))
    }

    fn figures(&self) -> Figures {
        kernel::figures(&self.path).unwrap_or_default()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.discard();
    }
}
