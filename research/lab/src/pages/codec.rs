//! The bare codec: the cost of compressing and decompressing without a store for pages.
//!
//! The code is that of the engine. Each thread keeps one context all the time, and takes the same
//! pages in the same order. Pages and objects are prefetched as in the engine. The output goes end
//! to end to memory that is allocated beforehand, and is decompressed in that order. No store for
//! pages can be arranged better. A page that does not shrink is copied.

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail};
use units::PAGE_SIZE;
use zcomp::Context;

use super::work::{CHUNK, Speed, Work, clock};
use crate::page::{page, page_mut};
use crate::sys::{Memory, memory};

/// A codec with the contexts and memory of each thread.
pub struct Codec(Vec<Cpu>);

/// What a thread has, which no other thread uses.
struct Cpu {
    context: Mutex<Box<dyn Context>>,
    log: Mutex<Log>,
}

/// Compressed pages, end to end.
struct Log {
    bytes: Memory,
    /// The length of each object.
    lengths: Vec<u16>,
}

fn lock<T>(own: &Mutex<T>) -> MutexGuard<'_, T> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Codec {
    /// Allocates all that compressing the pages of `work` needs.
    pub fn new(work: &Work<'_>, context: impl Fn() -> Result<Box<dyn Context>>) -> Result<Codec> {
        let pages = work.largest_share();
        let cpu = |_| {
            // The codec may use two pages for the last one.
            let bytes = memory((pages + 1) * PAGE_SIZE).context("no memory for the codec")?;
            let log = Mutex::new(Log { bytes, lengths: vec![1; pages] });
            Ok(Cpu { context: Mutex::new(context()?), log })
        };
        Ok(Codec((0..work.threads()).map(cpu).collect::<Result<_>>()?))
    }

    /// Compresses every page.
    pub fn compress(&self, work: &Work<'_>) -> Result<Speed> {
        work.timed(|share| {
            let cpu = &self.0[share.thread];
            let (mut context, log) = (lock(&cpu.context), &mut *lock(&cpu.log));
            let mut end = 0;
            clock(|| {
                for (&index, length) in share.indexes.iter().zip(&mut log.lengths) {
                    let source = page(work.corpus(), index as usize);
                    zcomp::prefetch_beginning(source);
                    // The engine looks at the page here, and so waits for its first line.
                    black_box(source[0]);
                    zcomp::prefetch_sequel(source);
                    let room = &mut log.bytes[end..end + 2 * PAGE_SIZE];
                    let taken = match context.compress(source, room) {
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
    pub fn decompress(&self, work: &Work<'_>) -> Result<Speed> {
        work.timed(|share| {
            let mut buffer = memory(CHUNK * PAGE_SIZE)?;
            let cpu = &self.0[share.thread];
            let (mut context, log) = (lock(&cpu.context), lock(&cpu.log));
            let mut end = 0;
            clock(|| {
                for (chunk, lengths) in share.indexes.chunks(CHUNK).zip(log.lengths.chunks(CHUNK)) {
                    let lengths = &lengths[..chunk.len()];
                    end = decompress_chunk(&mut **context, &log.bytes, end, lengths, &mut buffer)?;
                }
                Ok(())
            })
        })
    }

    /// Compares the decompressed pages with the original ones. Untimed.
    pub fn verify(&self, work: &Work<'_>) -> Result<()> {
        work.on_each_thread(|share| {
            let mut buffer = memory(PAGE_SIZE)?;
            let cpu = &self.0[share.thread];
            let (mut context, log) = (lock(&cpu.context), lock(&cpu.log));
            let mut end = 0;
            for (&index, length) in share.indexes.iter().zip(&log.lengths) {
                let lengths = std::slice::from_ref(length);
                end = decompress_chunk(&mut **context, &log.bytes, end, lengths, &mut buffer)?;
                if page(&buffer, 0) != page(work.corpus(), index as usize) {
                    bail!("the codec brings back page {index} as it was not");
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// The length of each compressed page, in no order. A page that did not shrink counts whole.
    pub fn lengths(&self, work: &Work<'_>) -> Result<Vec<u16>> {
        let lengths = work.on_each_thread(|share| {
            Ok(lock(&self.0[share.thread].log).lengths[..share.indexes.len()].to_vec())
        })?;
        Ok(lengths.concat())
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
            bail!("what was compressed cannot be decompressed");
        }
    }
    Ok(end)
}
