//! Extents at two levels: a low one finds out which pages go together, a high one makes the extent.

use alloc::{boxed::Box, vec::Vec};

use units::PAGE_SIZE;

use crate::{CodecError, Packer};

/// Pages that a low level makes longer than this do not become shorter than a page at a high one:
/// on dumps of programs that takes up to a tenth more away.
const HOPELESS: usize = PAGE_SIZE + PAGE_SIZE / 8;

/// A packer whose extents are shorter than a page.
pub struct ExtentPacker {
    packer: Box<dyn Packer>,
    low: Option<i32>,
    high: Option<i32>,
    room: Vec<u8>,
}

impl ExtentPacker {
    /// With the codec's level for all, until [`ExtentPacker::set_levels`].
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(packer: Box<dyn Packer>) -> Result<ExtentPacker, CodecError> {
        let mut room = Vec::new();
        if room.try_reserve_exact(HOPELESS).is_err() {
            return Err(CodecError("no memory to pack pages".into()));
        }
        room.resize(HOPELESS, 0);
        Ok(ExtentPacker { packer, low: None, high: None, room })
    }

    /// Sets the level that finds out, and the one that makes extents ([`Packer::set_level`]).
    pub fn set_levels(&mut self, low: Option<i32>, high: Option<i32>) {
        (self.low, self.high) = (low, high);
    }

    /// The bytes of an extent of `pages` at the low level; `None` if they are not fewer than those
    /// of a page. Takes little time, and never allocates after the first call.
    pub fn length(&mut self, pages: &[u8]) -> Option<usize> {
        self.packer.set_level(self.low);
        self.packer.compress(pages, &mut self.room[..PAGE_SIZE - 1])
    }

    /// Makes an extent of `pages`, as [`Packer::compress`] does: at the high level, or at the low
    /// one in the rare case that this is shorter. `into` holds up to a page less one byte.
    pub fn compress(&mut self, pages: &[u8], into: &mut [u8]) -> Option<usize> {
        self.packer.set_level(self.low);
        let low = self.packer.compress(pages, &mut self.room)?;
        let made = if self.low == self.high {
            None
        } else {
            self.packer.set_level(self.high);
            self.packer.compress(pages, into).filter(|high| *high <= low)
        };
        made.or_else(|| {
            into.get_mut(..low)?.copy_from_slice(&self.room[..low]);
            Some(low)
        })
    }
}
