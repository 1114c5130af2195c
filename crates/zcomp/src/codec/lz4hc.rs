//! lz4hc by liblz4: the format of lz4 from a slower compressor. Decompression is the same as for
//! lz4, and as fast.
//!
//! # Levels 10 to 12 touch the heap
//! No other codec of this crate uses the heap after a context is made. From level 10 on liblz4
//! searches for the best row of matches in a table of 64 KiB, which it allocates for each page
//! (`LZ4HC_HEAPMODE`, fixed when lz4-sys is built). If the allocation fails, the page counts as one
//! that does not fit, and is stored raw. Decompression allocates nothing at any level.

use alloc::{boxed::Box, sync::Arc};

use units::Page;

use super::judge::{level_within, no_window};
use super::liblz4::{self, Dictionary, High, Stream};
use super::names::LZ4HC as NAME;
use crate::{Block, CodecError, Compressor, Context, Corrupt, Params};

/// `LZ4HC_CLEVEL_DEFAULT`
const DEFAULT_LEVEL: i32 = 9;
/// `LZ4HC_CLEVEL_MAX`
const MAX_LEVEL: i32 = 12;

/// The lz4hc codec.
#[derive(Clone)]
pub struct Lz4hc {
    level: i32,
    dictionary: Option<Arc<Dictionary<High>>>,
}

impl Lz4hc {
    /// Makes the codec with `params`; the default level is 9, as in the kernel.
    ///
    /// # Errors
    /// A level outside 1 to 12; a dictionary of less than 8 bytes or more than 65536; window bits.
    pub fn new(params: &Params) -> Result<Lz4hc, CodecError> {
        let level = level_within(NAME, "level", params, DEFAULT_LEVEL, 1..=MAX_LEVEL)?;
        no_window(NAME, params)?;
        let prepare = |bytes| Dictionary::new(NAME, bytes, level).map(Arc::new);
        let dictionary = params.dictionary.as_ref().map(prepare).transpose()?;
        Ok(Lz4hc { level, dictionary })
    }

    fn decompress(&self, bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt> {
        match &self.dictionary {
            None => liblz4::decompress(bytes, into),
            Some(dictionary) => liblz4::decompress_with(bytes, into, dictionary.bytes()),
        }
    }
}

impl Compressor for Lz4hc {
    fn name(&self) -> &'static str {
        NAME
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        Ok(Box::new(Lz4hcContext { stream: High::new(NAME)?, codec: self.clone() }))
    }

    fn block(&self, _most: usize) -> Result<Option<Box<dyn Block>>, CodecError> {
        Ok(Some(Box::new(Lz4hcContext { stream: High::new(NAME)?, codec: self.clone() })))
    }

    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        Some(self.decompress(bytes, page))
    }
}

struct Lz4hcContext {
    stream: High,
    codec: Lz4hc,
}

impl Context for Lz4hcContext {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        self.stream.compress(page, into, self.codec.level, self.codec.dictionary.as_deref())
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        self.codec.decompress(bytes, page)
    }
}

impl Block for Lz4hcContext {
    fn compress(&mut self, bytes: &[u8], into: &mut [u8]) -> Option<usize> {
        self.stream.compress(bytes, into, self.codec.level, self.codec.dictionary.as_deref())
    }

    fn decompress(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt> {
        self.codec.decompress(bytes, into)
    }
}
