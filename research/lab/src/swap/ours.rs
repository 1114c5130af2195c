//! Our swap: `rampack swap on` in a process of its own, outside the cgroup it serves.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use units::PAGE_SIZE;

use super::area::SwapFile;
use super::{Area, Shop, Told, active};
use crate::proc_files::{Counters, growth, numbers};
use crate::programs::{self, Running};

/// Time the daemon may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time the daemon may take to end: first the kernel reads all its pages back.
const LEAVING: Duration = Duration::from_secs(180);
/// The directory of its counters in its control tree.
const COUNTERS: &str = "kernel/debug/zswap";

/// Pages stored in the cache.
const STORED: &str = "zswpout";
/// Pages loaded from the cache.
const LOADED: &str = "zswpin";
/// Pages written back from the cache.
const WRITTEN_BACK: &str = "zswpwb";
/// Pages that the cache refused. They went to the disk at once.
const THROUGH: &str = "through_pages";
/// Pages read from the disk.
const READ_BACK: &str = "read_back_pages";
/// Bytes of memory of the cached pages.
const POOL: &str = "pool_total_size";

/// A daemon with one swap device.
pub struct Ours {
    program: PathBuf,
    root: PathBuf,
    device: PathBuf,
    /// `Some` until the end.
    parts: Option<(Running, SwapFile)>,
    before: State,
    /// Bytes of memory of the pool when it was looked at last.
    pub pool: i64,
    peak: Option<i64>,
}

/// The daemon's counters at one time.
#[derive(Clone, Default)]
struct State {
    rows: Counters,
    io: Counters,
}

impl Ours {
    /// Starts the daemon, with more options. The variant is a codec.
    pub fn new(shop: &Shop, variant: Option<&str>, more: &[&str]) -> Result<Ours> {
        let program = shop.rampack.clone().context("the program rampack is not known")?;
        let backing = SwapFile::new(shop)?;
        let root = backing.directory().join("root");
        let mut command = Command::new(&program);
        command
            .arg("--root")
            .arg(&root)
            .args(["swap", "on", "--force"])
            .args(more)
            .arg("--backing")
            .arg(backing.path());
        command.args(["--size", &shop.bytes.to_string()]);
        if let Some(bytes) = shop.max_pool {
            command.args(["--max-pool", &bytes.to_string()]);
        }
        if let Some(codec) = variant {
            command.args(["--compressor", codec]);
        }
        if shop.first {
            command.args(["--priority", &i16::MAX.to_string()]);
        }
        let said = backing.directory().join("said");
        let out = File::create(&said).with_context(|| format!("cannot make {}", said.display()))?;
        let mut running = Running::start_gently(command.stdout(out), LEAVING)?;
        let device = running.wait_until(PATIENCE, || {
            let text = String::from_utf8_lossy(&fs::read(&said)?).into_owned();
            Ok(device(&text, &active()))
        })?;
        Ok(Ours {
            program,
            root,
            device,
            parts: Some((running, backing)),
            before: State::default(),
            pool: 0,
            peak: None,
        })
    }

    fn running(&mut self) -> Result<&mut Running> {
        let parts = self.parts.as_mut().context("rampack swap on has ended")?;
        Ok(&mut parts.0)
    }

    fn rows(&self) -> Result<Counters> {
        let root = self.root.to_string_lossy();
        let text = programs::said(&self.program, &["--root", &root, "get", COUNTERS, "--all"]);
        Ok(numbers(&text?))
    }

    fn state(&mut self) -> Result<State> {
        let id = self.running()?.id();
        let io = fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
        Ok(State { rows: self.rows()?, io: numbers(&io) })
    }

    /// Asks the daemon to end, and cleans up everything that it leaves.
    fn stop(&mut self) -> Result<()> {
        let Some((running, backing)) = self.parts.take() else { return Ok(()) };
        let root = self.root.to_string_lossy().into_owned();
        let asked = programs::said(&self.program, &["--root", &root, "swap", "off"]);
        if active().contains(&self.device) {
            // The daemon could not turn the swap off, or is gone.
            if let Err(error) = host::swap_off(&self.device) {
                // Without the daemon, a process with pages in its swap would be killed.
                backing.abandon();
                std::mem::forget(running);
                return Err(error).context(format!("swap to {} stays on", self.device.display()));
            }
        }
        // The daemon ends by itself now, or when asked to.
        drop(running);
        drop(backing);
        asked.map(drop)
    }
}

/// The block device in the daemon's message, once the system swaps to it.
fn device(text: &str, active: &[PathBuf]) -> Option<PathBuf> {
    let words = text.split_ascii_whitespace().map(|word| word.trim_end_matches([',', '.', ':']));
    words.map(PathBuf::from).find(|word| active.contains(word))
}

impl Area for Ours {
    fn begin(&mut self) -> Result<()> {
        self.before = self.state()?;
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        self.running()?.check()?;
        self.pool = self.rows()?.get(POOL).copied().unwrap_or(0);
        self.peak = self.peak.max(Some(self.pool));
        Ok(())
    }

    fn told(&mut self, _: &Counters) -> Result<Told> {
        self.sample()?;
        let now = self.state()?;
        let before = &self.before;
        let (rows, io) = (growth(&now.rows, &before.rows), growth(&now.io, &before.io));
        let pages = |name: &str| rows.get(name).copied();
        let bytes = |name: &str| pages(name).unwrap_or(0) * PAGE_SIZE as i64;
        let moved = |name: &str| io.get(name).copied().unwrap_or(0);
        Ok(Told {
            stored: pages(STORED),
            loaded: pages(LOADED),
            written_back: pages(WRITTEN_BACK),
            // The kernel's count for the daemon, or the daemon's own count where that is larger.
            disk_read_bytes: moved("read_bytes").max(bytes(READ_BACK)),
            disk_written_bytes: moved("write_bytes").max(bytes(WRITTEN_BACK) + bytes(THROUGH)),
            pool_peak_bytes: self.peak,
        })
    }

    fn end(mut self: Box<Self>) -> Result<()> {
        self.stop()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("rampack-lab: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_known_when_it_is_swapped_to() {
        let text = "swap0 is ready: 4G\n  block device  /dev/loop3\n  backing /var/x\n";
        assert_eq!(device(text, &[]), None);
        assert_eq!(device(text, &["/dev/sda2".into()]), None);
        let active = ["/dev/sda2".into(), "/dev/loop3".into()];
        assert_eq!(device(text, &active), Some(PathBuf::from("/dev/loop3")));
        assert_eq!(device("swap0: /dev/loop3, 4G", &active), Some(PathBuf::from("/dev/loop3")));
    }
}
