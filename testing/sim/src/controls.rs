//! Devices that are wrong on purpose, each in one way. A suite that accepts one of them proves
//! nothing.

mod budget;

use std::sync::Mutex;
use std::thread;

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Operation, Plain,
    Visit, Wait, ZeroMode,
};
use sync::atomic::{AtomicU32, Ordering};
use units::{Cpu, PAGE_SIZE, Page};

pub use budget::{Budget, WhenFull};

/// The fault of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A part of a page is written in three steps: read the page, change it, write it back.
    LosesNeighbours,
    /// A page is written in two halves.
    TearsPages,
    /// Two pages of one write may end up in each other's place for a moment.
    ShufflesPages,
    /// A discard does nothing, but reports success.
    StaleAfterDiscard,
    /// A discard also drops the rest of the pages at its ends.
    DiscardsTooMuch,
    /// A write skips its last block if that block is not whole.
    DropsLastBlock,
    /// The last block of a device cannot be read.
    HidesLastBlock,
    /// Zeroes that must stay allocated become holes.
    AlwaysPunches,
    /// Zeroes that may become holes never do.
    NeverPunches,
    /// The device calls a page same-filled after it has compared the first half only.
    TrustsFirstHalf,
    /// Extents report data as zeroes.
    CallsDataZero,
    /// Extents leave out the end of the requested range.
    ShortExtents,
    /// A CPU reads the contents that it has read before.
    ReadsOldPages,
    /// A write that must not wait stops when half of it is done, also within a page.
    BlocksHalfWay,
    /// A read that may wait still returns "would block".
    NeverWaits,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Flaw; 15] = [
        Flaw::LosesNeighbours,
        Flaw::TearsPages,
        Flaw::ShufflesPages,
        Flaw::StaleAfterDiscard,
        Flaw::DiscardsTooMuch,
        Flaw::DropsLastBlock,
        Flaw::HidesLastBlock,
        Flaw::AlwaysPunches,
        Flaw::NeverPunches,
        Flaw::TrustsFirstHalf,
        Flaw::CallsDataZero,
        Flaw::ShortExtents,
        Flaw::ReadsOldPages,
        Flaw::BlocksHalfWay,
        Flaw::NeverWaits,
    ];
}

/// A plain device with a flaw.
pub struct Broken {
    plain: Plain,
    flaw: Flaw,
    /// The contents of page 0 that CPU 0 once read.
    old: Mutex<Option<Page>>,
    reads: AtomicU32,
}

const P: u64 = PAGE_SIZE as u64;

impl Broken {
    /// A device of `bytes` bytes with a flaw.
    #[must_use]
    pub fn new(bytes: u64, flaw: Flaw) -> Broken {
        Broken {
            plain: Plain::new(bytes as usize),
            flaw,
            old: Mutex::new(None),
            reads: AtomicU32::new(0),
        }
    }

    fn write(&self, cpu: Cpu, offset: u64, from: &[u8]) -> Result<(), IoError> {
        let put = |offset, from: &[u8]| self.plain.submit(cpu, Operation::Write { offset, from });
        let end = offset + from.len() as u64;
        match self.flaw {
            Flaw::LosesNeighbours if from.len() < PAGE_SIZE && !from.is_empty() => {
                let (start, end) = (offset / P * P, end.next_multiple_of(P));
                let mut pages = vec![0; (end - start) as usize];
                self.plain.submit(cpu, Operation::Read { offset: start, into: &mut pages })?;
                thread::yield_now();
                let within = (offset - start) as usize;
                pages[within..within + from.len()].copy_from_slice(from);
                put(start, &pages)
            }
            Flaw::TearsPages => {
                let (front, back) = from.split_at(from.len() / 2 + from.len() / 8);
                put(offset, front)?;
                thread::yield_now();
                put(offset + front.len() as u64, back)
            }
            Flaw::ShufflesPages if from.len() == 2 * PAGE_SIZE && offset.is_multiple_of(P) => {
                let (front, back) = from.split_at(PAGE_SIZE);
                put(offset, back)?;
                put(offset + P, front)?;
                thread::yield_now();
                put(offset, from)
            }
            Flaw::DropsLastBlock if from.len() > 512 => {
                put(offset, &from[..from.len() - (end % 512) as usize])
            }
            Flaw::TrustsFirstHalf if from.len() == PAGE_SIZE => {
                let (words, _) = from.as_chunks::<8>();
                if words[..words.len() / 2].iter().all(|word| *word == words[0]) {
                    return put(offset, &words[0].repeat(PAGE_SIZE / 8));
                }
                put(offset, from)
            }
            _ => put(offset, from),
        }
    }

    fn read(&self, cpu: Cpu, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.plain.submit(cpu, Operation::Read { offset, into: &mut *into })?;
        match self.flaw {
            Flaw::HidesLastBlock if offset + into.len() as u64 == self.plain.geometry().bytes => {
                let visible = into.len() - into.len().min(512);
                into[visible..].fill(0);
            }
            Flaw::ReadsOldPages if cpu.0 == 0 && offset == 0 => {
                if let Some(page) = into.first_chunk_mut::<PAGE_SIZE>() {
                    let mut old = self.old.lock().expect("nobody panics under this lock");
                    let now = *page;
                    let again = self.reads.fetch_add(1, Ordering::Relaxed);
                    if let (true, Some(old)) = (again % 4 == 3, *old) {
                        *page = old;
                    }
                    if again.is_multiple_of(8) {
                        *old = Some(now);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl BlockDevice for Broken {
    fn geometry(&self) -> Geometry {
        self.plain.geometry()
    }

    fn abilities(&self) -> Abilities {
        self.plain.abilities()
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (_, length) = operation.range();
        match (self.flaw, operation) {
            (Flaw::BlocksHalfWay, Operation::Write { offset, from })
                if context.wait == Wait::No && length > P =>
            {
                self.write(context.cpu, offset, &from[..from.len() / 2])?;
                Err(IoError::WouldBlock)
            }
            (Flaw::NeverWaits, Operation::Read { .. }) if length > P => Err(IoError::WouldBlock),
            (_, Operation::Write { offset, from }) => self.write(context.cpu, offset, from),
            (_, Operation::Read { offset, into }) => self.read(context.cpu, offset, into),
            (Flaw::StaleAfterDiscard, Operation::Discard { .. }) => Ok(()),
            (Flaw::DiscardsTooMuch, Operation::Discard { offset, length }) if length > 0 => {
                let end = (offset + length).next_multiple_of(P);
                let offset = offset / P * P;
                self.plain.perform(context, Operation::Discard { offset, length: end - offset })
            }
            (Flaw::AlwaysPunches, Operation::WriteZeroes { offset, length, .. }) => {
                let mode = ZeroMode::MayPunch;
                self.plain.perform(context, Operation::WriteZeroes { offset, length, mode })
            }
            (Flaw::NeverPunches, Operation::WriteZeroes { offset, length, .. }) => {
                let mode = ZeroMode::KeepAllocated;
                self.plain.perform(context, Operation::WriteZeroes { offset, length, mode })
            }
            (_, operation) => self.plain.perform(context, operation),
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let length = match self.flaw {
            Flaw::ShortExtents => length - length % 512,
            _ => length,
        };
        self.plain.extents(cpu, offset, length, &mut |extent| {
            let kind = match (self.flaw, extent.kind) {
                (Flaw::CallsDataZero, ExtentKind::Data) => ExtentKind::Zero,
                (_, kind) => kind,
            };
            visit(Extent { kind, ..extent })
        })
    }
}
