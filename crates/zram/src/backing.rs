//! What a backing device holds: a page in each block, or a log.

use block::{BlockDevice, Job, Operation};
use pagelog::{AT_ONCE, Backed, PageLog, Wanted};
use sync::Reader;
use units::{Cpu, PAGE_SIZE};

use crate::blocks::BackingBlocks;

/// A backing device. Any number of threads may call every method at once.
pub(crate) enum Backing {
    /// A page in each block. [`Backed::block`] is the number of a block.
    Pages(BackingBlocks),
    /// Objects one behind the other. [`Backed::block`] is the word of a place.
    Log(PageLog),
}

impl Backing {
    /// The device.
    pub(crate) fn device(&self) -> &dyn BlockDevice {
        match self {
            Backing::Pages(blocks) => blocks.device(),
            Backing::Log(log) => log.device(),
        }
    }

    /// The path it was opened as.
    pub(crate) fn path(&self) -> &str {
        match self {
            Backing::Pages(blocks) => blocks.path(),
            Backing::Log(log) => log.path(),
        }
    }

    /// Enters a reader: what a slot names from now on stays while the reader lives.
    pub(crate) fn reading(&self, cpu: Cpu) -> Reader<'_> {
        match self {
            Backing::Pages(blocks) => blocks.reading(cpu),
            Backing::Log(log) => log.reading(cpu),
        }
    }

    /// No slot names this place any more.
    pub(crate) fn retire(&self, place: Backed) {
        match self {
            Backing::Pages(blocks) => blocks.retire(place.block),
            Backing::Log(log) => log.free(place),
        }
    }

    /// Reads pages, at most [`AT_ONCE`], and sets the result of each. The caller is a reader since
    /// before it found the places in slots.
    pub(crate) fn read(&self, cpu: Cpu, wanted: &mut [Option<Wanted<'_>>]) {
        match self {
            Backing::Pages(blocks) => read_blocks(blocks.device(), cpu, wanted),
            Backing::Log(log) => log.read(cpu, wanted),
        }
    }
}

fn read_blocks(device: &dyn BlockDevice, cpu: Cpu, wanted: &mut [Option<Wanted<'_>>]) {
    let mut jobs: [Job<'_>; AT_ONCE] = core::array::from_fn(|_| Job::new(Operation::Flush));
    let mut count = 0;
    for (job, wanted) in jobs.iter_mut().zip(wanted.iter_mut().flatten()) {
        let offset = u64::from(wanted.place.block) * PAGE_SIZE as u64;
        *job = Job::new(Operation::Read { offset, into: &mut wanted.into[..] });
        count += 1;
    }
    device.submit_all(cpu, &mut jobs[..count]);
    let results = jobs.map(|job| job.result);
    for (result, wanted) in results.into_iter().zip(wanted.iter_mut().flatten()) {
        wanted.result = result;
    }
}
