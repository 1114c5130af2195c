//! Recompression: a smaller object takes the place of an object of the same page.

use crate::Objects;

/// What came of a page that was to be compressed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recompressed {
    /// It is none of those to compress again, or there was no room.
    Skipped,
    /// It was used meanwhile.
    InUse,
    /// It would take no less memory, and is as it was.
    NoSmaller,
    /// Its object has `to` bytes now, and had `from`.
    Done {
        /// See the variant.
        from: usize,
        /// See the variant.
        to: usize,
    },
}

impl Objects {
    /// The bytes of the pool that `length` bytes, which may be more than a page, take less than an
    /// object of `now` bytes; `None` if they would be in no smaller size class.
    #[must_use]
    pub fn gain(&self, now: usize, length: usize) -> Option<u64> {
        if length >= now {
            return None;
        }
        let bytes = |length| self.pool().slot_bytes(length) as u64;
        Some(bytes(now) - bytes(length)).filter(|gain| *gain > 0)
    }
}
