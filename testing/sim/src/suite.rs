//! What every block device must pass.
//!
//! The parts can be called one by one; [`block_device`] calls all of them. Each panics with what
//! it found, and with the seed where chance is involved.

mod edges;
mod hot_pages;
mod neighbours;

use std::panic::resume_unwind;
use std::sync::{Arc, Barrier};
use std::thread;

use block::{BlockDevice, IoError};
use sync::atomic::{AtomicBool, Ordering};
use testkit::Rng;
use units::PAGE_SIZE;

use crate::events::Weights;
use crate::model::{Drive, listed};
use crate::shrink;

pub use edges::edges;
pub use hot_pages::hot_pages;
pub use neighbours::neighbours;

/// Makes a device of so many bytes, a multiple of the page size, that was never used.
pub type Make<'a> = &'a dyn Fn(u64) -> Arc<dyn BlockDevice>;

const P: u64 = PAGE_SIZE as u64;

/// The whole suite, for devices that have space for all of their bytes.
///
/// # Panics
/// When the device breaks the contract of [`BlockDevice`].
pub fn block_device(seed: u64, make: impl Fn(u64) -> Arc<dyn BlockDevice>) {
    edges(&make);
    let mut rng = Rng::new(seed);
    for (pages, events) in [(1, 400), (7, 1500), (300, 3000)] {
        against_model(&make, pages * P, Drive::new(rng.next_u64(), events));
    }
    let weights = Weights { discard: 30, punch: 15, zero: 15, ..Weights::default() };
    against_model(&make, 16 * P, Drive { weights, ..Drive::new(rng.next_u64(), 1500) });
    neighbours(&*make(16 * P), Crowd::new(rng.next_u64()));
    hot_pages(&*make(16 * P), Crowd::new(rng.next_u64()));
}

/// How a crowd of threads is let loose on a device.
#[derive(Clone, Copy)]
pub struct Crowd<'a> {
    /// Where what they do comes from; when they do it is up to the machine.
    pub seed: u64,
    /// Whether the device may refuse changes for want of space or memory.
    pub may_refuse: bool,
    /// Called over and over by one more thread.
    pub beside: &'a (dyn Fn() + Sync),
}

impl Crowd<'_> {
    /// On a device with space, and nothing else going on.
    #[must_use]
    pub fn new(seed: u64) -> Crowd<'static> {
        Crowd { seed, may_refuse: false, beside: &thread::yield_now }
    }

    /// Whether a change was made; any error but an expected one is a panic.
    fn made(&self, what: &str, result: Result<(), IoError>) -> bool {
        match result {
            Ok(()) => true,
            Err(IoError::NoSpace | IoError::NoMemory) if self.may_refuse => false,
            Err(error) => panic!("{what} failed: {error} (RAMPACK_SEED={:#x})", self.seed),
        }
    }
}

/// Random events against the model, on a device of `bytes` bytes.
///
/// # Panics
/// When device and model differ, with the seed and as few events as it takes.
pub fn against_model(make: Make<'_>, bytes: u64, drive: Drive) {
    let device = make(bytes);
    let events: Vec<_> = drive.events(&*device).collect();
    let Some((number, wrong)) = shrink::first_difference(&*device, &events, drive.may_fill_up)
    else {
        return;
    };
    let shrunk = shrink::shrink(&|| make(bytes), &events, drive.may_fill_up);
    let seed = drive.seed;
    match shrunk {
        Some((events, wrong)) => panic!(
            "{wrong}\nafter these events on a new device of {bytes} bytes:\n{}\
             the first {} events of seed {seed:#x}, shrunk",
            listed(&events),
            number + 1
        ),
        None => panic!("{wrong}\nat event {number} of seed {seed:#x}, but not a second time"),
    }
}

/// The model for devices that run out of space: `make` must give one that cannot hold half of its
/// bytes when they are noise. What was stored must survive that changes are refused, and once
/// everything is discarded there must be space again.
///
/// # Panics
/// When it does not, or when nothing was refused.
pub fn filling_up(seed: u64, make: impl Fn(u64) -> Arc<dyn BlockDevice>) {
    const BYTES: u64 = 400 * P;
    let weights = Weights { write_pages: 60, discard: 2, punch: 1, ..Weights::default() };
    let drive = Drive { weights, may_fill_up: true, ..Drive::new(seed, 3000) };
    against_model(&make, BYTES, drive);
    let device = make(BYTES);
    for round in 0..2 {
        let refused = edges::fill_with_noise(&*device, seed + round);
        assert!(refused > 0, "nothing was refused in round {round}; the device has a limit");
        assert!(refused < BYTES / P, "there is no space again in round {round}");
        edges::discard_all(&*device);
    }
}

/// Runs each task in a thread of its own and `beside` over and over in one more until the tasks
/// are done.
///
/// # Panics
/// With the panic of a task, when all have ended.
pub fn together<'a>(tasks: Vec<Box<dyn FnOnce() + Send + 'a>>, beside: &(dyn Fn() + Sync)) {
    let done = AtomicBool::new(false);
    let start = Barrier::new(tasks.len());
    thread::scope(|scope| {
        let tasks: Vec<_> = tasks
            .into_iter()
            .map(|task| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    task();
                })
            })
            .collect();
        let beside = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                beside();
            }
        });
        let ends: Vec<_> = tasks.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        let beside = beside.join();
        ends.into_iter().chain([beside]).for_each(|end| {
            end.unwrap_or_else(|payload| resume_unwind(payload));
        });
    });
}
