//! The seam between the engine and the codecs.

use alloc::{boxed::Box, string::String, sync::Arc};
use core::fmt;

use units::Page;

/// Parameters of a codec. One that a codec does not have is refused, with a text that says so.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Params {
    /// The codec's own level; `None` is its default. For lz4 it is the acceleration.
    pub level: Option<i32>,
    /// zlib's number for the window of deflate; `None` is the codec's default.
    pub window_bits: Option<i32>,
    /// What pages are likely to contain, for codecs that can begin with it. Prepared once, when
    /// the codec is made ready.
    pub dictionary: Option<Arc<[u8]>>,
}

impl Params {
    /// With a level and nothing else.
    #[must_use]
    pub fn at_level(level: impl Into<Option<i32>>) -> Params {
        Params { level: level.into(), ..Params::default() }
    }
}

/// A codec could not be made ready: a parameter out of range, or no memory. The text names what
/// was wrong and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodecError(pub String);

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for CodecError {}

/// Bytes that no page was ever compressed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

/// A codec with its parameters. Shared by all threads.
pub trait Compressor: Send + Sync {
    /// The kernel's name for it: `lzo-rle`, `lz4`, `zstd` and so on.
    fn name(&self) -> &'static str;

    /// New private state, with everything it will ever need allocated: using it touches the heap
    /// no more.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    fn context(&self) -> Result<Box<dyn Context>, CodecError>;

    /// Decompresses without any private state, where the codec needs none (all but zstd and
    /// deflate); `None` where it does.
    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        let _ = (bytes, page);
        None
    }
}

/// The private state of one thread running a codec.
pub trait Context: Send {
    /// Compresses `page` into the beginning of `into`, and tells how many bytes it took; `None`
    /// when it does not fit. Never allocates.
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize>;

    /// Decompresses exactly `bytes` to a page. No input makes it read or write out of bounds.
    ///
    /// # Errors
    /// [`Corrupt`] when they are not a whole page's; `page` is undefined then. Never allocates.
    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt>;
}
