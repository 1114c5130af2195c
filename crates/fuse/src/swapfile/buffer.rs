//! The buffer of one thread: for its requests, and for the data of its answers.

use std::hint::black_box;

use super::wire::BEFORE_DATA;

/// Room for the largest request. All its pages are present before it is used, and it never moves.
/// The data of a write begins at a page, and so does the data of an answer to a read.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    /// The offset of the data.
    data: usize,
    /// The most bytes of data.
    largest: usize,
}

impl Buffer {
    /// Room for `largest` bytes of data, on a system whose pages have `page` bytes.
    pub(crate) fn new(largest: usize, page: usize) -> Buffer {
        let mut memory = vec![0; 2 * page.max(BEFORE_DATA) + largest];
        // Zeroed memory may have no pages yet; a write of other bytes makes them present.
        memory.fill(0xa5);
        black_box(&mut memory);
        let gap = memory.as_ptr().wrapping_add(BEFORE_DATA).align_offset(page);
        Buffer { memory, data: BEFORE_DATA + gap, largest }
    }

    /// The place for the next request.
    pub(crate) fn request(&mut self) -> &mut [u8] {
        &mut self.memory[self.data - BEFORE_DATA..self.data + self.largest]
    }

    /// The data of a write; the place for the data of the answer to a read.
    pub(crate) fn data(&mut self) -> &mut [u8] {
        &mut self.memory[self.data..self.data + self.largest]
    }
}
