//! The pages of a device that are on its backing device.

use alloc::{format, string::String};
use core::ops::{ControlFlow, Range};

use block::{BlockDevice, ExtentKind};
use pagelog::Backed;
use units::{Cpu, PAGE_SIZE};

use super::Recovery;
use crate::backing::Backing;
use crate::blocks::BackingBlocks;
use crate::resources::Design;

impl<D: Design> Recovery<D> {
    /// Says what is wrong with a page that was written back. Marks its place.
    pub(super) fn judge_backed(&self, place: Backed) -> Result<(), String> {
        let Some(backing) = self.engine.backing() else {
            return Err("it was written back, and there is no backing device (K18)".into());
        };
        if usize::from(place.length) < PAGE_SIZE {
            self.judge_codec(place.codec)?;
        }
        let start = u64::from(place.block) * PAGE_SIZE as u64;
        let bytes = match **backing {
            Backing::Pages(_) => start..start + PAGE_SIZE as u64,
            Backing::Log(_) => place.log_span(),
        };
        if self.is_sealed && !has_seals(backing.device(), bytes) {
            let why = "it was written back sealed, and the key ended with the process (K18)";
            return Err(why.into());
        }
        match (&**backing, &self.log) {
            (Backing::Pages(blocks), _) => self.claim_block(blocks, place.block),
            (Backing::Log(_), Some(log)) => {
                log.claim(place).map_err(|error| format!("{error} (K25)"))
            }
            (Backing::Log(_), None) => Err("nothing was kept of its log (K24)".into()),
        }
    }

    fn claim_block(&self, blocks: &BackingBlocks, block: u32) -> Result<(), String> {
        match blocks.claim(block) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.findings.lock().blocks.insert(block);
                Err(format!("another page has block {block} of the backing device too (K19)"))
            }
            Err(blocks) => {
                Err(format!("block {block} is none of the {blocks} of the backing device (K18)"))
            }
        }
    }
}

/// Whether a sealed device can open these blocks. A place beyond its end is another error.
fn has_seals(device: &dyn BlockDevice, bytes: Range<u64>) -> bool {
    let mut has_seals = true;
    let _ = device.extents(Cpu(0), bytes.start, bytes.end - bytes.start, &mut |extent| {
        has_seals &= extent.kind != ExtentKind::Hole;
        ControlFlow::Continue(())
    });
    has_seals
}
