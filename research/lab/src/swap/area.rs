//! A file that is swapped to, and whatever else the system swaps to by path.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;
use units::PAGE_SIZE;

use super::{Area, Shop, Told, Vmstat};
use crate::programs;
use crate::sys;

/// How long taking swap away may be disturbed.
const LEAVING: Duration = Duration::from_secs(60);

/// A path that is swapped to until this is dropped.
pub struct On {
    path: PathBuf,
    on: bool,
}

impl On {
    /// Writes a header (mkswap(8)), and begins.
    ///
    /// # Errors
    /// What mkswap says, or the system.
    pub fn new(path: &Path, first: bool) -> Result<On> {
        let mkswap = programs::find_for_root("mkswap")
            .context("mkswap is not installed; the package util-linux brings it")?;
        programs::said(&mkswap, &[&path.to_string_lossy()])?;
        sys::swapon(path, first).with_context(|| {
            format!("cannot swap to {}; not every file system can hold swap", path.display())
        })?;
        Ok(On { path: path.to_owned(), on: true })
    }

    /// Ends it; everything comes back into memory.
    ///
    /// # Errors
    /// The system's: it stays on then.
    pub fn off(&mut self) -> Result<()> {
        if self.on {
            off(&self.path)?;
            self.on = false;
        }
        Ok(())
    }
}

/// Takes away swap. Signals disturb the system call, so it is made again.
pub fn off(path: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        match sys::swapoff(path) {
            Ok(()) => return Ok(()),
            Err(_) if begun.elapsed() < LEAVING => thread::sleep(Duration::from_millis(50)),
            Err(error) => {
                let path = path.display();
                let message = format!("swap to {path} stays on; try `swapoff {path}`");
                return Err(error).context(message);
            }
        }
    }
}

impl Drop for On {
    fn drop(&mut self) {
        if let Err(error) = self.off() {
            eprintln!("rampack-lab: {error:#}");
        }
    }
}

/// A file of so many bytes, all of them on the disk, in a directory of its own.
pub struct SwapFile {
    directory: TempDir,
    path: PathBuf,
}

impl SwapFile {
    /// Makes it.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk is full.
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

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory beside it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves it where it is: somebody is still using it.
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
    /// Makes it.
    ///
    /// # Errors
    /// As [`SwapFile::new`] and [`On::new`].
    pub fn new(shop: &Shop) -> Result<Plain> {
        let backing = SwapFile::new(shop)?;
        let on = On::new(backing.path(), shop.first)?;
        Ok(Plain { on, _backing: backing })
    }
}

impl Area for Plain {
    fn told(&mut self, counted: Vmstat) -> Result<Told> {
        Ok(on_disk(counted))
    }

    fn end(mut self: Box<Self>) -> Result<()> {
        self.on.off()
    }
}

/// What swap in a file on a disk moved: the kernel counts a page in `pswpin` or `pswpout` only
/// when it goes from or to the device.
pub fn on_disk(counted: Vmstat) -> Told {
    let bytes = |pages: u64| pages * PAGE_SIZE as u64;
    Told {
        disk_read_bytes: bytes(counted.pswpin),
        disk_written_bytes: bytes(counted.pswpout),
        ..Told::default()
    }
}

/// A number after a name and a colon, in KiB, as in `/proc/meminfo` and `/proc/PID/status`.
pub fn kib(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(rest.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
