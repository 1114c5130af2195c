//! deflate by libdeflate: raw deflate (RFC 1951), no zlib or gzip wrapping.
//!
//! # Window bits
//! The kernel's zlib has a window of `deflate.winbits`, which bounds its matches and its memory.
//! libdeflate has no such setting and needs none: matches reach back as far as a page is long, and
//! the decompressor has the page. A smaller window would save no memory and compress worse. So the
//! parameter is accepted where zlib accepts it: 8 to 15, and -15 to -8 for raw deflate. It changes
//! nothing. The positive numbers ask for zlib's wrapping, which is left out, like every other byte
//! that both sides know already.
//!
//! # Why unsafe
//! Calls into C. The safe wrapper of the library aborts when memory is out. It also does not report
//! how much of its input was used, so junk after the bytes of a page would be accepted.

use alloc::{boxed::Box, format};
use core::ptr::NonNull;

use libdeflate_sys::{
    libdeflate_alloc_compressor, libdeflate_alloc_decompressor, libdeflate_compressor,
    libdeflate_decompressor, libdeflate_deflate_compress, libdeflate_deflate_decompress_ex,
    libdeflate_free_compressor, libdeflate_free_decompressor, libdeflate_result_LIBDEFLATE_SUCCESS,
};
use units::Page;

use super::judge::{level_within, no_dictionary, out_of_memory};
use super::names::DEFLATE as NAME;
use crate::{Block, CodecError, Compressor, Context, Corrupt, Params};

/// The deflate codec.
#[derive(Clone, Debug)]
pub struct Deflate {
    level: i32,
}

impl Deflate {
    /// Makes the codec with `params`; the default level is 6.
    ///
    /// # Errors
    /// A level outside 0 to 12; window bits outside 8 to 15 and -15 to -8; a dictionary.
    pub fn new(params: &Params) -> Result<Deflate, CodecError> {
        if let Some(bits) =
            params.window_bits.filter(|bits| !(8..=15).contains(&bits.unsigned_abs()))
        {
            return Err(CodecError(format!(
                "{NAME}: window bits {bits} are out of range: 8 to 15 and -15 to -8 are allowed"
            )));
        }
        no_dictionary(NAME, params)?;
        Ok(Deflate { level: level_within(NAME, "level", params, 6, 0..=12)? })
    }
}

impl Deflate {
    fn new_context(&self) -> Result<Box<DeflateContext>, CodecError> {
        // SAFETY: the functions take a checked level or nothing; the results may be null.
        let (compressor, decompressor) =
            unsafe { (libdeflate_alloc_compressor(self.level), libdeflate_alloc_decompressor()) };
        // Both are wrapped before either is checked, so that none leaks if the other failed.
        let compressor = NonNull::new(compressor).map(CompressorState);
        let decompressor = NonNull::new(decompressor).map(DecompressorState);
        match (compressor, decompressor) {
            (Some(compressor), Some(decompressor)) => {
                Ok(Box::new(DeflateContext { compressor, decompressor }))
            }
            _ => Err(out_of_memory(NAME)),
        }
    }
}

impl Compressor for Deflate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        Ok(self.new_context()?)
    }

    fn block(&self, _most: usize) -> Result<Option<Box<dyn Block>>, CodecError> {
        Ok(Some(self.new_context()?))
    }
}

struct CompressorState(NonNull<libdeflate_compressor>);

impl Drop for CompressorState {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `libdeflate_alloc_compressor`, and is freed once.
        unsafe { libdeflate_free_compressor(self.0.as_ptr()) }
    }
}

struct DecompressorState(NonNull<libdeflate_decompressor>);

impl Drop for DecompressorState {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `libdeflate_alloc_decompressor`, and is freed once.
        unsafe { libdeflate_free_decompressor(self.0.as_ptr()) }
    }
}

struct DeflateContext {
    compressor: CompressorState,
    decompressor: DecompressorState,
}

// SAFETY: libdeflate's states are plain memory bound to no thread ("may be used by only one thread
// at a time", libdeflate.h), and this owns them.
unsafe impl Send for DeflateContext {}

impl Context for DeflateContext {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        Block::compress(self, page, into)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        Block::decompress(self, bytes, page)
    }
}

impl Block for DeflateContext {
    fn compress(&mut self, bytes: &[u8], into: &mut [u8]) -> Option<usize> {
        // SAFETY: the lengths are those of the slices, and libdeflate writes no further.
        let length = unsafe {
            libdeflate_deflate_compress(
                self.compressor.0.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
                into.as_mut_ptr().cast(),
                into.len(),
            )
        };
        (length > 0).then_some(length)
    }

    fn decompress(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt> {
        let (mut used, mut written) = (0, 0);
        // SAFETY: the lengths are those of the slices. libdeflate reads and writes no further,
        // whatever the bytes are. Both results are written through pointers to locals.
        let result = unsafe {
            libdeflate_deflate_decompress_ex(
                self.decompressor.0.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
                into.as_mut_ptr().cast(),
                into.len(),
                &raw mut used,
                &raw mut written,
            )
        };
        let whole = result == libdeflate_result_LIBDEFLATE_SUCCESS
            && used == bytes.len()
            && written == into.len();
        if whole { Ok(()) } else { Err(Corrupt) }
    }
}
