//! zstd by libzstd: better ratios at every level, for more time.
//!
//! Each page is a zstd frame (RFC 8878) without the parts that the reader knows: magic number,
//! checksum, dictionary number and content size. Two bytes of frame header are left. The
//! decompressor checks the size.
//!
//! # Extents
//! An extent is a frame of the same form with up to four pages. Our own search finds the matches in
//! it, unless the codec has a level that finds more, or a dictionary. Packers have a compressor of
//! their own, so that what it needs for the larger units is not taken on the path of a page.
//!
//! # Dictionaries
//! libzstd digests a dictionary once for compression and once for decompression. All contexts refer
//! to those two digests. For inputs as small as a page libzstd attaches the digested tables instead
//! of copying them. A dictionary is a file of `zstd --train`, or any bytes. A compressed page does
//! not name its dictionary: the number would be written to every page, and a device knows its own.

use alloc::{boxed::Box, format, sync::Arc, vec::Vec};

use units::{PAGE_SIZE, Page};
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, DParameter, FrameFormat};

use super::judge::{level_within, no_window, out_of_memory};
use super::matches::Finder;
use super::names::ZSTD as NAME;
use super::sequences::Coder;
use crate::{Block, CodecError, Compressor, Context, Corrupt, EXTENT_PAGES, Packer, Params};

/// The room that any page needs, compressed by zstd (`ZSTD_COMPRESSBOUND`, which adds 60 bytes to a
/// page).
const BOUND: usize = PAGE_SIZE + 64;

/// The same for an extent.
const EXTENT_BOUND: usize = EXTENT_PAGES * PAGE_SIZE + 256;

/// The least level at which libzstd finds matches of three bytes: it makes extents up to half a
/// percent shorter than our search does, in five times the time.
const FINDS_SHORT: i32 = 12;

/// The window of an extent.
const WINDOW_BITS: i32 = (EXTENT_PAGES * PAGE_SIZE).ilog2() as i32;

/// libzstd treats a dictionary shorter than this as no dictionary.
const SHORTEST_DICTIONARY: usize = 8;

/// The zstd codec.
#[derive(Clone)]
pub struct Zstd {
    level: i32,
    dictionary: Option<Arc<ZstdDictionary>>,
}

/// A digested dictionary.
struct ZstdDictionary {
    compressing: CDict<'static>,
    decompressing: DDict<'static>,
}

impl ZstdDictionary {
    fn new(bytes: &[u8], level: i32) -> Result<ZstdDictionary, CodecError> {
        let length = bytes.len();
        if length < SHORTEST_DICTIONARY {
            return Err(CodecError(format!(
                "{NAME}: a dictionary of {length} bytes cannot be used: \
                 {SHORTEST_DICTIONARY} at least are allowed"
            )));
        }
        let unusable = || {
            CodecError(format!(
                "{NAME}: this dictionary of {length} bytes cannot be used: it begins like one of \
                 zstd's own but is damaged, or there is no memory for it"
            ))
        };
        Ok(ZstdDictionary {
            compressing: CDict::try_create(bytes, level).ok_or_else(unusable)?,
            decompressing: DDict::try_create(bytes).ok_or_else(unusable)?,
        })
    }
}

impl Zstd {
    /// Makes the codec with `params`; the default level is zstd's 3, as in the kernel. Negative
    /// levels are faster; 0 means the default in zstd.
    ///
    /// # Errors
    /// A level that this libzstd does not have; a dictionary that it cannot use; window bits.
    pub fn new(params: &Params) -> Result<Zstd, CodecError> {
        let allowed = zstd_safe::min_c_level()..=zstd_safe::max_c_level();
        let level = level_within(NAME, "level", params, zstd_safe::CLEVEL_DEFAULT, allowed)?;
        no_window(NAME, params)?;
        let prepare = |bytes: &Arc<[u8]>| ZstdDictionary::new(bytes, level).map(Arc::new);
        let dictionary = params.dictionary.as_ref().map(prepare).transpose()?;
        Ok(Zstd { level, dictionary })
    }
}

