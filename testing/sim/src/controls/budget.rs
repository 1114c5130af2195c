//! A device that can hold fewer pages than its size.

use std::sync::Mutex;

use block::{
    Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit, ZeroMode,
};
use units::{Cpu, PAGE_SIZE};

use crate::events::Span;

/// The fate of a page that a full device cannot replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// The device keeps the old page, as it must.
    KeepsOld,
    /// The device has already dropped the old page.
    LosesOld,
    /// The device has written half of the new page.
    WritesHalf,
    /// The device refuses every later change, even when it has space again.
    StaysFull,
    /// The device says that it has written the new page.
    SaysDone,
}

/// A plain device with a budget of pages.
pub struct Budget {
    plain: Plain,
    when_full: WhenFull,
    held: Mutex<Held>,
}

struct Held {
    pages: Vec<bool>,
    budget: usize,
    was_full: bool,
}

impl Budget {
    /// A device of `bytes` bytes that can hold a quarter of them.
    #[must_use]
    pub fn new(bytes: u64, when_full: WhenFull) -> Budget {
        let pages = bytes as usize / PAGE_SIZE;
        let held = Held { pages: vec![false; pages], budget: pages / 4, was_full: false };
        Budget { plain: Plain::new(bytes as usize), when_full, held: Mutex::new(held) }
    }

    /// Writes page by page until the budget is used up.
    fn write(&self, held: &mut Held, cpu: Cpu, offset: u64, from: &[u8]) -> Result<(), IoError> {
        let span = Span::new(offset, from.len() as u64);
        let bytes = span.indices();
        for page in span.pages() {
            let (start, end) = (page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
            let part = start.max(bytes.start)..end.min(bytes.end);
            let piece = &from[part.start - bytes.start..part.end - bytes.start];
            let put = |piece| {
                let offset = part.start as u64;
                self.plain.submit(cpu, Operation::Write { offset, from: piece })
            };
            let used = held.pages.iter().filter(|held| **held).count();
            // A replacement takes space for both pages, as in a store that never writes in place.
            let full =
                used >= held.budget || self.when_full == WhenFull::StaysFull && held.was_full;
            if full {
                held.was_full = true;
                let (offset, length) = (start as u64, PAGE_SIZE as u64);
                match self.when_full {
                    WhenFull::LosesOld => {
                        self.plain.submit(cpu, Operation::Discard { offset, length })?;
                    }
                    WhenFull::WritesHalf => put(&piece[..piece.len() / 2])?,
                    WhenFull::SaysDone => continue,
                    WhenFull::KeepsOld | WhenFull::StaysFull => {}
                }
                return Err(IoError::NoSpace);
            }
            put(piece)?;
            held.pages[page] = true;
        }
        Ok(())
    }
}

impl BlockDevice for Budget {
    fn geometry(&self) -> Geometry {
        self.plain.geometry()
    }

    fn abilities(&self) -> Abilities {
        self.plain.abilities()
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let mut held = self.held.lock().expect("nobody panics under this lock");
        let (offset, length) = operation.range();
        let span = Span::new(offset, length);
        match operation {
            Operation::Write { offset, from } => self.write(&mut held, context.cpu, offset, from),
            Operation::Discard { .. } | Operation::WriteZeroes { mode: ZeroMode::MayPunch, .. } => {
                held.pages[span.whole_pages()].fill(false);
                self.plain.perform(context, operation)
            }
            Operation::WriteZeroes { .. } => {
                held.pages[span.pages()].fill(true);
                self.plain.perform(context, operation)
            }
            _ => self.plain.perform(context, operation),
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.plain.extents(cpu, offset, length, visit)
    }
}
