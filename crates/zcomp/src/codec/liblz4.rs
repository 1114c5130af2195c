//! The part of liblz4 that lz4 and lz4hc use, behind functions that no argument can misuse.
//!
//! # Dictionaries
//! A dictionary is loaded once into a stream of its own ([`Dictionary::new`]). For each page the
//! working stream is reset, which only moves its offsets on. Then the dictionary's stream is
//! attached, which stores a pointer: matches are looked up in the tables of both streams. liblz4
//! only reads an attached stream, so all threads attach the same one.
//!
//! # Why unsafe
//! Calls into C. Each call passes whole slices with their lengths, and a state that outlives the
//! call.

use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::ffi::{c_char, c_int, c_void};

use super::judge::out_of_memory;
use crate::{CodecError, Corrupt};

/// liblz4 uses this value for all accelerations above it (`LZ4_ACCELERATION_MAX`).
pub(super) const MAX_ACCELERATION: i32 = 65_537;

/// Bytes of `LZ4_stream_t` (`LZ4_STREAM_MINSIZE`), rounded up to cache lines.
const FAST_SIZE: usize = (16_384 + 32_usize).next_multiple_of(64);
/// Bytes of `LZ4_streamHC_t` (`LZ4_STREAMHC_MINSIZE`), rounded up to cache lines.
const HIGH_SIZE: usize = 262_200_usize.next_multiple_of(64);

/// The distance that liblz4 can look back.
const LONGEST_DICTIONARY: usize = 1 << 16;
/// `LZ4_loadDict` ignores a dictionary shorter than this (`HASH_UNIT`).
const SHORTEST_DICTIONARY: usize = 8;

