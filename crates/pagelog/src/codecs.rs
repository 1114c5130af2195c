//! The codecs of the pages of a [`LogDevice`](crate::LogDevice), by the numbers in its table and in
//! headers.

use alloc::sync::Arc;

use sync::MutexGuard;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{CodecError, Compressor, Corrupt, Params, PerCpuStreams, Stream, Streams};

use crate::backed::Coded;

/// The number of a page that is as it is.
pub(crate) const NONE: u8 = 0;
/// The number of the codec that the device compresses with.
const OWN: u8 = 1;
/// The other codecs of pages, which need no memory of their own to expand one. Their numbers follow
/// and never change.
const OTHERS: [&str; 5] = [zcomp::LZ4, zcomp::LZ4HC, zcomp::LZO, zcomp::LZO_RLE, zcomp::EIGHT42];
/// The highest number.
pub(crate) const LAST: u8 = OWN + OTHERS.len() as u8;

/// The codecs. Any number of threads may call every method at once.
pub(crate) struct Codecs {
    own: &'static str,
    streams: PerCpuStreams,
    others: [Arc<dyn Compressor>; OTHERS.len()],
}

impl Codecs {
    /// Codecs of a device that compresses with `own`.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub(crate) fn new(own: &dyn Compressor, cpus: usize) -> Result<Codecs, CodecError> {
        let [a, b, c, d, e] = OTHERS.map(|name| zcomp::open(name, &Params::default()));
        Ok(Codecs {
            own: own.name(),
            streams: PerCpuStreams::new(own, cpus)?,
            others: [a?, b?, c?, d?, e?],
        })
    }

    /// The number of a codec, if there may be pages of it.
    pub(crate) fn number(&self, name: &str) -> Option<u8> {
        if name == self.own {
            return Some(OWN);
        }
        let other = OTHERS.iter().position(|other| *other == name)?;
        Some(OWN + 1 + other as u8)
    }

    /// Whether the device compresses with the codec of this number.
    pub(crate) fn is_own(&self, number: u8) -> bool {
        number == OWN
    }

    /// A stream to compress with, and its number.
    pub(crate) fn compress(&self, cpu: Cpu) -> (MutexGuard<'_, Stream>, u8) {
        (self.streams.get(cpu), OWN)
    }

    /// Turns the first bytes of a page, of this form, into the page itself.
    ///
    /// # Errors
    /// [`Corrupt`]; the contents of `page` are undefined then.
    pub(crate) fn expand(
        &self,
        cpu: Cpu,
        Coded { length, codec: number, .. }: Coded,
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        if number == NONE && usize::from(length) == PAGE_SIZE {
            return Ok(());
        }
        let object = *page;
        let bytes = object.get(..usize::from(length)).ok_or(Corrupt)?;
        if number == OWN {
            return self.streams.get(cpu).context.decompress(bytes, page);
        }
        let other = usize::from(number).checked_sub(usize::from(OWN) + 1).ok_or(Corrupt)?;
        self.others.get(other).ok_or(Corrupt)?.decompress_bare(bytes, page).unwrap_or(Err(Corrupt))
    }
}
