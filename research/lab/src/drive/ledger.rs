//! The expected contents of a device. The ledger notes the parts that threads have done, and
//! compares the device with them, off the clock.

use anyhow::{Context, Result, bail};
use units::PAGE_SIZE;

use super::content::Source;
use super::modes::{Part, Step};
use crate::interrupt;
use crate::page::{page, pages};
use crate::pages::Target;
use crate::sys::memory;

/// The blocks that each place may hold.
pub struct Ledger {
    /// Blocks of the contents, by place. An empty list: no thread ever wrote there.
    places: Vec<Vec<u32>>,
    /// Whether threads write to the same places. Then the last block in a place is unknown, and its
    /// pages may even come from different blocks.
    shared: bool,
}

impl Ledger {
    /// The ledger of an empty device.
    pub fn new(places: usize, shared: bool) -> Ledger {
        Ledger { places: vec![Vec::new(); places], shared }
    }

    /// Notes that threads have done these parts.
    pub fn note(&mut self, parts: &[Part]) {
        for step in parts.iter().flat_map(|part| &part.steps) {
            if step.source == Step::READ {
                continue;
            }
            let known = &mut self.places[step.place as usize];
            if !self.shared {
                known.clear();
            }
            if !known.contains(&step.source) {
                known.push(step.source);
            }
        }
    }

    /// Reads the whole device and compares every page with the expected ones.
    pub fn verify(&self, target: &dyn Target, source: &Source) -> Result<()> {
        let bytes = source.block(0).len();
        let mut buffer = memory(bytes).context("no memory for a buffer")?;
        for (place, known) in self.places.iter().enumerate() {
            interrupt::check()?;
            let offset = (place * bytes) as u64;
            target.read(offset, &mut buffer)?;
            for (number, found) in pages(&buffer).enumerate() {
                let is = |block: &u32| page(source.block(*block as usize), number) == found;
                let empty = known.is_empty() && *found == [0; PAGE_SIZE];
                if !empty && !known.iter().any(is) {
                    let index = offset / PAGE_SIZE as u64 + number as u64;
                    bail!("page {index} is not what was written there");
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
