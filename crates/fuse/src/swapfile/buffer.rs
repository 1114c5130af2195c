//! The memory that one thread reads requests into and answers reads from.

use std::hint::black_box;
use std::ops::Range;

use super::wire::BEFORE_DATA;

/// Room for the largest request. All of it is in memory before it is used, and nothing moves: the
/// data of a write begins on a page, and so does that of the answer to a read.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    /// Where the data begins.
    data: usize,
    /// Bytes of data.
    largest: usize,
}

impl Buffer {
    /// Room for `largest` bytes of data, on a system whose pages have `page` bytes.
    pub(crate) fn new(largest: usize, page: usize) -> Buffer {
        let mut memory = vec![0; 2 * page.max(BEFORE_DATA) + largest];
        // Zeroes may be allocated without memory behind them; these bytes may not.
        memory.fill(0xa5);
        black_box(&mut memory);
        let gap = memory.as_ptr().wrapping_add(BEFORE_DATA).align_offset(page);
        Buffer { memory, data: BEFORE_DATA + gap, largest }
    }

    /// Where a request is to be put.
    pub(crate) fn request(&mut self) -> &mut [u8] {
        &mut self.memory[self.data - BEFORE_DATA..self.data + self.largest]
    }

    /// A part of the request that was put there.
    pub(crate) fn part(&self, range: &Range<usize>) -> Option<&[u8]> {
        self.memory[self.data - BEFORE_DATA..self.data + self.largest].get(range.clone())
    }

    /// `length` bytes for the answer to a read, where the data of a write would be; nothing if
    /// there is less room.
    pub(crate) fn data(&mut self, length: usize) -> Option<&mut [u8]> {
        self.memory[self.data..self.data + self.largest].get_mut(..length)
    }
}
