//! lz4 by liblz4: the fastest codec, above all in decompression, which needs no state.
//!
//! The output is an LZ4 block (`doc/lz4_Block_format.md` of liblz4), without a frame.
//!
//! # The table is cleared for each page
//! liblz4 finds matches through a 16 KiB table of positions, which `LZ4_compress_fast_extState`
//! clears for each input. Both alternatives were slower on dumps of live heaps. A kept table, as in
//! `LZ4_compress_fast_extState_fastReset`, needs a test for stale positions at each probe, which
//! the processor cannot predict: never faster, up to a tenth slower. (From 4096 bytes on the
//! library clears anyway.) The stream calls hash five bytes into half as many places: a sixth
//! slower. Only pages with a dictionary use the stream calls, because no other call looks matches
//! up in a dictionary.

use alloc::{boxed::Box, sync::Arc};

use units::Page;

use super::judge::{level_within, no_window};
use super::liblz4::{self, Dictionary, Fast, MAX_ACCELERATION, Stream};
use super::names::LZ4 as NAME;
use crate::{Block, CodecError, Compressor, Context, Corrupt, Params};

/// The lz4 codec. Its level is liblz4's acceleration: higher is faster and compresses less.
#[derive(Clone)]
pub struct Lz4 {
    acceleration: i32,
    dictionary: Option<Arc<Dictionary<Fast>>>,
}

impl Lz4 {
    /// Makes the codec with `params`; the default acceleration is 1.
    ///
    /// # Errors
    /// An acceleration outside 1 to 65537; a dictionary of less than 8 bytes or more than 65536,
    /// because liblz4 would not use all of it (the kernel refuses those too); window bits.
    pub fn new(params: &Params) -> Result<Lz4, CodecError> {
        let acceleration = level_within(NAME, "acceleration", params, 1, 1..=MAX_ACCELERATION)?;
        no_window(NAME, params)?;
        let prepare = |bytes| Dictionary::new(NAME, bytes, acceleration).map(Arc::new);
        let dictionary = params.dictionary.as_ref().map(prepare).transpose()?;
        Ok(Lz4 { acceleration, dictionary })
    }
}

impl Compressor for Lz4 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        let (stream, acceleration) = (Fast::new(NAME)?, self.acceleration);
        Ok(match &self.dictionary {
            None => Box::new(Plain { stream, acceleration }),
            Some(dictionary) => {
                Box::new(WithDictionary { stream, acceleration, dictionary: dictionary.clone() })
            }
        })
    }

    fn block(&self, _most: usize) -> Result<Option<Box<dyn Block>>, CodecError> {
        let (stream, acceleration) = (Fast::new(NAME)?, self.acceleration);
        Ok(Some(match &self.dictionary {
            None => Box::new(Plain { stream, acceleration }),
            Some(dictionary) => {
                Box::new(WithDictionary { stream, acceleration, dictionary: dictionary.clone() })
            }
        }))
    }

    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        Some(match &self.dictionary {
            None => liblz4::decompress(bytes, page),
            Some(dictionary) => liblz4::decompress_with(bytes, page, dictionary.bytes()),
        })
    }
}

struct Plain {
    stream: Fast,
    acceleration: i32,
}

impl Context for Plain {
    #[inline]
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        self.stream.compress(page, into, self.acceleration)
    }

    #[inline]
    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        liblz4::decompress(bytes, page)
    }
}

impl Block for Plain {
    fn compress(&mut self, bytes: &[u8], into: &mut [u8]) -> Option<usize> {
        self.stream.compress(bytes, into, self.acceleration)
    }

    fn decompress(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt> {
        liblz4::decompress(bytes, into)
    }
}

struct WithDictionary {
    stream: Fast,
    acceleration: i32,
    dictionary: Arc<Dictionary<Fast>>,
}

impl Context for WithDictionary {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        self.stream.compress_with(page, into, self.acceleration, &self.dictionary)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        liblz4::decompress_with(bytes, page, self.dictionary.bytes())
    }
}

impl Block for WithDictionary {
    fn compress(&mut self, bytes: &[u8], into: &mut [u8]) -> Option<usize> {
        self.stream.compress_with(bytes, into, self.acceleration, &self.dictionary)
    }

    fn decompress(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt> {
        liblz4::decompress_with(bytes, into, self.dictionary.bytes())
    }
}
