//! A codec with one thing wrong with it.

use std::sync::atomic::{AtomicU8, Ordering};

use zcomp::{CodecError, Compressor, Context, Corrupt, Lz4, Params};

use super::pages::{PAGE_SIZE, Page};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Nothing: shows that the wrapping itself is right.
    Nothing,
    /// Compression forgets the last byte.
    LosesLastByte,
    /// Decompression does not look whether a page came out.
    IgnoresLength,
    /// Decompression does not look at what follows the page's bytes.
    IgnoresTail,
    /// Compression says that something fits when it does not.
    SaysItFits,
    /// Compression wants a byte to spare.
    WantsMoreRoom,
    /// Compression writes a byte behind the buffer.
    WritesPastRoom,
    /// Compression depends on what was compressed before.
    Remembers,
    /// Contexts share something.
    SharesState,
    /// Decompression gets one byte wrong.
    ChangesAByte,
    /// Decompression without state does something else.
    BareDiffers,
}

pub struct Broken {
    lz4: Lz4,
    wrong: Wrong,
}

impl Broken {
    pub fn new(wrong: Wrong) -> Broken {
        Broken { lz4: Lz4::new(&Params::default()).unwrap(), wrong }
    }
}

impl Compressor for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        let inner = self.lz4.context()?;
        Ok(Box::new(BrokenContext { inner, wrong: self.wrong, before: 0 }))
    }

    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        match self.wrong {
            Wrong::BareDiffers => {
                let result = self.lz4.decompress_bare(bytes, page);
                page[17] ^= 1;
                result
            }
            _ => None,
        }
    }
}

struct BrokenContext {
    inner: Box<dyn Context>,
    wrong: Wrong,
    before: u8,
}

static SHARED: AtomicU8 = AtomicU8::new(0);

/// The format is lz4's behind a byte that says nothing.
impl Context for BrokenContext {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        let mut whole = vec![0; 2 * PAGE_SIZE];
        let length = 1 + self.inner.compress(page, &mut whole[1..])?;
        match self.wrong {
            Wrong::Remembers => whole[0] = std::mem::replace(&mut self.before, page[9]),
            Wrong::SharesState => whole[0] = SHARED.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
        if self.wrong == Wrong::WritesPastRoom {
            // SAFETY: it is not; the suite's buffers have guards there.
            unsafe { into.as_mut_ptr().add(into.len()).write(0) };
        }
        let room = into.len();
        let fits = if self.wrong == Wrong::WantsMoreRoom { length < room } else { length <= room };
        if !fits && self.wrong != Wrong::SaysItFits {
            return None;
        }
        let fitting = length.min(room);
        into[..fitting].copy_from_slice(&whole[..fitting]);
        Some(if self.wrong == Wrong::LosesLastByte { length - 1 } else { length })
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        let (_, bytes) = bytes.split_first().ok_or(Corrupt)?;
        let mut result = self.inner.decompress(bytes, page);
        match self.wrong {
            Wrong::IgnoresLength => result = Ok(()),
            Wrong::IgnoresTail => {
                let mut shorter = bytes;
                while let (Err(_), [rest @ .., _]) = (result, shorter) {
                    result = self.inner.decompress(rest, page);
                    shorter = rest;
                }
            }
            Wrong::ChangesAByte => page[PAGE_SIZE - 1] ^= 1,
            _ => {}
        }
        result
    }
}
