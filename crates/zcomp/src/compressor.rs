//! The interface between the engine and the codecs.

use alloc::{boxed::Box, string::String, sync::Arc};
use core::fmt;

use units::Page;

/// The parameters of a codec. A codec refuses a parameter that it does not have; the message says
/// so.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Params {
    /// The level, in the codec's own scale; `None` is its default. For lz4 it is the acceleration.
    pub level: Option<i32>,
    /// The window of deflate, as zlib's number; `None` is the codec's default.
    pub window_bits: Option<i32>,
    /// Typical contents of pages, for codecs with dictionaries. It is prepared once, when the codec
    /// is opened.
    pub dictionary: Option<Arc<[u8]>>,
}

impl Params {
    /// Parameters with a level only.
    #[must_use]
    pub fn at_level(level: impl Into<Option<i32>>) -> Params {
        Params { level: level.into(), ..Params::default() }
    }
}

/// The error of a codec that could not be opened: a parameter out of range, or no memory. The
/// message names the error and the allowed values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodecError(pub String);

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for CodecError {}

/// The error for bytes that are no compressed page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

/// The most pages of an extent.
pub const EXTENT_PAGES: usize = 4;

/// A codec with its parameters. Shared by all threads.
pub trait Compressor: Send + Sync {
    /// The kernel's name for it: `lzo-rle`, `lz4`, `zstd` and so on.
    fn name(&self) -> &'static str;

    /// Makes a new private state and allocates all its memory: its use never allocates from the
    /// heap.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    fn context(&self) -> Result<Box<dyn Context>, CodecError>;

    /// Makes a new private state that compresses extents; `None` for a codec that has no use for
    /// larger units (all but zstd). It is made for a run of compressions, not for each CPU. Its
    /// level is the codec's.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    fn packer(&self) -> Result<Option<Box<dyn Packer>>, CodecError> {
        Ok(None)
    }

    /// Makes a new private state for blocks of up to `most` bytes, and allocates all its memory;
    /// `None` for a codec that is written for pages alone (lzo, lzo-rle and 842).
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    fn block(&self, most: usize) -> Result<Option<Box<dyn Block>>, CodecError> {
        let _ = most;
        Ok(None)
    }

    /// Decompresses without private state, for codecs that need none (all but zstd and deflate);
    /// `None` for the others.
    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        let _ = (bytes, page);
        None
    }
}

/// The private state of one thread that runs a codec.
pub trait Context: Send {
    /// Compresses `page` into the beginning of `into`, and returns the number of bytes; `None` when
    /// they do not fit. Never allocates.
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize>;

    /// Decompresses exactly `bytes` to a page. No input makes it read or write out of bounds. Never
    /// allocates.
    ///
    /// # Errors
    /// [`Corrupt`] when the bytes do not give a whole page; the contents of `page` are undefined
    /// then.
    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt>;

    /// Decompresses page number `part` of an extent of `pages` pages that a [`Packer`] of the same
    /// codec made. No input makes it read or write out of bounds. Never allocates.
    ///
    /// # Errors
    /// [`Corrupt`] when the bytes do not give that page; the contents of `page` are undefined then.
    fn decompress_part(
        &mut self,
        bytes: &[u8],
        (part, pages): (usize, usize),
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        let _ = (bytes, part, pages, page);
        Err(Corrupt)
    }
}

/// The private state of one thread that compresses blocks: bytes of any length up to the most that
/// it was made for. Its use never allocates from the heap, with the exception that lz4hc has.
pub trait Block: Send {
    /// Compresses `bytes` into the beginning of `into`, and returns the number of bytes; `None`
    /// when they do not fit.
    fn compress(&mut self, bytes: &[u8], into: &mut [u8]) -> Option<usize>;

    /// Decompresses exactly `bytes` to all of `into`. No input makes it read or write out of
    /// bounds.
    ///
    /// # Errors
    /// [`Corrupt`] when the bytes do not give so many; the contents of `into` are undefined then.
    fn decompress(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt>;
}

/// The private state of a thread that compresses extents: a few pages as one unit.
pub trait Packer: Send {
    /// Compresses `pages`, up to [`EXTENT_PAGES`] pages one behind the other, into the beginning of
    /// `into`, and returns the number of bytes; `None` when they do not fit.
    fn compress(&mut self, pages: &[u8], into: &mut [u8]) -> Option<usize>;

    /// How much of the result is due to the first of these pages, to the first two, and so on: the
    /// numbers compare with each other, and are not bytes. `None` if that takes as long as to
    /// compress them. After [`Packer::compress`] of the same pages it takes little time.
    fn shares(&mut self, pages: &[u8]) -> Option<[usize; EXTENT_PAGES]> {
        let _ = pages;
        None
    }
}
