//! The administrators of a soak: they write back, recompress, compact, resize, and change codecs
//! and limits of the disks and of the swap cache, beside all requests.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use block::IoError;
use control::{ControlError, Errno};
use serde::{Deserialize, Serialize};
use sync::Mutex;
use units::{Cpu, PAGE_SIZE};
use zcomp::Params;
use zram::{Disk, Recompress, Select, Writeback};
use zswap::Zswap;

const CPU: Cpu = Cpu(0);
/// Pages beyond those that workers own, which come and go with a resize.
pub const TAIL: u64 = 512;
/// Pages that one act writes back or recompresses.
const AT_ONCE: u64 = 64;
/// The fast codecs are chosen more often: the soak is to do many operations.
const CODECS: [&str; 8] = ["lz4", "lzo-rle", "lz4", "lzo", "lz4", "lzo-rle", "lz4", "zstd"];

/// What administrators have done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct Acts {
    /// Runs of writeback.
    pub writebacks: u64,
    /// Pages that were written back.
    pub pages_written_back: u64,
    pub recompressions: u64,
    pub compactions: u64,
    pub resizes: u64,
    pub codec_changes: u64,
    pub limits: u64,
    /// Acts that ended with an error because the backing device failed or a limit was met.
    pub refused: u64,
}

/// The acts of all administrators.
pub type Done = Mutex<Acts>;

/// Errors that faults of the backing device and limits explain.
fn may_be(error: &ControlError) -> bool {
    [Errno::EIO, Errno::ENOSPC, Errno::EBUSY, Errno::ENOMEM].contains(&error.errno)
}

fn judged<T>(done: &Done, result: Result<T, ControlError>, what: &str) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if may_be(&error) => {
            done.lock().refused += 1;
            Ok(false)
        }
        Err(error) => bail!("{what}: {error}"),
    }
}

/// The administrator of a disk whose first `owned` pages belong to workers.
pub struct OfDisk<'a> {
    pub disk: &'a Disk,
    pub owned: u64,
    pub random: fastrand::Rng,
    pub done: &'a Done,
}

impl OfDisk<'_> {
    /// One act.
    ///
    /// # Errors
    /// The disk refuses what it should not, or a page of the tail is wrong.
    pub fn act(&mut self) -> Result<()> {
        match self.random.u32(..12) {
            0..=3 => self.write_back(),
            4 | 5 => self.recompress(),
            6 | 7 => {
                if judged(self.done, self.disk.compact(), "compact")? {
                    self.done.lock().compactions += 1;
                }
                Ok(())
            }
            8 => self.resize(),
            9 => self.change_codec(),
            10 => self.limit(),
            _ => self.write_back_idle(),
        }
    }

    fn write_back(&mut self) -> Result<()> {
        let first = self.random.u64(..self.owned);
        let last = (first + AT_ONCE - 1).min(self.owned - 1);
        let what = Writeback { select: None, pages: vec![(first, last)] };
        self.written_back(&what)
    }

    fn write_back_idle(&mut self) -> Result<()> {
        judged(self.done, self.disk.mark_idle(None), "idle")?;
        std::thread::sleep(Duration::from_millis(20));
        self.disk.set_writeback_limit(AT_ONCE);
        self.disk.limit_writeback(true);
        let what = Writeback { select: Some(Select::HugeIdle), pages: Vec::new() };
        let result = self.written_back(&what);
        self.disk.limit_writeback(false);
        result
    }

    fn written_back(&mut self, what: &Writeback) -> Result<()> {
        let before = self.disk.stats().backed_writes;
        judged(self.done, self.disk.writeback(what), "writeback")?;
        let mut done = self.done.lock();
        done.writebacks += 1;
        done.pages_written_back += self.disk.stats().backed_writes - before;
        Ok(())
    }

    fn recompress(&mut self) -> Result<()> {
        let what = Recompress { max_pages: Some(AT_ONCE), ..Recompress::default() };
        if judged(self.done, self.disk.recompress(&what), "recompress")? {
            self.done.lock().recompressions += 1;
        }
        Ok(())
    }

    fn change_codec(&mut self) -> Result<()> {
        let name = CODECS[self.random.usize(..CODECS.len())];
        let changed = self.disk.switch_algorithm(0, name, Params::default());
        if judged(self.done, changed, "switch_algorithm")? {
            self.done.lock().codec_changes += 1;
        }
        Ok(())
    }

    /// For a moment stores that need more memory are refused.
    fn limit(&mut self) -> Result<()> {
        self.disk.set_mem_limit(self.disk.stats().pool_bytes.max(1));
        std::thread::sleep(Duration::from_millis(30));
        self.disk.set_mem_limit(0);
        self.done.lock().limits += 1;
        Ok(())
    }

    /// The tail comes empty, takes pages, and goes.
    fn resize(&mut self) -> Result<()> {
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        judged(self.done, self.disk.resize(bytes(self.owned + TAIL)), "resize")?;
        let mut page = [0x5a; PAGE_SIZE];
        for index in self.owned..self.owned + TAIL {
            match self.disk.load_page(CPU, index, &mut page) {
                Ok(()) => ensure!(page == [0; PAGE_SIZE], "WRONG page {index} of a new tail"),
                Err(error) => bail!("page {index} of a new tail: {error}"),
            }
            if index % 3 == 0 {
                let stamp = [index as u8 | 1; PAGE_SIZE];
                match self.disk.store_page(CPU, index, &stamp) {
                    Ok(()) => {}
                    Err(IoError::NoSpace | IoError::NoMemory) => continue,
                    Err(error) => bail!("page {index} of the tail: {error}"),
                }
                match self.disk.load_page(CPU, index, &mut page) {
                    Ok(()) => ensure!(page == stamp, "WRONG page {index} of the tail"),
                    Err(error) => bail!("page {index} of the tail: {error}"),
                }
            }
        }
        let refused = self.disk.resize(bytes(self.owned));
        ensure!(refused.is_err(), "a resize would drop pages of the tail");
        if let Err(error) = self.disk.discard_pages(CPU, self.owned, TAIL) {
            bail!("a discard of the tail: {error}");
        }
        judged(self.done, self.disk.resize(bytes(self.owned)), "resize")?;
        self.done.lock().resizes += 2;
        Ok(())
    }
}

/// The administrator of the swap cache, whose pool may have `bytes`.
pub struct OfSwap<'a> {
    pub zswap: &'a Zswap,
    pub bytes: u64,
    pub random: fastrand::Rng,
    pub done: &'a Done,
}

impl OfSwap<'_> {
    /// One act.
    ///
    /// # Errors
    /// The cache refuses what it should not.
    pub fn act(&mut self) -> Result<()> {
        match self.random.u32(..8) {
            0..=3 => {
                let cleared = match self.random.bool() {
                    true => self.zswap.reclaim(CPU, AT_ONCE),
                    false => self.zswap.shrink(CPU, AT_ONCE),
                };
                let mut done = self.done.lock();
                done.writebacks += 1;
                done.pages_written_back += cleared.written;
                Ok(())
            }
            4 | 5 => {
                let name = CODECS[self.random.usize(..CODECS.len())];
                if judged(self.done, self.zswap.set_compressor(name), "compressor")? {
                    self.done.lock().codec_changes += 1;
                }
                Ok(())
            }
            _ => {
                let eighths = self.random.u64(6..=8);
                self.zswap.set_max_pool_bytes(self.bytes * eighths / 8);
                self.done.lock().limits += 1;
                Ok(())
            }
        }
    }
}