// lz4-sys links these functions but does not declare them.
// SAFETY: the signatures are those of lz4.h and lz4hc.h. Both kinds of stream are passed as
// untyped pointers, which is how C passes them.
unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_sizeofStateHC() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        source: *const c_char,
        dest: *mut c_char,
        source_size: c_int,
        dest_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_initStream(buffer: *mut c_void, size: usize) -> *mut c_void;
    fn LZ4_resetStream_fast(stream: *mut c_void);
    fn LZ4_loadDictSlow(stream: *mut c_void, dictionary: *const c_char, size: c_int) -> c_int;
    fn LZ4_attach_dictionary(working: *mut c_void, dictionary: *const c_void);
    fn LZ4_compress_fast_continue(
        stream: *mut c_void,
        source: *const c_char,
        dest: *mut c_char,
        source_size: c_int,
        dest_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_initStreamHC(buffer: *mut c_void, size: usize) -> *mut c_void;
    fn LZ4_resetStreamHC_fast(stream: *mut c_void, level: c_int);
    fn LZ4_loadDictHC(stream: *mut c_void, dictionary: *const c_char, size: c_int) -> c_int;
    fn LZ4_attach_HC_dictionary(working: *mut c_void, dictionary: *const c_void);
    fn LZ4_compress_HC_continue(
        stream: *mut c_void,
        source: *const c_char,
        dest: *mut c_char,
        source_size: c_int,
        dest_capacity: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_usingDict(
        source: *const c_char,
        dest: *mut c_char,
        compressed_size: c_int,
        dest_capacity: c_int,
        dictionary: *const c_char,
        dictionary_size: c_int,
    ) -> c_int;
}

/// Memory for a stream of liblz4.
#[repr(C, align(64))]
struct Room<const SIZE: usize>([u8; SIZE]);

impl<const SIZE: usize> Room<SIZE> {
    /// Makes one room filled with zeros. `needed` is the size that liblz4 requires.
    fn new(name: &str, needed: c_int) -> Result<Box<[Room<SIZE>]>, CodecError> {
        if !usize::try_from(needed).is_ok_and(|needed| needed <= SIZE) {
            return Err(CodecError(format!(
                "{name}: this liblz4 wants {needed} bytes of state, {SIZE} are there"
            )));
        }
        // A vector, because only a vector can fail to allocate without an abort.
        let mut rooms = Vec::new();
        rooms.try_reserve_exact(1).map_err(|_| out_of_memory(name))?;
        rooms.push(Room([0; SIZE]));
        Ok(rooms.into_boxed_slice())
    }
}

/// A stream for lz4.
pub(super) struct Fast(Box<[Room<FAST_SIZE>]>);

/// A stream for lz4hc.
pub(super) struct High(Box<[Room<HIGH_SIZE>]>);

/// One of the two kinds of stream.
pub(super) trait Stream: Sized {
    /// Makes an empty stream for the codec `name`.
    fn new(name: &str) -> Result<Self, CodecError>;

    /// Loads a dictionary into an empty stream, and returns the number of loaded bytes. The bytes
    /// must not move while the stream is used, see [`Dictionary`].
    fn load(&mut self, dictionary: &[u8], level: i32) -> usize;
}

/// A dictionary prepared for one kind of stream.
pub(super) struct Dictionary<S> {
    /// Points into `bytes`, and never changes again.
    stream: S,
    /// The bytes are shared and on the heap: they do not move.
    bytes: Arc<[u8]>,
}

impl<S: Stream> Dictionary<S> {
    /// Prepares `bytes` for the codec `name` at `level`.
    pub(super) fn new(
        name: &str,
        bytes: &Arc<[u8]>,
        level: i32,
    ) -> Result<Dictionary<S>, CodecError> {
        let length = bytes.len();
        let mut stream = S::new(name)?;
        let fits = (SHORTEST_DICTIONARY..=LONGEST_DICTIONARY).contains(&length);
        if !fits || stream.load(bytes, level) != length {
            return Err(CodecError(format!(
                "{name}: a dictionary of {length} bytes cannot be used whole: \
                 {SHORTEST_DICTIONARY} to {LONGEST_DICTIONARY} are allowed"
            )));
        }
        Ok(Dictionary { stream, bytes: bytes.clone() })
    }

    /// The bytes of the dictionary.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Stream for Fast {
    fn new(name: &str) -> Result<Fast, CodecError> {
        // SAFETY: the function takes no arguments.
        let mut room = Room::new(name, unsafe { LZ4_sizeofState() })?;
        // SAFETY: the room has the given length, and more than the needed alignment.
        let stream = unsafe { LZ4_initStream(room.as_mut_ptr().cast(), FAST_SIZE) };
        if stream.is_null() { Err(out_of_memory(name)) } else { Ok(Fast(room)) }
    }

    fn load(&mut self, dictionary: &[u8], _level: i32) -> usize {
        let Ok(length) = c_int::try_from(dictionary.len()) else { return 0 };
        // SAFETY: the stream was made by `new`. The length is that of the slice, and the caller
        // keeps the bytes in place.
        let loaded =
            unsafe { LZ4_loadDictSlow(self.as_mut_ptr(), dictionary.as_ptr().cast(), length) };
        usize::try_from(loaded).unwrap_or(0)
    }
}

impl Fast {
    fn as_mut_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Compresses `bytes` to the beginning of `into`.
    #[inline]
    pub(super) fn compress(
        &mut self,
        bytes: &[u8],
        into: &mut [u8],
        acceleration: c_int,
    ) -> Option<usize> {
        let length = c_int::try_from(bytes.len()).ok()?;
        let capacity = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: the state has liblz4's size and more than its alignment, and its content does not
        // matter. The lengths are those of the slices.
        let written = unsafe {
            LZ4_compress_fast_extState(
                self.as_mut_ptr(),
                bytes.as_ptr().cast(),
                into.as_mut_ptr().cast(),
                length,
                capacity,
                acceleration,
            )
        };
        positive(written)
    }

    /// Compresses `bytes` as `compress` does, when they probably contain parts of `dictionary`.
    pub(super) fn compress_with(
        &mut self,
        bytes: &[u8],
        into: &mut [u8],
        acceleration: c_int,
        dictionary: &Dictionary<Fast>,
    ) -> Option<usize> {
        let length = c_int::try_from(bytes.len()).ok()?;
        let capacity = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        let stream = self.as_mut_ptr();
        // SAFETY: the stream was made by `new`. The dictionary's stream was loaded with bytes that
        // it keeps, and no thread writes to either any more. The attachment ends with this call,
        // because the next call begins with a reset. The lengths are those of the slices.
        let written = unsafe {
            LZ4_resetStream_fast(stream);
            LZ4_attach_dictionary(stream, dictionary.stream.0.as_ptr().cast());
            LZ4_compress_fast_continue(
                stream,
                bytes.as_ptr().cast(),
                into.as_mut_ptr().cast(),
                length,
                capacity,
                acceleration,
            )
        };
        positive(written)
    }
}

impl Stream for High {
    fn new(name: &str) -> Result<High, CodecError> {
        // SAFETY: the function takes no arguments.
        let mut room = Room::new(name, unsafe { LZ4_sizeofStateHC() })?;
        // SAFETY: the room has the given length, and more than the needed alignment.
        let stream = unsafe { LZ4_initStreamHC(room.as_mut_ptr().cast(), HIGH_SIZE) };
        if stream.is_null() { Err(out_of_memory(name)) } else { Ok(High(room)) }
    }

    fn load(&mut self, dictionary: &[u8], level: i32) -> usize {
        let Ok(length) = c_int::try_from(dictionary.len()) else { return 0 };
        let stream = self.as_mut_ptr();
        // SAFETY: the stream was made by `new`. The length is that of the slice, and the caller
        // keeps the bytes in place. The level selects the tables that are filled.
        let loaded = unsafe {
            LZ4_resetStreamHC_fast(stream, level);
            LZ4_loadDictHC(stream, dictionary.as_ptr().cast(), length)
        };
        usize::try_from(loaded).unwrap_or(0)
    }
}

impl High {
    fn as_mut_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Compresses `bytes` to the beginning of `into`, with or without a dictionary.
    ///
    /// The tables have 256 KiB and are not cleared for each page. Their entries of earlier pages
    /// lie further back than matches reach.
    pub(super) fn compress(
        &mut self,
        bytes: &[u8],
        into: &mut [u8],
        level: c_int,
        dictionary: Option<&Dictionary<High>>,
    ) -> Option<usize> {
        let length = c_int::try_from(bytes.len()).ok()?;
        let capacity = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        let stream = self.as_mut_ptr();
        // SAFETY: as in `Fast::compress_with`.
        let written = unsafe {
            LZ4_resetStreamHC_fast(stream, level);
            if let Some(dictionary) = dictionary {
                LZ4_attach_HC_dictionary(stream, dictionary.stream.0.as_ptr().cast());
            }
            LZ4_compress_HC_continue(
                stream,
                bytes.as_ptr().cast(),
                into.as_mut_ptr().cast(),
                length,
                capacity,
            )
        };
        positive(written)
    }
}

#[inline]
fn positive(length: c_int) -> Option<usize> {
    usize::try_from(length).ok().filter(|&length| length > 0)
}

/// Decompresses exactly `bytes` to all of `into`.
#[inline]
pub(super) fn decompress(bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt> {
    let length = c_int::try_from(bytes.len()).map_err(|_| Corrupt)?;
    let room = c_int::try_from(into.len()).map_err(|_| Corrupt)?;
    // SAFETY: `LZ4_decompress_safe` reads at most `length` bytes and writes at most `room`,
    // whatever the bytes are. Both pointers are valid for that.
    let written = unsafe {
        lz4_sys::LZ4_decompress_safe(bytes.as_ptr().cast(), into.as_mut_ptr().cast(), length, room)
    };
    whole(written, into)
}

/// Decompresses what was compressed with `dictionary`, which has at most
/// [`LONGEST_DICTIONARY`] bytes.
pub(super) fn decompress_with(
    bytes: &[u8],
    into: &mut [u8],
    dictionary: &[u8],
) -> Result<(), Corrupt> {
    let length = c_int::try_from(bytes.len()).map_err(|_| Corrupt)?;
    let room = c_int::try_from(into.len()).map_err(|_| Corrupt)?;
    let dictionary_length = c_int::try_from(dictionary.len()).map_err(|_| Corrupt)?;
    // SAFETY: as above; only the bytes of the dictionary are read.
    let written = unsafe {
        LZ4_decompress_safe_usingDict(
            bytes.as_ptr().cast(),
            into.as_mut_ptr().cast(),
            length,
            room,
            dictionary.as_ptr().cast(),
            dictionary_length,
        )
    };
    whole(written, into)
}

#[inline]
fn whole(written: c_int, into: &[u8]) -> Result<(), Corrupt> {
    if usize::try_from(written) == Ok(into.len()) { Ok(()) } else { Err(Corrupt) }
}