impl Compressor for Zstd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        let mut context = ZstdContext {
            compressor: CCtx::try_create().ok_or_else(|| out_of_memory(NAME))?,
            decompressor: DCtx::try_create().ok_or_else(|| out_of_memory(NAME))?,
            scratch: [0; BOUND],
            extent: room(EXTENT_PAGES * PAGE_SIZE)?,
            made_of: (0, 0),
            source: room(PAGE_SIZE)?,
            dictionary: self.dictionary.clone(),
        };
        context
            .set_up(self.level)
            .map_err(|code| CodecError(format!("{NAME}: {}", zstd_safe::get_error_name(code))))?;
        Ok(Box::new(context))
    }

    fn packer(&self) -> Result<Option<Box<dyn Packer>>, CodecError> {
        let scratch = room(EXTENT_BOUND)?;
        let mut packer: Box<dyn Packer> = if self.dictionary.is_none() && self.level < FINDS_SHORT {
            let (finder, coder) = (Finder::new()?, Coder::new(WINDOW_BITS)?);
            Box::new(FindingPacker { finder, coder, scratch })
        } else {
            let mut compressor = CCtx::try_create().ok_or_else(|| out_of_memory(NAME))?;
            set_up(&mut compressor, self.level, self.dictionary.as_deref()).map_err(|code| {
                CodecError(format!("{NAME}: {}", zstd_safe::get_error_name(code)))
            })?;
            let _dictionary = self.dictionary.clone();
            Box::new(LevelPacker { compressor, scratch, _dictionary })
        };
        // libzstd takes memory for the largest extent now.
        packer
            .compress(&room(EXTENT_PAGES * PAGE_SIZE)?, &mut room(EXTENT_BOUND)?)
            .ok_or_else(|| out_of_memory(NAME))?;
        Ok(Some(packer))
    }

    fn block(&self, most: usize) -> Result<Option<Box<dyn Block>>, CodecError> {
        let mut block = ZstdBlock {
            compressor: CCtx::try_create().ok_or_else(|| out_of_memory(NAME))?,
            decompressor: DCtx::try_create().ok_or_else(|| out_of_memory(NAME))?,
            dictionary: self.dictionary.clone(),
        };
        block
            .set_up(self.level, &mut room(most)?, &mut room(zstd_safe::compress_bound(most))?)
            .map_err(|code| CodecError(format!("{NAME}: {}", zstd_safe::get_error_name(code))))?;
        Ok(Some(Box::new(block)))
    }
}

/// A buffer of `bytes` zeroes.
fn room(bytes: usize) -> Result<Vec<u8>, CodecError> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| out_of_memory(NAME))?;
    room.resize(bytes, 0);
    Ok(room)
}

/// Sets the parameters of a compressor. The dictionary must live as long as it.
fn set_up(
    compressor: &mut CCtx<'static>,
    level: i32,
    dictionary: Option<&ZstdDictionary>,
) -> Result<(), usize> {
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
        CParameter::ContentSizeFlag(false),
    ] {
        compressor.set_parameter(parameter)?;
    }
    if let Some(dictionary) = dictionary {
        compressor.ref_cdict(&dictionary.compressing)?;
    }
    Ok(())
}

struct ZstdContext {
    compressor: CCtx<'static>,
    decompressor: DCtx<'static>,
    /// A buffer for callers with little room, see `compress`.
    scratch: [u8; BOUND],
    /// The pages of the last extent.
    extent: Vec<u8>,
    /// What `extent` was made of: the number of its pages, and its bytes. Who reads one page of an
    /// extent mostly reads the others next.
    made_of: (usize, usize),
    source: Vec<u8>,
    /// The dictionary that both contexts refer to. It must live as long as they do.
    dictionary: Option<Arc<ZstdDictionary>>,
}

impl ZstdContext {
    /// Sets the parameters, and compresses and decompresses a page, so that libzstd allocates all
    /// its memory now.
    fn set_up(&mut self, level: i32) -> Result<(), usize> {
        set_up(&mut self.compressor, level, self.dictionary.as_deref())?;
        self.decompressor.set_parameter(DParameter::Format(FrameFormat::Magicless))?;
        if let Some(dictionary) = &self.dictionary {
            self.decompressor.ref_ddict(&dictionary.decompressing)?;
        }
        let mut page = [0; PAGE_SIZE];
        let length = self.compressor.compress2(&mut self.scratch[..], &page)?;
        self.decompressor.decompress(&mut page[..], &self.scratch[..length])?;
        Ok(())
    }
}

