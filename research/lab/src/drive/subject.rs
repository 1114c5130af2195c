//! The subjects of a run, and how each starts fresh for every repetition.

use std::path::PathBuf;

use anyhow::{Context, Result};
use designs::Variants;
use units::PAGE_SIZE;

use crate::pages::{Device, Engine, Target};

/// The number of streams of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// The engine's default.
    Usual,
    /// This number.
    Fixed(u32),
    /// One for each thread.
    Threads,
}

/// A subject of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// The name in results.
    pub name: String,
    /// Our engine with these variants. `None`: the kernel's device.
    pub variants: Option<Variants>,
    /// The number of streams of our engine.
    pub streams: Count,
}

impl Subject {
    /// Our engine with these variants and otherwise defaults.
    pub fn ours(name: &str, variants: Variants) -> Subject {
        Subject { name: name.to_owned(), variants: Some(variants), streams: Count::Usual }
    }

    /// Bytes of the slot table for a page. `None` for the kernel, which does not report them.
    pub fn slot_bytes(&self) -> Result<Option<f64>> {
        // The engine counts the table in pieces of 512 slots.
        const PAGES: u64 = 512;
        let Some(variants) = &self.variants else { return Ok(None) };
        let engine = Engine::new(PAGES as usize, zcomp::DEFAULT_ALGORITHM, variants)?;
        (0..PAGES).try_for_each(|index| engine.store(index, &[1; PAGE_SIZE]))?;
        Ok(engine.figures().metadata.map(|bytes| bytes as f64 / PAGES as f64))
    }
}

/// The setting that all subjects share.
pub struct Setting {
    pub algorithm: String,
    /// The kernel's device.
    pub kernel: Option<PathBuf>,
}

impl Setting {
    /// Starts a subject with an empty device of `bytes`. Dropping the result takes it down.
    pub fn open(&self, subject: &Subject, bytes: usize, threads: usize) -> Result<Box<dyn Target>> {
        let pages = bytes / PAGE_SIZE;
        let Some(variants) = &subject.variants else {
            let path = self.kernel.as_ref().context("--kernel is missing")?;
            return Ok(Box::new(Device::of_kernel(path, &self.algorithm, pages)?));
        };
        let engine = Engine::new(pages, &self.algorithm, variants)?;
        let streams = match subject.streams {
            Count::Usual => return Ok(Box::new(engine)),
            Count::Fixed(count) => count,
            Count::Threads => threads as u32,
        };
        engine.disk.set_max_streams(streams)?;
        Ok(Box::new(engine))
    }
}
