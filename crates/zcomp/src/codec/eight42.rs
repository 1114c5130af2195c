//! 842: the format of IBM's memory compression engines, written here in safe Rust from the format's
//! description (the comment in Linux's `lib/842/842.h`).
//!
//! A page is 512 blocks of 8 bytes. Each block is written as a code of 5 bits and its operands,
//! most significant bit first:
//!
//! | code | block | bits after it |
//! |---|---|---|
//! | 0 to 24 | two halves, each in one of five ways: `5 * first + second` | see below |
//! | 25 | a block from before | 8 of index |
//! | 27 | the last block again, 1 to 64 times | 6, that number less one |
//! | 28 | zeros | none |
//! | 30 | the end | 32 of checksum |
//!
//! | way | four bytes | bits |
//! |---|---|---|
//! | 0 | as they are | 32 |
//! | 1 | two bytes, then two from before | 16, 8 of index |
//! | 2 | two from before, then two bytes | 8 of index, 16 |
//! | 3 | two from before, twice | 8 of index, twice |
//! | 4 | four from before | 9 of index |
//!
//! The description lists the 25 pairs of ways one by one; here they follow a rule. (The description
//! has names for whole blocks of the ways 0 and 0 and of 2 and 1; the bits are the same.)
//!
//! An index counts pieces of its size in a ring of the latest bytes, up to but not including this
//! block. The index is the place of a piece divided by its size, modulo 256 or 512. So pairs reach
//! 512 bytes back, fours and eights 2048.
//!
//! The checksum is the CRC-32 of the page (polynomial `04c11db7`, most significant bit first, from
//! 0, not inverted). Zero bits fill the output up to a multiple of 8 bytes. Code 29, for inputs
//! that are not whole blocks, cannot occur in a page and is refused.

mod crc;
mod decode;
mod encode;
mod format;

use alloc::{boxed::Box, vec::Vec};

use units::Page;

use super::judge::{out_of_memory, takes_nothing};
use crate::{CodecError, Compressor, Context, Corrupt, Params};
use encode::{BOUND, Tables};

/// The kernel's name for this codec.
pub const NAME: &str = "842";

/// The 842 codec.
#[derive(Clone, Debug)]
pub struct Eight42(());

impl Eight42 {
    /// Makes the codec with `params`, which must be empty.
    ///
    /// # Errors
    /// Any parameter.
    pub fn new(params: &Params) -> Result<Eight42, CodecError> {
        takes_nothing(NAME, params).map(Eight42)
    }
}

impl Compressor for Eight42 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        // A vector, because only a vector can fail to allocate without an abort.
        let mut state = Vec::new();
        state.try_reserve_exact(1).map_err(|_| out_of_memory(NAME))?;
        state.push(State842 { tables: Tables::new(), scratch: [0; BOUND] });
        Ok(Box::new(Eight42Context { state: state.into_boxed_slice() }))
    }

    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        Some(decode::decompress(bytes, page))
    }
}

struct State842 {
    tables: Tables,
    /// A buffer for callers with less than [`BOUND`] bytes of room.
    scratch: [u8; BOUND],
}

struct Eight42Context {
    /// Exactly one element.
    state: Box<[State842]>,
}

impl Context for Eight42Context {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        let State842 { tables, scratch } = self.state.first_mut()?;
        if let Some(roomy) = into.first_chunk_mut() {
            return encode::compress(page, tables, roomy);
        }
        let length = encode::compress(page, tables, scratch)?;
        into.get_mut(..length)?.copy_from_slice(scratch.get(..length)?);
        Some(length)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        decode::decompress(bytes, page)
    }
}
