//! zstd by libzstd: better ratios, at any level, for more time.
//!
//! Each page is a zstd frame (RFC 8878) with everything left out that the reader knows: no magic
//! number, checksum, dictionary number or content size. That leaves two bytes of frame header; the
//! size is checked by the one who decompresses.

use alloc::boxed::Box;

use units::{PAGE_SIZE, Page};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

use super::{level_within, out_of_memory};
use crate::{CodecError, Compressor, Context, Corrupt, Params};

/// The kernel's name for this codec.
pub const NAME: &str = "zstd";

/// Room for any page, compressed by zstd (`ZSTD_COMPRESSBOUND`, which adds 60 bytes to a page).
const BOUND: usize = PAGE_SIZE + 64;

/// The zstd codec.
#[derive(Clone, Debug)]
pub struct Zstd {
    level: i32,
}

impl Zstd {
    /// The codec with `params`; without a level it is zstd's 3, as in the kernel. Negative levels
    /// are faster; 0 is zstd's own word for the default.
    ///
    /// # Errors
    /// A level that this libzstd does not have.
    pub fn new(params: &Params) -> Result<Zstd, CodecError> {
        let allowed = zstd_safe::min_c_level()..=zstd_safe::max_c_level();
        let level = level_within(NAME, "level", params, zstd_safe::CLEVEL_DEFAULT, allowed)?;
        Ok(Zstd { level })
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
        };
        context.set_up(self.level).map_err(|code| {
            CodecError(alloc::format!("{NAME}: {}", zstd_safe::get_error_name(code)))
        })?;
        Ok(Box::new(context))
    }
}

struct ZstdContext {
    compressor: CCtx<'static>,
    decompressor: DCtx<'static>,
    /// For callers with little room, see `compress`.
    scratch: [u8; BOUND],
}

impl ZstdContext {
    /// Sets the parameters and runs a page through both ways, so that libzstd allocates now what
    /// it will need.
    fn set_up(&mut self, level: i32) -> Result<(), usize> {
        for parameter in [
            CParameter::CompressionLevel(level),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
            CParameter::ContentSizeFlag(false),
        ] {
            self.compressor.set_parameter(parameter)?;
        }
        self.decompressor.set_parameter(DParameter::Format(FrameFormat::Magicless))?;
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
        // libzstd wants some room to spare, so the last bytes of a tight buffer would go unused,
        // and the output would depend on it.
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
}
