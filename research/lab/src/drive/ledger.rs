//! What must be on a device: kept from the parts that threads have done, and compared with what is
//! there, off the clock.

use anyhow::{Context, Result, bail};
use units::PAGE_SIZE;

use super::content::Source;
use super::modes::{Part, Step};
use super::target::Target;
use crate::interrupt;
use crate::page::{page, pages};
use crate::sys::Memory;

/// What may be in each place.
pub struct Ledger {
    /// Blocks of the contents, by place. None: nothing was ever written there.
    places: Vec<Vec<u32>>,
    /// Whether threads write to the same places, so that nobody knows whose block is the last one;
    /// pages of it may even be of different ones.
    shared: bool,
}

impl Ledger {
    /// Of an empty device.
    pub fn new(places: usize, shared: bool) -> Ledger {
        Ledger { places: vec![Vec::new(); places], shared }
    }

    /// Threads have done these parts.
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

    /// Reads all of the device and compares every page with what it must be.
    ///
    /// # Errors
    /// The target's, a page that was never written there, or being interrupted.
    pub fn verify(&self, target: &dyn Target, source: &Source) -> Result<()> {
        let bytes = source.block(0).len();
        let mut buffer = Memory::new(bytes).context("no memory for a buffer")?;
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
