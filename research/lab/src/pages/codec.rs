//! The bare codec: the cost of compressing and decompressing without a store for pages.
//!
//! The code is that of the engine. Each thread keeps one context all the time, and takes the same
//! pages in the same order. Pages and objects are prefetched as in the engine. The output goes end
//! to end to memory that is allocated beforehand, and is decompressed in that order. No store for
//! pages can be arranged better. A page that does not shrink is copied.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use units::PAGE_SIZE;
use zcomp::{Compressor, Context, Deflate, Eight42, Lz4, Lz4hc, Lzo, LzoRle, Params, Zstd};

use super::work::{CHUNK, Share, Speed, Work, clock};
use crate::page::{page, page_mut};
use crate::sys::Memory;

/// The codec `name`, or `None` if it is unknown here.
///
/// # Errors
/// The level is out of range.
pub fn by_name(name: &str, level: Option<i32>) -> Result<Option<Box<dyn Compressor>>> {
    let params = Params::at_level(level);
    Ok(Some(match name {
        zcomp::LZO_RLE => Box::new(LzoRle::new(&params)?),
        zcomp::LZO => Box::new(Lzo::new(&params)?),
        zcomp::LZ4 => Box::new(Lz4::new(&params)?),
        zcomp::LZ4HC => Box::new(Lz4hc::new(&params)?),
        zcomp::ZSTD => Box::new(Zstd::new(&params)?),
        zcomp::DEFLATE => Box::new(Deflate::new(&params)?),
        zcomp::EIGHT42 => Box::new(Eight42::new(&params)?),
        _ => return Ok(None),
    }))
}

/// A codec with the contexts and memory of each thread.
pub struct Codec {
    cpus: Vec<Mutex<Cpu>>,
}

struct Cpu {
    context: Box<dyn Context>,
    log: Memory,
    /// The length of each object in the log.
    lengths: Vec<u16>,
}

impl Codec {
    /// Allocates all that compressing the pages of `work` needs.
    ///
    /// # Errors
    /// Memory is out.
    pub fn new(compressor: &dyn Compressor, work: &Work<'_>) -> Result<Codec> {
        let pages = work.largest_share();
        let cpu = |_| {
            Ok(Mutex::new(Cpu {
                context: compressor.context()?,
                // The codec may use two pages for the last one.
                log: Memory::new((pages + 1) * PAGE_SIZE).context("no memory for the codec")?,
                lengths: vec![1; pages],
            }))
        };
        Ok(Codec { cpus: (0..work.threads()).map(cpu).collect::<Result<_>>()? })
    }

    /// Compresses every page.
    ///
    /// # Errors
    /// Only those of threads.
    pub fn compress(&self, work: &Work<'_>) -> Result<Speed> {
        work.timed(|share| {
            let cpu = &mut *self.cpu(&share);
            let mut end = 0;
            clock(|| {
                for (&index, length) in share.indexes.iter().zip(&mut cpu.lengths) {
                    let source = page(work.corpus(), index as usize);
                    zcomp::prefetch_beginning(source);
                    // The engine looks at the page here, and so waits for its first line.
                    black_box(source[0]);
                    zcomp::prefetch_sequel(source);
                    let room = &mut cpu.log[end..end + 2 * PAGE_SIZE];
                    let taken = match cpu.context.compress(source, room) {
                        Some(taken) if taken < PAGE_SIZE => taken,
                        _ => {
                            room[..PAGE_SIZE].copy_from_slice(source);
                            PAGE_SIZE
                        }
                    };
                    *length = taken as u16;
                    end += taken;
                }
                Ok(())
            })
        })
    }

    /// Decompresses the objects that [`compress`](Codec::compress) left.
    ///
    /// # Errors
    /// An object cannot be decompressed.
    pub fn decompress(&self, work: &Work<'_>) -> Result<Speed> {
        work.timed(|share| {
            let mut buffer = Memory::new(CHUNK * PAGE_SIZE)?;
            let cpu = &mut *self.cpu(&share);
            let mut end = 0;
            clock(|| {
                for (chunk, lengths) in share.indexes.chunks(CHUNK).zip(cpu.lengths.chunks(CHUNK)) {
                    let lengths = &lengths[..chunk.len()];
                    end = decompress_chunk(&mut *cpu.context, &cpu.log, end, lengths, &mut buffer)?;
                }
                Ok(())
            })
        })
    }

    /// Compares the decompressed pages with the original ones, and returns the bytes of all
    /// objects. Untimed.
    ///
    /// # Errors
    /// A page differs from the compressed one.
    pub fn verify(&self, work: &Work<'_>) -> Result<u64> {
        let bytes = work.on_each_thread(|share| {
            let mut buffer = Memory::new(PAGE_SIZE)?;
            let cpu = &mut *self.cpu(&share);
            let mut end = 0;
            for (&index, length) in share.indexes.iter().zip(&cpu.lengths) {
                let lengths = std::slice::from_ref(length);
                end = decompress_chunk(&mut *cpu.context, &cpu.log, end, lengths, &mut buffer)?;
                if page(&buffer, 0) != page(work.corpus(), index as usize) {
                    bail!("the codec brings back page {index} as it was not");
                }
            }
            Ok(end as u64)
        })?;
        Ok(bytes.iter().sum())
    }

    /// The CPU state of a thread, which no other thread uses.
    fn cpu(&self, share: &Share<'_>) -> std::sync::MutexGuard<'_, Cpu> {
        self.cpus[share.thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decompresses objects of these lengths, which begin at `end` of the log, to the pages of
/// `buffer`. Returns their end in the log.
#[inline]
fn decompress_chunk(
    context: &mut dyn Context,
    log: &[u8],
    mut end: usize,
    lengths: &[u16],
    buffer: &mut [u8],
) -> Result<usize> {
    for (place, &length) in lengths.iter().enumerate() {
        let object = &log[end..end + usize::from(length)];
        end += object.len();
        sync::prefetch_bytes(object.as_ptr(), 0..object.len().min(zsmalloc::PREFETCH_BYTES));
        let into = page_mut(buffer, place);
        if object.len() == PAGE_SIZE {
            into.copy_from_slice(object);
        } else if context.decompress(object, into).is_err() {
            bail!("the codec cannot decompress what it compressed");
        }
    }
    Ok(end)
}
