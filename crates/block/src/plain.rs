//! An uncompressed device, for comparison with the others.

use alloc::{vec, vec::Vec};
use core::ops::ControlFlow;

use sync::Mutex;
use units::{Cpu, PAGE_SIZE};

use crate::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Operation, Visit,
    ZeroMode,
};

/// An uncompressed RAM disk under one lock: the model in property tests, the device in tests of
/// frontends, and the baseline in measurements of transports. Ranges must lie within the device.
pub struct Plain {
    state: Mutex<State>,
}

struct State {
    bytes: Vec<u8>,
    /// One entry per page: was it written after it was last freed?
    allocated: Vec<bool>,
}

impl Plain {
    /// A device of `bytes` zeroes; no page is allocated.
    #[must_use]
    pub fn new(bytes: usize) -> Plain {
        let allocated = vec![false; bytes.div_ceil(PAGE_SIZE)];
        Plain { state: Mutex::new(State { bytes: vec![0; bytes], allocated }) }
    }
}

impl State {
    fn touch(&mut self, offset: usize, length: usize) {
        if length > 0 {
            self.allocated[offset / PAGE_SIZE..=(offset + length - 1) / PAGE_SIZE].fill(true);
        }
    }

    /// Frees the whole pages of a range.
    fn punch(&mut self, offset: usize, length: usize) {
        let (first, end) = (offset.div_ceil(PAGE_SIZE), (offset + length) / PAGE_SIZE);
        if first < end {
            self.allocated[first..end].fill(false);
            self.bytes[first * PAGE_SIZE..end * PAGE_SIZE].fill(0);
        }
    }

    fn kind_at(&self, offset: usize) -> ExtentKind {
        let page = offset / PAGE_SIZE;
        let end = ((page + 1) * PAGE_SIZE).min(self.bytes.len());
        if !self.allocated[page] {
            ExtentKind::Hole
        } else if self.bytes[page * PAGE_SIZE..end].iter().all(|b| *b == 0) {
            ExtentKind::Zero
        } else {
            ExtentKind::Data
        }
    }
}

impl BlockDevice for Plain {
    fn geometry(&self) -> Geometry {
        let bytes = self.state.lock().bytes.len() as u64;
        Geometry { bytes, minimum_block: 1, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { discard: true, fast_zero: true, ..Abilities::default() }
    }

    fn perform(&self, _context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let mut state = self.state.lock();
        let (offset, length) = operation.range();
        let (offset, length) = (offset as usize, length as usize);
        match operation {
            Operation::Read { into, .. } => {
                into.copy_from_slice(&state.bytes[offset..offset + length])
            }
            Operation::Write { from, .. } => {
                state.bytes[offset..offset + length].copy_from_slice(from);
                state.touch(offset, length);
            }
            Operation::Discard { .. } => state.punch(offset, length),
            Operation::WriteZeroes { mode, .. } => {
                state.bytes[offset..offset + length].fill(0);
                match mode {
                    ZeroMode::KeepAllocated => state.touch(offset, length),
                    ZeroMode::MayPunch => state.punch(offset, length),
                }
            }
            Operation::Flush => {}
        }
        Ok(())
    }

    fn extents(&self, _: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let state = self.state.lock();
        let (mut at, end) = (offset as usize, (offset + length) as usize);
        while at < end {
            let kind = state.kind_at(at);
            let next = ((at / PAGE_SIZE + 1) * PAGE_SIZE).min(end);
            if let ControlFlow::Break(()) = visit(Extent { length: (next - at) as u64, kind }) {
                break;
            }
            at = next;
        }
        Ok(())
    }
}
