//! A block device, or a file of the right size, read and written past the page cache.

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use units::PAGE_SIZE;

use super::kernel;
use super::target::{Figures, Target};

/// An open device. Its contents are lost, so it is opened exclusively: the kernel refuses that
/// while it is mounted or otherwise in use. Its pages are discarded at the beginning and at the
/// end, if it can do that.
pub struct Device {
    path: PathBuf,
    // Dropped in this order: an open device cannot be reset.
    file: File,
    bytes: u64,
    /// What takes the device away.
    pub(super) owner: Option<Box<dyn Any + Send + Sync>>,
}

impl Device {
    /// Sets a zram device of the kernel up for this many pages, and opens it. Drop resets it.
    pub fn of_kernel(path: &Path, algorithm: &str, pages: usize) -> Result<Device> {
        let setup = kernel::Setup::new(path, algorithm, pages)?;
        let mut device = Device::open(path, pages)?;
        device.owner = Some(Box::new(setup));
        Ok(device)
    }

    /// Opens the device at `path` for this many pages.
    pub fn open(path: &Path, pages: usize) -> Result<Device> {
        let shown = path.display();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(host::flags::O_DIRECT | host::flags::O_EXCL)
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
        let device = Device { path: path.to_owned(), file, bytes, owner: None };
        device.discard();
        Ok(device)
    }

    /// Discards all pages. A device that cannot discard keeps them, and its first store overwrites
    /// them.
    fn discard(&self) {
        let _ = host::discard(&self.file, 0, self.bytes);
    }
}

impl Target for Device {
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(from, offset);
        written.with_context(|| format!("{}: writing at {offset}", self.path.display()))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(into, offset);
        read.with_context(|| format!("{}: reading at {offset}", self.path.display()))
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
