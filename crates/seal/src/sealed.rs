//! The layer.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Job, Operation, Visit,
};
use host::KeptSecret;
use pagealloc::{MemoryProvider, NoMemory};
use units::{Cpu, PAGE_SIZE, Page};

use crate::buffers::{Buffers, PAGES};
use crate::key::{Key, Seal};
use crate::seals::{Known, Seals};

const P: u64 = PAGE_SIZE as u64;
/// The most blocks: numbers of blocks are part of a nonce with 32 bits.
const MOST: u64 = 1 << 32;

/// A device over another one, on which everything is encrypted and authenticated. See the crate's
/// documentation.
pub struct Sealed {
    next: Arc<dyn BlockDevice>,
    key: Key,
    seals: Seals,
    buffers: Buffers,
    blocks: u64,
    /// Gives up the key with the layer.
    _kept: Option<KeptSecret>,
}

/// The seals of a write that is under way.
struct Writing {
    seals: [(u64, Seal, u64); PAGES],
    count: usize,
}

impl Writing {
    const NOTHING: (u64, Seal, u64) = (0, Seal { number: 0, tag: [0; 16] }, 0);

    const fn new() -> Writing {
        Writing { seals: [Writing::NOTHING; PAGES], count: 0 }
    }
}

impl Sealed {
    /// Puts the layer above `next`, with a new key. All blocks are empty: what is on the device
    /// cannot be read through the layer. Only the first `bytes` of the device are used, and at most
    /// 16 TiB. `buffers` writes can be under way at once; each buffer has 128 KiB.
    ///
    /// If `provider` provides memory ahead, all seals have their memory afterwards: 24 bytes for
    /// each block.
    ///
    /// # Errors
    /// `OutOfMemory` when there is no memory for seals; the memory of the key cannot be locked
    /// (`ulimit -l`).
    pub fn new(
        next: Arc<dyn BlockDevice>,
        provider: &dyn MemoryProvider,
        bytes: u64,
        buffers: usize,
    ) -> io::Result<Sealed> {
        Sealed::made(next, (provider, None), bytes, buffers, Key::random()?, None)
    }

    /// Puts the layer above `next`, with a key that can outlive the process. If the memory of
    /// `provider` can, too, another process makes the layer again with both, and says how many
    /// bytes of memory were left there: then each block opens that was written before, and those
    /// being written when the process ended are [`IoError::Corrupt`]. The layer then has no more
    /// blocks than at first, and as many of them as the device has. Otherwise as [`Sealed::new`].
    ///
    /// # Errors
    /// As of [`Sealed::new`].
    pub fn kept(
        next: Arc<dyn BlockDevice>,
        (provider, left): (&dyn MemoryProvider, Option<u64>),
        bytes: u64,
        buffers: usize,
        key: KeptSecret,
    ) -> io::Result<Sealed> {
        Sealed::made(next, (provider, left), bytes, buffers, Key::of(&key)?, Some(key))
    }

    fn made(
        next: Arc<dyn BlockDevice>,
        (provider, left): (&dyn MemoryProvider, Option<u64>),
        bytes: u64,
        buffers: usize,
        key: Key,
        kept: Option<KeptSecret>,
    ) -> io::Result<Sealed> {
        let blocks = (next.geometry().bytes.min(bytes) / P).min(MOST);
        let no_memory = |error: NoMemory| io::Error::new(io::ErrorKind::OutOfMemory, error);
        let seals = match left {
            None => Seals::new(provider, blocks as usize),
            Some(bytes) => Seals::left(provider, bytes, blocks as usize),
        };
        let seals = seals.map_err(no_memory)?;
        let blocks = blocks.min(seals.count() as u64);
        Ok(Sealed { next, key, seals, buffers: Buffers::new(buffers), blocks, _kept: kept })
    }

    /// The blocks of a range.
    fn range(&self, offset: u64, length: u64) -> Result<Range<u64>, IoError> {
        let end = offset.checked_add(length).ok_or(IoError::OutOfRange)?;
        if end > self.blocks * P {
            return Err(IoError::OutOfRange);
        }
        if !(offset.is_multiple_of(P) && length.is_multiple_of(P)) {
            return Err(IoError::Unaligned);
        }
        Ok(offset / P..end / P)
    }

    fn read(&self, context: Context, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let mut blocks = self.range(offset, into.len() as u64)?;
        if blocks.all(|block| self.seals.get(block) == Known::Empty) {
            into.fill(0);
            return Ok(());
        }
        self.next.perform(context, Operation::Read { offset, into: &mut *into })?;
        self.open(offset, into)
    }

    /// Opens what was read.
    fn open(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let (pages, _) = into.as_chunks_mut::<PAGE_SIZE>();
        let mut result = Ok(());
        for (block, page) in (offset / P..).zip(pages) {
            let opened = match self.seals.get(block) {
                Known::Empty => {
                    page.fill(0);
                    Ok(())
                }
                Known::Changing => Err(IoError::Corrupt),
                Known::Sealed(seal) => {
                    self.key.open(block, seal, page).map_err(|_| IoError::Corrupt)
                }
            };
            result = result.and(opened);
        }
        result
    }

    fn write(&self, context: Context, offset: u64, from: &[u8]) -> Result<(), IoError> {
        self.range(offset, from.len() as u64)?;
        context.may_wait()?;
        for (n, part) in from.chunks(PAGES * PAGE_SIZE).enumerate() {
            let offset = offset + (n * PAGES) as u64 * P;
            let mut buffer = self.buffers.take(context.cpu);
            let sealed = &mut buffer.bytes()[..part.len()];
            let mut writing = Writing::new();
            self.seal(offset, part, sealed, &mut writing);
            let written = self.next.perform(context, Operation::Write { offset, from: sealed });
            self.settle(&writing.seals[..writing.count], written);
            written?;
        }
        Ok(())
    }

