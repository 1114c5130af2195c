//! lzo and lzo-rle: LZO1X, written here in safe Rust from the description of its stream in Linux's
//! `Documentation/staging/lzo.rst`.
//!
//! A stream is a row of instructions. Each copies some bytes from further back in the page (or, in
//! version 1, writes zeros). Two bits of each instruction give the number of literal bytes that
//! follow it, up to three; more literals take an instruction of their own. `encode` and `decode`
//! describe the rest.
//!
//! * `lzo` writes version 0, which every LZO1X decoder reads, among them liblzo2 and the kernel.
//! * `lzo-rle` writes version 1: two bytes at the start, 17 and 1, then the same instructions and
//!   one more, for runs of zeros. The header is always written, as the kernel's codec of this name
//!   does.
//!
//! Both codecs read both versions. Neither takes a level or a dictionary, as in the kernel.

mod decode;
mod encode;

use alloc::{boxed::Box, vec::Vec};

use units::Page;

use super::judge::{out_of_memory, takes_nothing};
use crate::{CodecError, Compressor, Context, Corrupt, Params};
use encode::{BOUND, Table};

/// The kernel's name for version 0.
pub const NAME: &str = "lzo";
/// The kernel's name for version 1, with runs of zeros.
pub const NAME_RLE: &str = "lzo-rle";

/// The lzo codec.
#[derive(Clone, Debug)]
pub struct Lzo(());

/// The lzo-rle codec.
#[derive(Clone, Debug)]
pub struct LzoRle(());

impl Lzo {
    /// Makes the codec with `params`, which must be empty.
    ///
    /// # Errors
    /// Any parameter.
    pub fn new(params: &Params) -> Result<Lzo, CodecError> {
        takes_nothing(NAME, params).map(Lzo)
    }
}

impl LzoRle {
    /// Makes the codec with `params`, which must be empty.
    ///
    /// # Errors
    /// Any parameter.
    pub fn new(params: &Params) -> Result<LzoRle, CodecError> {
        takes_nothing(NAME_RLE, params).map(LzoRle)
    }
}

impl Compressor for Lzo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        Ok(Box::new(LzoContext::<false>::new(NAME)?))
    }

    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        Some(decode::decompress(bytes, page))
    }
}

impl Compressor for LzoRle {
    fn name(&self) -> &'static str {
        NAME_RLE
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        Ok(Box::new(LzoContext::<true>::new(NAME_RLE)?))
    }

    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        Some(decode::decompress(bytes, page))
    }
}

struct State {
    table: Table,
    /// A buffer for callers with less than [`BOUND`] bytes of room.
    scratch: [u8; BOUND],
}

struct LzoContext<const RLE: bool> {
    /// Exactly one element.
    state: Box<[State]>,
}

impl<const RLE: bool> LzoContext<RLE> {
    fn new(name: &str) -> Result<LzoContext<RLE>, CodecError> {
        // A vector, because only a vector can fail to allocate without an abort.
        let mut state = Vec::new();
        state.try_reserve_exact(1).map_err(|_| out_of_memory(name))?;
        state.push(State { table: Table::new(), scratch: [0; BOUND] });
        Ok(LzoContext { state: state.into_boxed_slice() })
    }
}

impl<const RLE: bool> Context for LzoContext<RLE> {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        let State { table, scratch } = self.state.first_mut()?;
        if let Some(roomy) = into.first_chunk_mut() {
            return encode::compress::<RLE>(page, table, roomy);
        }
        let length = encode::compress::<RLE>(page, table, scratch)?;
        into.get_mut(..length)?.copy_from_slice(scratch.get(..length)?);
        Some(length)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        decode::decompress(bytes, page)
    }
}
