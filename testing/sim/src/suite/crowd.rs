//! Threads let loose on a device, and what makes one.

use std::panic::resume_unwind;
use std::sync::{Arc, Barrier};
use std::thread;

use block::{BlockDevice, IoError};
use sync::atomic::{AtomicBool, Ordering};
use units::PAGE_SIZE;

/// Makes a device of so many bytes, a multiple of the page size, that was never used.
pub type Make<'a> = &'a dyn Fn(u64) -> Arc<dyn BlockDevice>;

pub(super) const P: u64 = PAGE_SIZE as u64;

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
    pub(super) fn made(&self, what: &str, result: Result<(), IoError>) -> bool {
        match result {
            Ok(()) => true,
            Err(IoError::NoSpace | IoError::NoMemory) if self.may_refuse => false,
            Err(error) => panic!("{what} failed: {error} (drawn from {:#x})", self.seed),
        }
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
