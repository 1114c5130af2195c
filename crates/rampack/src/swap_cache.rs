//! A compressed cache of pages, in front of a file.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use block::{BlockDevice, Operation};
use control::Errno;
use machine::{Machine, MachineOptions};
use units::Page;
use zswap::{AreaOptions, SwapDevice, SwapType, Zswap};

use crate::{Error, PAGE_SIZE};

/// The area of a cache.
const AREA: usize = 0;

/// The options of a [`SwapCache`].
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwapOptions {
    pages: u64,
    memory: u64,
    file: Option<PathBuf>,
}

impl SwapOptions {
    /// So many pages, all in memory.
    #[must_use]
    pub fn new(pages: u64) -> SwapOptions {
        SwapOptions { pages, memory: u64::MAX, file: None }
    }

    /// The most bytes of memory for compressed pages.
    #[must_use]
    pub fn memory(self, bytes: u64) -> SwapOptions {
        SwapOptions { memory: bytes, ..self }
    }

    /// A file or a block device for pages that find no room in memory, the oldest first. It is made
    /// if it is not there, and its contents are lost.
    #[must_use]
    pub fn file(self, path: impl Into<PathBuf>) -> SwapOptions {
        SwapOptions { file: Some(path.into()), ..self }
    }
}

/// Pages by number, compressed in memory, the oldest in a file: as zswap keeps them. It has memory
/// of its own, and a thread that writes to the file. What is in it ends with it. Any number of
/// threads may call every method.
pub struct SwapCache {
    zswap: Arc<Zswap>,
    device: SwapDevice,
    swap: SwapType,
    /// Dropping the sender ends the thread.
    writer: Option<(Sender<()>, JoinHandle<()>)>,
}

/// Where the pages of a [`SwapCache`] are.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SwapStats {
    /// Pages in memory.
    pub in_memory: u64,
    /// Pages in the file.
    pub in_file: u64,
    /// Bytes of memory for pages and tables.
    pub memory_bytes: u64,
}

impl SwapCache {
    /// Makes one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no pages; [`Error::System`], [`Error::Busy`] and others when the file
    /// cannot be used, with the reason; [`Error::NoMemory`].
    pub fn new(options: SwapOptions) -> Result<SwapCache, Error> {
        let SwapOptions { pages, memory, file } = options;
        if pages == 0 {
            return Err(Error::Invalid("a cache has one page at least".into()));
        }
        let device = file.map(|path| -> Result<_, Error> {
            let bytes = pages.saturating_mul(PAGE_SIZE as u64);
            let failed = |error: std::io::Error| Error::System {
                errno: error.raw_os_error().unwrap_or(Errno::EIO.0),
                message: format!("{}: {error}", path.display()).into(),
            };
            // Other users see no page of this program in a new file.
            let mut open = File::options();
            open.write(true).create(true).truncate(false).mode(0o600);
            let opened = open.open(&path).map_err(failed)?;
            if opened.metadata().map_err(failed)?.is_file() {
                // What another cache or daemon has there is not cut off.
                if !host::try_lock(&opened).map_err(failed)? {
                    return Err(Error::Busy(format!("{}: it is in use", path.display()).into()));
                }
                opened.set_len(bytes).map_err(failed)?;
                // A child that is being started would have it beyond the end of `opened`.
                opened.unlock().map_err(failed)?;
            }
            Ok(backing::open(&path, backing::Options::default())?)
        });
        let device = device.transpose()?;
        let machine = Machine::new(Arc::new(host::Mmap), MachineOptions::of_this_system())?;
        let zswap = machine.swap()?;
        if memory < u64::MAX {
            zswap.set_max_pool_bytes(memory.max(1));
        } else {
            zswap.set_max_pool_percent(100)?;
        }
        let (swap, memcg) = (SwapType::new(AREA)?, zswap.memcg("rampack")?);
        let has_file = device.is_some();
        zswap.swapon(swap, pages, AreaOptions { device, memcg })?;
        let device = SwapDevice::new(zswap.clone(), swap);
        let mut cache = SwapCache { zswap, device, swap, writer: None };
        if has_file {
            let (zswap, (end, ended)) = (cache.zswap.clone(), mpsc::channel());
            let run = move || machine::work_of_swap(&zswap, &ended, || {});
            let thread = thread::Builder::new().name("rampack-write".into()).spawn(run);
            let thread = thread.map_err(|error| {
                Error::NoMemory(format!("the thread that writes did not start: {error}").into())
            })?;
            cache.writer = Some((end, thread));
        }
        Ok(cache)
    }

    /// Stores page `index`. The first is 0.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::NoMemory`] or [`Error::Full`] when there is no room in
    /// memory and no file; [`Error::System`] when the file fails. The page is as it was.
    pub fn store(&self, index: u64, page: &Page) -> Result<(), Error> {
        let write = Operation::Write { offset: at(index)?, from: page };
        Ok(self.device.submit(host::cpu(), write)?)
    }

    /// Loads page `index`; zeroes if it was never stored.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Corrupt`]; [`Error::System`] when the file fails.
    pub fn load(&self, index: u64, page: &mut Page) -> Result<(), Error> {
        let read = Operation::Read { offset: at(index)?, into: page };
        Ok(self.device.submit(host::cpu(), read)?)
    }

    /// Frees `count` pages from `first` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; nothing has changed then.
    pub fn discard(&self, first: u64, count: u64) -> Result<(), Error> {
        let discard = Operation::Discard { offset: at(first)?, length: at(count)? };
        Ok(self.device.submit(host::cpu(), discard)?)
    }

    /// Where the pages are now.
    #[must_use]
    pub fn stats(&self) -> SwapStats {
        let (area, all) = (self.zswap.area_stats(self.swap), self.zswap.stats());
        SwapStats {
            in_memory: area.map_or(0, |area| area.cached),
            in_file: area.map_or(0, |area| area.on_device),
            memory_bytes: all.pool_bytes + all.overhead_bytes,
        }
    }
}

impl Drop for SwapCache {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.writer.take() {
            drop(end);
            self.zswap.event().notify_all();
            // A panic of the thread was reported.
            let _ = thread.join();
        }
        self.zswap.invalidate_area(host::cpu(), self.swap);
        let _ = self.zswap.swapoff(self.swap);
    }
}

/// The offset of a page.
fn at(index: u64) -> Result<u64, Error> {
    index.checked_mul(PAGE_SIZE as u64).ok_or(Error::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_in_use_is_not_cut_off_and_a_new_one_is_private() {
        let directory = testkit::TempDir::new();
        let path = directory.join("pages");
        let has = || {
            let file = std::fs::metadata(&path).unwrap();
            (file.len(), file.mode() & 0o777)
        };
        let _first = SwapCache::new(SwapOptions::new(1000).file(&path)).unwrap();
        assert_eq!(has(), (1000 * PAGE_SIZE as u64, 0o600));
        let refused = |pages| SwapCache::new(SwapOptions::new(pages).file(&path)).map(|_| ());
        assert!(matches!(refused(10), Err(Error::Busy(_))), "{:?}", refused(10));
        assert!(matches!(refused(0), Err(Error::Invalid(_))), "{:?}", refused(0));
        assert_eq!(has(), (1000 * PAGE_SIZE as u64, 0o600));
    }
}