    /// Encrypts pages into `sealed`, and marks their blocks.
    fn seal(&self, offset: u64, from: &[u8], sealed: &mut [u8], writing: &mut Writing) {
        sealed.copy_from_slice(from);
        let (pages, _): (&mut [Page], _) = sealed.as_chunks_mut::<PAGE_SIZE>();
        for (block, page) in (offset / P..).zip(pages) {
            let seal = self.key.seal(block, self.seals.next_number(), page);
            writing.seals[writing.count] = (block, seal, self.seals.begin(block));
            writing.count += 1;
        }
    }

    /// Ends a write: the new seals if it succeeded, else the old ones.
    fn settle(&self, seals: &[(u64, Seal, u64)], written: Result<(), IoError>) {
        for (block, seal, before) in seals {
            match written {
                Ok(()) => self.seals.put(*block, *seal),
                Err(_) => self.seals.restore(*block, *before),
            }
        }
    }

    /// The blocks read as zeroes from now on. The device below may free them.
    fn give_up(&self, context: Context, offset: u64, length: u64) -> Result<(), IoError> {
        let blocks = self.range(offset, length)?;
        context.may_wait()?;
        blocks.for_each(|block| self.seals.clear(block));
        if self.next.abilities().discard {
            // A hint: if the device keeps them, nobody can read them.
            let _ = self.next.perform(context, Operation::Discard { offset, length });
        }
        Ok(())
    }

    /// The jobs from the first one on that can be carried out together: reads, and writes that fit
    /// into a buffer.
    fn together(&self, jobs: &[Job<'_>]) -> usize {
        let mut room = PAGES * PAGE_SIZE;
        let fits = |job: &&Job<'_>| {
            let (offset, length) = job.operation.range();
            let fits = match &job.operation {
                Operation::Read { .. } => true,
                Operation::Write { from, .. } => from.len() <= room,
                _ => false,
            };
            if let Operation::Write { from, .. } = &job.operation {
                room = room.saturating_sub(from.len());
            }
            fits && self.range(offset, length).is_ok()
        };
        jobs.iter().take(PAGES).take_while(fits).count()
    }

    /// Carries out jobs that [`Sealed::together`] found.
    fn carry_out(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        let count = jobs.len();
        let writes = jobs.iter().any(|job| matches!(job.operation, Operation::Write { .. }));
        let mut buffer = writes.then(|| self.buffers.take(cpu));
        let mut room = buffer.as_mut().map_or(&mut [][..], |buffer| buffer.bytes());
        let mut writing = Writing::new();
        let mut below: [Job<'_>; PAGES] = std::array::from_fn(|_| Job::new(Operation::Flush));
        for (job, below) in jobs.iter_mut().zip(&mut below) {
            below.operation = match &mut job.operation {
                Operation::Write { offset, from } => {
                    let (sealed, behind) = std::mem::take(&mut room).split_at_mut(from.len());
                    room = behind;
                    self.seal(*offset, from, sealed, &mut writing);
                    Operation::Write { offset: *offset, from: sealed }
                }
                other => other.reborrow(),
            };
        }
        self.next.submit_all(cpu, &mut below[..count]);
        let results = below.map(|job| job.result);
        let mut seals = &writing.seals[..writing.count];
        for (job, result) in jobs.iter_mut().zip(results) {
            job.result = match &mut job.operation {
                Operation::Write { from, .. } => {
                    let (own, behind) = seals.split_at(from.len() / PAGE_SIZE);
                    seals = behind;
                    self.settle(own, result);
                    result
                }
                Operation::Read { offset, into } => result.and_then(|()| self.open(*offset, into)),
                _ => result,
            };
        }
    }
}

impl BlockDevice for Sealed {
    fn geometry(&self) -> Geometry {
        let below = self.next.geometry();
        let block = below.minimum_block.max(PAGE_SIZE as u32);
        Geometry {
            bytes: self.blocks * P,
            minimum_block: block,
            preferred_block: below.preferred_block.max(block),
        }
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            discard: true,
            fast_zero: true,
            checked: true,
            quick_discard: false,
            ..self.next.abilities()
        }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match operation {
            Operation::Read { offset, into } => self.read(context, offset, into),
            Operation::Write { offset, from } => self.write(context, offset, from),
            Operation::Discard { offset, length }
            | Operation::WriteZeroes { offset, length, .. } => {
                self.give_up(context, offset, length)
            }
            Operation::Flush => self.next.perform(context, Operation::Flush),
        }
    }

    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        let mut at = 0;
        while at < jobs.len() {
            let count = self.together(&jobs[at..]);
            if count == 0 {
                let job = &mut jobs[at];
                job.result = self.submit(cpu, job.operation.reborrow());
                at += 1;
            } else {
                self.carry_out(cpu, &mut jobs[at..at + count]);
                at += count;
            }
        }
    }

    fn extents(&self, _: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.blocks * P);
        let end = end.ok_or(IoError::OutOfRange)?;
        let kind = |at: u64| match self.seals.get(at / P) {
            Known::Empty => ExtentKind::Hole,
            Known::Changing | Known::Sealed(_) => ExtentKind::Data,
        };
        let mut at = offset;
        while at < end {
            let (start, this) = (at, kind(at));
            while at < end && kind(at) == this {
                at = (at / P + 1).saturating_mul(P).min(end);
            }
            if visit(Extent { length: at - start, kind: this }).is_break() {
                break;
            }
        }
        Ok(())
    }
}
