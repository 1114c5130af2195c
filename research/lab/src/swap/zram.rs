//! The kernel's zram as swap.

use std::fs;
use std::path::Path;

use anyhow::Result;
use units::PAGE_SIZE;

use super::area::On;
use super::{Area, Shop, Told};
use crate::pages::kernel::Setup;
use crate::proc_files::Counters;

const DEVICE: &str = "/dev/zram0";
/// The algorithm without a variant.
const ALGORITHM: &str = "lz4";

/// Swap on the kernel's zram0.
pub struct Zram {
    // Dropped in this order.
    on: On,
    setup: Setup,
}

impl Zram {
    /// Sets up zram0 and swaps to it.
    pub fn new(shop: &Shop, algorithm: Option<&str>) -> Result<Zram> {
        let pages = (shop.bytes / PAGE_SIZE as u64) as usize;
        let setup = Setup::new(Path::new(DEVICE), algorithm.unwrap_or(ALGORITHM), pages)?;
        let on = On::new(Path::new(DEVICE), shop.first)?;
        Ok(Zram { on, setup })
    }
}

impl Area for Zram {
    fn told(&mut self, counted: &Counters) -> Result<Told> {
        let peak = fs::read_to_string("/sys/block/zram0/mm_stat").unwrap_or_default();
        // The fifth number is the peak of its memory.
        let peak = peak.split_ascii_whitespace().nth(4).and_then(|bytes| bytes.parse().ok());
        Ok(Told {
            stored: counted.get("pswpout").copied(),
            loaded: counted.get("pswpin").copied(),
            written_back: Some(0),
            pool_peak_bytes: peak,
            ..Told::default()
        })
    }

    fn end(self: Box<Self>) -> Result<()> {
        let Zram { mut on, setup } = *self;
        let ended = on.off();
        drop((on, setup));
        ended
    }
}
