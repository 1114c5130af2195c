//! The kernel's zram as swap.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use units::PAGE_SIZE;

use super::area::On;
use super::{Area, Shop, Told, Vmstat};
use crate::pages::kernel::Setup;

const DEVICE: &str = "/dev/zram0";
const DIRECTORY: &str = "/sys/block/zram0";
/// The algorithm without a variant.
const ALGORITHM: &str = "lz4";

/// Swap on the kernel's zram0.
pub struct Zram {
    // Dropped in this order.
    on: On,
    setup: Setup,
    before: (u64, u64),
}

impl Zram {
    /// Sets up zram0 and swaps to it.
    pub fn new(shop: &Shop, algorithm: Option<&str>) -> Result<Zram> {
        let pages = (shop.bytes / PAGE_SIZE as u64) as usize;
        let setup = Setup::new(Path::new(DEVICE), algorithm.unwrap_or(ALGORITHM), pages)?;
        let on = On::new(Path::new(DEVICE), shop.first)?;
        Ok(Zram { on, setup, before: (0, 0) })
    }
}

/// Pages read and written, from a block device's `stat`. The third and seventh number count sectors
/// (kernel document `block/stat.rst`).
fn pages(text: &str) -> Option<(u64, u64)> {
    let numbers: Vec<u64> =
        text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    let sectors = PAGE_SIZE as u64 / 512;
    Some((numbers.get(2)? / sectors, numbers.get(6)? / sectors))
}

fn now() -> Result<(u64, u64)> {
    let path = Path::new(DIRECTORY).join("stat");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    pages(&text).with_context(|| format!("{}: {text:?}", path.display()))
}

/// The peak of its memory: the fifth number of `mm_stat`.
fn peak() -> Option<u64> {
    let text = fs::read_to_string(Path::new(DIRECTORY).join("mm_stat")).ok()?;
    text.split_ascii_whitespace().nth(4)?.parse().ok()
}

impl Area for Zram {
    fn begin(&mut self) -> Result<()> {
        self.before = now()?;
        Ok(())
    }

    fn told(&mut self, _: Vmstat) -> Result<Told> {
        let (read, written) = now()?;
        Ok(Told {
            stored: Some(written - self.before.1),
            loaded: Some(read - self.before.0),
            written_back: Some(0),
            pool_peak_bytes: peak(),
            ..Told::default()
        })
    }

    fn end(self: Box<Self>) -> Result<()> {
        let Zram { mut on, setup, .. } = *self;
        let ended = on.off();
        drop((on, setup));
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::pages;

    #[test]
    fn pages_in_what_a_device_counts() {
        let text = "  100  0  800  5  200 0 1600 9 0 0 0\n";
        assert_eq!(pages(text), Some((100, 200)));
        assert_eq!(pages("1 2 3"), None);
    }
}
