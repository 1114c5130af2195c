//! Codes the matches that were found in a few pages as a frame of zstd, by libzstd.
//!
//! # Why unsafe
//! Calls into C. Each call passes whole slices with their lengths, and a context that lives as long
//! as its owner. That sequences stay within the slice is checked here: libzstd adds their lengths
//! in 32 bits. It checks the rest.

use alloc::format;
use core::ptr::NonNull;

use zstd_safe::zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_setParameter, ZSTD_Sequence, ZSTD_SequenceFormat_e, ZSTD_cParameter,
    ZSTD_compressSequences, ZSTD_createCCtx, ZSTD_format_e, ZSTD_freeCCtx, ZSTD_isError,
    ZSTD_strategy,
};

use super::judge::out_of_memory;
use super::names::ZSTD as NAME;
use crate::CodecError;

/// `ZSTD_c_format`, `ZSTD_c_blockDelimiters`, `ZSTD_c_validateSequences`, and
/// `ZSTD_c_repcodeResolution`: whether distances that come again are coded as such. They have
/// numbers only.
const FORMAT: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam2;
const DELIMITERS: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam11;
const VALIDATE: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam12;
const RECENT: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam19;

/// The fewest bytes of a match.
pub(super) const SHORTEST: usize = 3;

/// Bytes as they are, and a match that follows them; none at the end.
pub(super) type Sequence = ZSTD_Sequence;

/// A sequence of `literals` bytes and a match of `length` bytes, `distance` bytes back.
pub(super) fn sequence(literals: usize, length: usize, distance: usize) -> Sequence {
    let [literals, length, distance] =
        [literals, length, distance].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
    Sequence { offset: distance, litLength: literals, matchLength: length, rep: 0 }
}

/// What codes sequences.
pub(super) struct Coder(NonNull<ZSTD_CCtx>);

impl Coder {
    /// A coder of at most `1 << window_bits` bytes.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out, or for a number of bits that libzstd does not allow.
    pub(super) fn new(window_bits: i32) -> Result<Coder, CodecError> {
        // SAFETY: it takes nothing.
        let context = unsafe { ZSTD_createCCtx() };
        let coder = Coder(NonNull::new(context).ok_or_else(|| out_of_memory(NAME))?);
        let explicit = ZSTD_SequenceFormat_e::ZSTD_sf_explicitBlockDelimiters as i32;
        let parameters = [
            (FORMAT, ZSTD_format_e::ZSTD_f_zstd1_magicless as i32),
            (ZSTD_cParameter::ZSTD_c_contentSizeFlag, 0),
            (ZSTD_cParameter::ZSTD_c_windowLog, window_bits),
            // The tables of libzstd's own search, which are cleared for each frame.
            (ZSTD_cParameter::ZSTD_c_hashLog, 6),
            (ZSTD_cParameter::ZSTD_c_chainLog, 6),
            (ZSTD_cParameter::ZSTD_c_minMatch, SHORTEST as i32),
            // It says how much is weighed when codes are chosen.
            (ZSTD_cParameter::ZSTD_c_strategy, ZSTD_strategy::ZSTD_lazy2 as i32),
            (DELIMITERS, explicit),
            (VALIDATE, 1),
            (RECENT, 1),
        ];
        for (parameter, value) in parameters {
            // SAFETY: the context is there; the rest are numbers.
            let code = unsafe { ZSTD_CCtx_setParameter(coder.0.as_ptr(), parameter, value) };
            if is_error(code) {
                return Err(CodecError(format!("{NAME}: {}", zstd_safe::get_error_name(code))));
            }
        }
        Ok(coder)
    }

    /// Codes `sequences`, which make up `bytes` and end with one without a match, into the
    /// beginning of `into`, and returns the number of bytes; `None` when they do not fit.
    pub(super) fn code(
        &mut self,
        sequences: &[Sequence],
        bytes: &[u8],
        into: &mut [u8],
    ) -> Option<usize> {
        let is_right = make_up(sequences, bytes.len());
        debug_assert!(is_right, "they make up {} bytes", bytes.len());
        if !is_right {
            return None;
        }
        // SAFETY: the context is there and used by nobody else; the slices come with their
        // lengths, and the sequences stay within `bytes` and have an end.
        let code = unsafe {
            ZSTD_compressSequences(
                self.0.as_ptr(),
                into.as_mut_ptr().cast(),
                into.len(),
                sequences.as_ptr(),
                sequences.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
        (!is_error(code)).then_some(code)
    }
}

/// Whether sequences make up so many bytes, look back at none before the first, and end with one
/// without a match, as libzstd expects.
fn make_up(sequences: &[Sequence], bytes: usize) -> bool {
    let mut place = 0_u64;
    let fits = |it: &Sequence| {
        place += u64::from(it.litLength);
        let looks_back = u64::from(it.offset) <= place && (it.matchLength == 0 || it.offset > 0);
        place += u64::from(it.matchLength);
        looks_back && place <= bytes as u64
    };
    let (ends, fit) =
        (sequences.last().is_some_and(|it| it.matchLength == 0), sequences.iter().all(fits));
    ends && fit && place == bytes as u64
}

impl Drop for Coder {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and this is the end of it.
        unsafe { ZSTD_freeCCtx(self.0.as_ptr()) };
    }
}

// SAFETY: libzstd keeps nothing of a thread in a context.
unsafe impl Send for Coder {}

fn is_error(code: usize) -> bool {
    // SAFETY: it takes a number.
    unsafe { ZSTD_isError(code) != 0 }
}
