//! lz4 by liblz4: the fastest of the three, and the only one that decompresses without state.
//!
//! The output is an LZ4 block (`doc/lz4_Block_format.md` of liblz4), without a frame.
//!
//! # The table is cleared for each page
//! liblz4 finds matches through a 16 KiB table of positions, which `LZ4_compress_fast_extState`
//! clears for each input. Both ways round that lost on dumps of live heaps. A kept table, as in
//! `LZ4_compress_fast_extState_fastReset`, wants a test for stale positions at each probe, which
//! the processor cannot foresee: never faster, up to a tenth slower (and the library clears anyway
//! from 4096 bytes on). The stream calls hash by five bytes into half as many places: a sixth
//! slower.
//!
//! # Why unsafe
//! Calls into C; each passes whole slices with their lengths, and a state that outlives the call.

use alloc::{boxed::Box, vec::Vec};
use core::ffi::{c_char, c_int, c_void};

use units::{PAGE_SIZE, Page};

use super::{level_within, out_of_memory};
use crate::{CodecError, Compressor, Context, Corrupt, Params};

/// The kernel's name for this codec.
pub const NAME: &str = "lz4";

/// Accelerations above this are taken for this by liblz4 (`LZ4_ACCELERATION_MAX`).
const MAX_ACCELERATION: i32 = 65_537;

/// Bytes of `LZ4_stream_t` (`LZ4_STREAM_MINSIZE`), rounded up to cache lines.
const STATE_SIZE: usize = (16_384 + 32_usize).next_multiple_of(64);

// lz4-sys links these but does not declare them.
// SAFETY: the signatures are those of lz4.h.
unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        source: *const c_char,
        dest: *mut c_char,
        source_size: c_int,
        dest_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
}

/// The lz4 codec. Its level is liblz4's acceleration: higher is faster and compresses less.
#[derive(Clone, Debug)]
pub struct Lz4 {
    acceleration: i32,
}

impl Lz4 {
    /// The codec with `params`; without a level the acceleration is 1.
    ///
    /// # Errors
    /// An acceleration outside 1 to 65537.
    pub fn new(params: &Params) -> Result<Lz4, CodecError> {
        let acceleration = level_within(NAME, "acceleration", params, 1, 1..=MAX_ACCELERATION)?;
        Ok(Lz4 { acceleration })
    }
}

impl Compressor for Lz4 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        // SAFETY: takes nothing.
        let needed = unsafe { LZ4_sizeofState() };
        if !usize::try_from(needed).is_ok_and(|needed| needed <= STATE_SIZE) {
            return Err(CodecError(alloc::format!(
                "{NAME}: this liblz4 wants {needed} bytes of state, {STATE_SIZE} are there"
            )));
        }
        // A vector because only that can be asked for without aborting when memory is out.
        let mut state = Vec::new();
        state.try_reserve_exact(1).map_err(|_| out_of_memory(NAME))?;
        state.push(State([0; STATE_SIZE]));
        Ok(Box::new(Lz4Context {
            state: state.into_boxed_slice(),
            acceleration: self.acceleration,
        }))
    }

    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        Some(decompress(bytes, page))
    }
}

/// Room for an `LZ4_stream_t`.
#[repr(C, align(64))]
struct State([u8; STATE_SIZE]);

struct Lz4Context {
    /// One of them.
    state: Box<[State]>,
    acceleration: c_int,
}

impl Context for Lz4Context {
    #[inline]
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        let capacity = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: the state has liblz4's size and more than its alignment, and its content does not
        // matter; the lengths are the slices'.
        let length = unsafe {
            LZ4_compress_fast_extState(
                self.state.as_mut_ptr().cast(),
                page.as_ptr().cast(),
                into.as_mut_ptr().cast(),
                PAGE_SIZE as c_int,
                capacity,
                self.acceleration,
            )
        };
        usize::try_from(length).ok().filter(|&length| length > 0)
    }

    #[inline]
    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        decompress(bytes, page)
    }
}

#[inline]
fn decompress(bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
    let length = c_int::try_from(bytes.len()).map_err(|_| Corrupt)?;
    // SAFETY: `LZ4_decompress_safe` reads at most `length` bytes and writes at most a page,
    // whatever the bytes are; both pointers are good for that.
    let written = unsafe {
        lz4_sys::LZ4_decompress_safe(
            bytes.as_ptr().cast(),
            page.as_mut_ptr().cast(),
            length,
            PAGE_SIZE as c_int,
        )
    };
    if written == PAGE_SIZE as c_int { Ok(()) } else { Err(Corrupt) }
}