impl Context for ZstdContext {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        if into.len() >= BOUND {
            return self.compressor.compress2(into, page).ok();
        }
        // libzstd wants spare room. Without the scratch buffer, the last bytes of a tight buffer
        // would stay unused, and the output would depend on the buffer's size.
        let length = self.compressor.compress2(&mut self.scratch[..], page).ok()?;
        into.get_mut(..length)?.copy_from_slice(&self.scratch[..length]);
        Some(length)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        match self.decompressor.decompress(&mut page[..], bytes) {
            Ok(PAGE_SIZE) => Ok(()),
            _ => Err(Corrupt),
        }
    }

    fn decompress_part(
        &mut self,
        bytes: &[u8],
        (part, pages): (usize, usize),
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        if part >= pages || pages > EXTENT_PAGES {
            return Err(Corrupt);
        }
        let extent = &mut self.extent[..pages * PAGE_SIZE];
        let source = self.source.get_mut(..bytes.len());
        if self.made_of != (pages, bytes.len()) || source.as_deref() != Some(bytes) {
            self.made_of = (0, 0);
            if self.decompressor.decompress(extent, bytes) != Ok(extent.len()) {
                return Err(Corrupt);
            }
            if let Some(source) = source {
                source.copy_from_slice(bytes);
                self.made_of = (pages, bytes.len());
            }
        }
        page.copy_from_slice(&extent[part * PAGE_SIZE..(part + 1) * PAGE_SIZE]);
        Ok(())
    }
}

/// Codes the matches that [`Finder`] finds.
struct FindingPacker {
    finder: Finder,
    coder: Coder,
    scratch: Vec<u8>,
}

impl Packer for FindingPacker {
    fn compress(&mut self, pages: &[u8], into: &mut [u8]) -> Option<usize> {
        let length = self.coder.code(self.finder.find(pages), pages, &mut self.scratch)?;
        into.get_mut(..length)?.copy_from_slice(&self.scratch[..length]);
        Some(length)
    }

    fn shares(&mut self, pages: &[u8]) -> Option<[usize; EXTENT_PAGES]> {
        self.finder.find(pages);
        Some(self.finder.shares())
    }
}

/// Compresses at the level of the codec, with its dictionary.
struct LevelPacker {
    compressor: CCtx<'static>,
    scratch: Vec<u8>,
    /// The compressor refers to it, so it must live as long.
    _dictionary: Option<Arc<ZstdDictionary>>,
}

impl Packer for LevelPacker {
    fn compress(&mut self, pages: &[u8], into: &mut [u8]) -> Option<usize> {
        let length = self.compressor.compress2(&mut self.scratch[..], pages).ok()?;
        into.get_mut(..length)?.copy_from_slice(&self.scratch[..length]);
        Some(length)
    }
}

/// A frame of the same form as that of a page, of any length.
struct ZstdBlock {
    compressor: CCtx<'static>,
    decompressor: DCtx<'static>,
    /// The dictionary that both contexts refer to. It must live as long as they do.
    dictionary: Option<Arc<ZstdDictionary>>,
}

impl ZstdBlock {
    /// As [`ZstdContext::set_up`], with the largest block.
    fn set_up(&mut self, level: i32, block: &mut [u8], packed: &mut [u8]) -> Result<(), usize> {
        set_up(&mut self.compressor, level, self.dictionary.as_deref())?;
        self.decompressor.set_parameter(DParameter::Format(FrameFormat::Magicless))?;
        if let Some(dictionary) = &self.dictionary {
            self.decompressor.ref_ddict(&dictionary.decompressing)?;
        }
        let length = self.compressor.compress2(packed, block)?;
        self.decompressor.decompress(block, &packed[..length])?;
        Ok(())
    }
}

impl Block for ZstdBlock {
    fn compress(&mut self, bytes: &[u8], into: &mut [u8]) -> Option<usize> {
        self.compressor.compress2(into, bytes).ok()
    }

    fn decompress(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), Corrupt> {
        match self.decompressor.decompress(&mut *into, bytes) {
            Ok(length) if length == into.len() => Ok(()),
            _ => Err(Corrupt),
        }
    }
}
