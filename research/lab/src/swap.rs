//! Makes swap of several kinds for a measurement, and takes it away after it.
//!
//! Swap belongs to the whole machine. So only the cgroup of a measurement uses it as long as the
//! rest of the machine has enough memory. Only one process at a time has swap on.

mod area;
mod design;
mod mode;
mod ours;
mod shop;
mod zram;
mod zswap;

use anyhow::{Context, Result};

pub use mode::{Kind, Mode};
pub use shop::{Area, Shop, Told, active, counters};

impl Shop {
    /// Makes the swap, on and empty; `None` for no swap.
    pub fn make(&self, mode: &Mode) -> Result<Option<Box<dyn Area>>> {
        let variant = mode.variant.as_deref();
        let made: Result<Box<dyn Area>> = match mode.kind {
            Kind::None => return Ok(None),
            Kind::File => area::Plain::new(self).map(|area| Box::new(area) as _),
            Kind::KernelZswap => zswap::Zswap::new(self, variant).map(|area| Box::new(area) as _),
            Kind::KernelZram => zram::Zram::new(self, variant).map(|area| Box::new(area) as _),
            Kind::Rampack => ours::Ours::new(self, variant, &[]).map(|area| Box::new(area) as _),
            Kind::Behind => zswap::Behind::new(self, variant).map(|area| Box::new(area) as _),
            Kind::Design => design::Design::new(self, variant).map(|area| Box::new(area) as _),
        };
        made.map(Some).with_context(|| mode.to_string())
    }
}

#[cfg(test)]
mod tests;
