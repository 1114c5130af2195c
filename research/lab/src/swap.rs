//! Swap of several kinds, made for a measurement and taken away after it.
//!
//! Swap is the machine's, so what is made here is used by the memory cgroup of a measurement only
//! as long as the rest of the machine has memory. One process at a time has any.

mod area;
mod design;
mod mode;
mod ours;
mod shop;
mod zram;
mod zswap;

use anyhow::{Context, Result};

pub use mode::{KINDS, Kind, Mode};
pub use shop::{Area, Daemon, Shop, Told, Vmstat, active};

/// No swap.
struct Nothing;

impl Area for Nothing {
    fn told(&mut self, _: Vmstat) -> Result<Told> {
        Ok(Told::default())
    }

    fn end(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Shop {
    /// Makes it, on and empty.
    ///
    /// # Errors
    /// It cannot be made here; all that was done is undone.
    pub fn make(&self, mode: &Mode) -> Result<Box<dyn Area>> {
        let variant = mode.variant.as_deref();
        let made: Result<Box<dyn Area>> = match mode.kind {
            Kind::None => Ok(Box::new(Nothing)),
            Kind::File => area::Plain::new(self).map(|area| Box::new(area) as _),
            Kind::KernelZswap => zswap::Zswap::new(self, variant).map(|area| Box::new(area) as _),
            Kind::KernelZram => zram::Zram::new(self, variant).map(|area| Box::new(area) as _),
            Kind::Rampack => ours::Ours::new(self, variant).map(|area| Box::new(area) as _),
            Kind::Design => design::Design::new(self, variant).map(|area| Box::new(area) as _),
        };
        made.with_context(|| mode.to_string())
    }
}

#[cfg(test)]
mod tests;
