//! A swap file, and other swap by path.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;
use units::PAGE_SIZE;

use super::{Area, Shop, Told};
use crate::proc_files::Counters;
use crate::programs;
use crate::sys;

/// The highest priority of swap.
const HIGHEST: &str = "32767";

/// A path that the system swaps to until drop.
pub struct On {
    path: PathBuf,
    on: bool,
}

impl On {
    /// Writes a swap header (mkswap(8)) and turns the swap on. If `first`, it comes before all
    /// other swap.
    pub fn new(path: &Path, first: bool) -> Result<On> {
        let text = path.to_string_lossy();
        let run = |tool: &str, options: &[&str]| {
            let program = programs::find_for_root(tool).with_context(|| {
                format!("{tool} is not installed; the package util-linux brings it")
            })?;
            programs::said(&program, &[options, &[&*text]].concat())
        };
        run("mkswap", &[])?;
        run("swapon", if first { &["--priority", HIGHEST] } else { &[] })
            .context("not every file system can hold swap")?;
        Ok(On { path: path.to_owned(), on: true })
    }

    /// Turns the swap off. The kernel reads all its pages back into memory.
    pub fn off(&mut self) -> Result<()> {
        if self.on {
            let path = self.path.display();
            host::swap_off(&self.path)
                .with_context(|| format!("swap to {path} stays on; try `swapoff {path}`"))?;
            self.on = false;
        }
        Ok(())
    }
}

impl Drop for On {
    fn drop(&mut self) {
        if let Err(error) = self.off() {
            eprintln!("rampack-lab: {error:#}");
        }
    }
}

/// A file of a fixed size with all its blocks on the disk, in a directory of its own.
pub struct SwapFile {
    directory: TempDir,
    path: PathBuf,
}

impl SwapFile {
    /// Makes the file.
    pub fn new(shop: &Shop) -> Result<SwapFile> {
        let directory = TempDir::with_prefix_in("rampack-lab-", &shop.directory)
            .with_context(|| format!("cannot write in {}", shop.directory.display()))?;
        let path = directory.path().join("swap");
        let mut options = OpenOptions::new();
        let file = options.create_new(true).write(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot make {}", path.display()))?;
        sys::allocate(&file, shop.bytes).with_context(|| {
            format!("no {} for swap in {}", units::human(shop.bytes), shop.directory.display())
        })?;
        Ok(SwapFile { directory, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory next to the file.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps the file on the disk: the swap is still in use.
    pub fn abandon(self) {
        let path = self.directory.keep();
        eprintln!("rampack-lab: {} is left in place", path.display());
    }
}

/// Swap in a file.
pub struct Plain {
    // Dropped in this order.
    on: On,
    _backing: SwapFile,
}

impl Plain {
    /// Makes the swap.
    pub fn new(shop: &Shop) -> Result<Plain> {
        let backing = SwapFile::new(shop)?;
        let on = On::new(backing.path(), shop.first)?;
        Ok(Plain { on, _backing: backing })
    }
}

impl Area for Plain {
    fn told(&mut self, counted: &Counters) -> Result<Told> {
        Ok(on_disk(counted))
    }

    fn end(mut self: Box<Self>) -> Result<()> {
        self.on.off()
    }
}

/// The figures of swap in a file on a disk. The kernel counts a page in `pswpin` or `pswpout` only
/// when it moves from or to the device.
pub fn on_disk(counted: &Counters) -> Told {
    let bytes = |name: &str| counted.get(name).copied().unwrap_or(0) * PAGE_SIZE as i64;
    let (disk_read_bytes, disk_written_bytes) = (bytes("pswpin"), bytes("pswpout"));
    Told { disk_read_bytes, disk_written_bytes, ..Told::default() }
}
