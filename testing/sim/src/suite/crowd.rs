//! Threads that use one device at once, and the function that makes the device.

use std::panic::resume_unwind;
use std::sync::{Arc, Barrier};
use std::thread;

use block::layer::Part;
use block::{BlockDevice, IoError};
use sync::atomic::{AtomicBool, Ordering};
use testkit::cases;
use units::PAGE_SIZE;

use crate::model::Drive;

/// Makes a fresh device of the given number of bytes, a multiple of the page size.
pub type Make<'a> = &'a dyn Fn(u64) -> Arc<dyn BlockDevice>;

pub(super) const P: u64 = PAGE_SIZE as u64;

/// The options of a crowd of threads on one device.
#[derive(Clone, Copy)]
pub struct Crowd<'a> {
    /// The seed of the threads' operations. The machine decides their timing.
    pub seed: u64,
    /// The rounds of each thread.
    pub rounds: usize,
    /// Whether the device may refuse changes for lack of space or memory.
    pub may_refuse: bool,
    /// One more thread calls this in a loop.
    pub beside: &'a (dyn Fn() + Sync),
}

impl Crowd<'_> {
    /// A crowd on a device with space, and no other activity.
    #[must_use]
    pub fn new(seed: u64) -> Crowd<'static> {
        let rounds = cases(1500);
        Crowd { seed, rounds, may_refuse: false, beside: &thread::yield_now }
    }

    /// Whether the change succeeded. An unexpected error is a panic.
    pub(super) fn made(&self, what: &str, result: Result<(), IoError>) -> bool {
        match result {
            Ok(()) => true,
            Err(IoError::NoSpace | IoError::NoMemory) if self.may_refuse => false,
            Err(error) => panic!("{what} failed: {error} (drawn from {:#x})", self.seed),
        }
    }
}

/// Runs each task in its own thread. One more thread calls `beside` in a loop until the tasks end.
///
/// # Panics
/// With the panic of a task, after all tasks have ended.
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

/// Threads that each drive `pages` pages of their own, and know every byte of them. One more thread
/// calls `beside` in a loop.
///
/// # Panics
/// When the device and the model of a thread differ.
pub fn owners<'a, D: BlockDevice + 'a>(
    device: &Arc<D>,
    pages: u64,
    drives: &[Drive],
    beside: &(dyn Fn() + Sync),
) {
    let task = |(n, drive): (u64, &Drive)| -> Box<dyn FnOnce() + Send + 'a> {
        let part = Part::behind(device.clone(), n * pages * P).at_most(pages * P);
        let drive = *drive;
        Box::new(move || {
            drive.run(&part);
        })
    };
    together((0..).zip(drives).map(task).collect(), beside);
}
