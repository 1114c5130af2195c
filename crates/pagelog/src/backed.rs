//! Where a page is on a backing device, and what it is there.

use segments::stored;

/// The place and form of a written-back page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backed {
    /// The word of a place of the log. On a backing device with a page in each block, the number of
    /// the block.
    pub block: u32,
    /// The bytes of the compressed page; 4096 for an uncompressed page.
    pub length: u16,
    /// The codec of a compressed page, by number.
    pub codec: u8,
    /// The page did not shrink when it was stored.
    pub huge: bool,
}

impl Backed {
    /// The bytes that it takes in a log, with its header.
    #[must_use]
    pub fn log_bytes(&self) -> u32 {
        stored(self.length)
    }
}
