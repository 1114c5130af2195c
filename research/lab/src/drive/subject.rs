//! The subjects of a run, and how each starts fresh for every repetition.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use designs::{Disk, Machine, Variants};
use rampack::DiskOptions;
use units::PAGE_SIZE;

use super::target::{Process, Target};
use crate::pages::device::Device;
use crate::pages::kernel;
use crate::served::{self, Up};

/// The way of requests to the engine.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Through {
    /// A call in this process
    Process,
    /// A block device: pwrite and pread with O_DIRECT
    Device,
}

impl Through {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Through::Process => "process",
            Through::Device => "device",
        }
    }
}

/// The number of streams of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// The engine's default.
    Usual,
    /// This number.
    Fixed(usize),
    /// One for each thread.
    Threads,
}

/// Our engine with these variants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ours {
    /// The variants.
    pub variants: Variants,
    /// The number of streams.
    pub streams: Count,
    /// Whether each page of a block is a call of its own.
    pub by_page: bool,
}

/// A subject of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// The name in results.
    pub name: String,
    /// Our engine. `None`: the kernel's device.
    pub ours: Option<Ours>,
}

impl Subject {
    /// Our engine with these variants and otherwise defaults.
    pub fn ours(name: &str, variants: Variants) -> Subject {
        let ours = Ours { variants, streams: Count::Usual, by_page: false };
        Subject { name: name.to_owned(), ours: Some(ours) }
    }

    /// The kernel's device.
    pub fn kernel() -> Subject {
        Subject { name: "kernel".to_owned(), ours: None }
    }

    /// Bytes of the slot table for a page. `None` for the kernel, which does not report them.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn slot_bytes(&self) -> Result<Option<f64>> {
        // The engine counts the table in pieces of 512 slots.
        const PAGES: u64 = 512;
        let Some(ours) = &self.ours else { return Ok(None) };
        let disk = ours.disk(rampack::DEFAULT_ALGORITHM, PAGES as usize * PAGE_SIZE, 1)?;
        for index in 0..PAGES {
            disk.store(index, &[1; PAGE_SIZE]).map_err(|error| anyhow!("{error}"))?;
        }
        Ok(Some(disk.stats().metadata_bytes as f64 / PAGES as f64))
    }
}

impl Ours {
    /// A device in a machine of its own.
    fn disk(&self, algorithm: &str, bytes: usize, threads: usize) -> Result<Disk> {
        let algorithm = algorithm.to_owned();
        let options = DiskOptions { size: bytes as u64, algorithm, ..DiskOptions::default() };
        let make = || Machine::of(self.variants.clone())?.disk(&options);
        let disk = make().map_err(|fault| anyhow!("{fault}")).context("the engine")?;
        if let Some(streams) = self.streams(threads) {
            let set = disk.device().set_max_streams(streams as u32);
            set.map_err(|fault| anyhow!("{fault}"))?;
        }
        Ok(disk)
    }

    fn streams(&self, threads: usize) -> Option<usize> {
        match self.streams {
            Count::Usual => None,
            Count::Fixed(count) => Some(count),
            Count::Threads => Some(threads),
        }
    }
}

/// The setting that all subjects share.
pub struct Setting {
    /// The way of requests to our engine. The kernel's is always a block device.
    pub through: Through,
    /// The codec of our engine.
    pub algorithm: String,
    /// The kernel's device, and its codec.
    pub kernel: Option<(PathBuf, String)>,
}

impl Setting {
    /// Checks before the run whether `subjects` can start, for this many threads.
    ///
    /// # Errors
    /// The message says what is missing, unknown or in use.
    pub fn check(&self, subjects: &[Subject], threads: usize) -> Result<()> {
        if self.through == Through::Device {
            served::check()?;
        }
        if let Some((path, algorithm)) = &self.kernel {
            drop(kernel::Setup::new(path, algorithm, 1)?);
        }
        for subject in subjects {
            if let Some(ours) = &subject.ours {
                ours.disk(&self.algorithm, PAGE_SIZE, threads).context(subject.name.clone())?;
            }
        }
        Ok(())
    }

    /// Starts a subject with an empty device of `bytes`. Dropping the result takes it down.
    ///
    /// # Errors
    /// The subject cannot start; the message says why.
    pub fn open(&self, subject: &Subject, bytes: usize, threads: usize) -> Result<Box<dyn Target>> {
        let pages = bytes / PAGE_SIZE;
        match (&subject.ours, self.through, &self.kernel) {
            (Some(ours), Through::Process, _) => {
                let disk = ours.disk(&self.algorithm, bytes, threads)?;
                Ok(Box::new(Process { disk, by_page: ours.by_page }))
            }
            (Some(ours), Through::Device, _) => {
                let (bytes, streams) = (bytes.to_string(), ours.streams(threads));
                let mut arguments = vec!["--size", &bytes, "--algorithm", &self.algorithm];
                arguments.extend(["--slots", &ours.variants.slots]);
                arguments.extend(["--streams", &ours.variants.streams]);
                let streams = streams.map(|streams| streams.to_string());
                if let Some(streams) = &streams {
                    arguments.extend(["--max-streams", streams]);
                }
                let mut up = Up::start(&arguments)?;
                up.check()?;
                let device = Device::open(up.device(), pages)?;
                Ok(Box::new(Held { device, _holder: up }))
            }
            (None, _, Some((path, algorithm))) => {
                let setup = kernel::Setup::new(path, algorithm, pages)?;
                let device = Device::open(path, pages)?;
                Ok(Box::new(Held { device, _holder: setup }))
            }
            (None, _, None) => Err(anyhow!("there is no device of the kernel in this run")),
        }
    }
}

/// A block device, and the owner that keeps it alive.
struct Held<H> {
    // Dropped in this order: an open device cannot be taken down.
    device: Device,
    _holder: H,
}

impl<H: Sync> Target for Held<H> {
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.device.write_at(offset, from)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, into)
    }
}
