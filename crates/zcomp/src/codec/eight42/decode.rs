//! The decompressor, in safe Rust: it refuses every input that does not fit.

use units::{PAGE_SIZE, Page};

use super::crc::checksum;
use super::format::{
    BLOCK, CHECKSUM_BITS, CODE_BITS, DATA, DATA_OLD, END, Eight, Four, OLD_BLOCK, OLD_DATA,
    OLD_OLD, Pair, Piece, REPEAT, REPEAT_BITS, WAYS, ZEROS,
};
use crate::Corrupt;

/// The input, bit by bit.
struct Reader<'a> {
    rest: &'a [[u8; 8]],
    /// Bits not yet read, at the top; zeros below.
    pending: u64,
    /// The number of pending bits.
    left: u32,
}

impl Reader<'_> {
    /// The next `bits` bits, 1 to 32.
    #[inline(always)]
    fn take(&mut self, bits: u32) -> Result<u64, Corrupt> {
        let top = self.pending >> (64 - bits);
        if bits <= self.left {
            self.pending <<= bits;
            self.left -= bits;
            return Ok(top);
        }
        let (word, rest) = self.rest.split_first().ok_or(Corrupt)?;
        let word = u64::from_be_bytes(*word);
        let more = bits - self.left;
        self.rest = rest;
        self.pending = word << more;
        self.left = 64 - more;
        Ok(top | word >> (64 - more))
    }

    /// Whether only zeros are left, which fill the last eight bytes.
    fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.pending == 0
    }
}

/// Reads an index and copies the piece it names to `into`. The index is relative to the block at
/// `at`.
#[inline(always)]
fn old<P: Piece, const N: usize>(
    reader: &mut Reader<'_>,
    page: &Page,
    at: usize,
    into: &mut [u8; N],
    place: usize,
) -> Result<(), Corrupt> {
    let offset = reader.take(P::BITS)? as usize * P::SIZE;
    let lap = at - at % P::REACH;
    let from = if lap + offset < at {
        lap + offset
    } else {
        (lap + offset).checked_sub(P::REACH).ok_or(Corrupt)?
    };
    let from = page.get(from..from + P::SIZE).ok_or(Corrupt)?;
    into.get_mut(place..place + P::SIZE).ok_or(Corrupt)?.copy_from_slice(from);
    Ok(())
}

/// Reads a half that was written in way `way`.
#[inline(always)]
fn half(reader: &mut Reader<'_>, page: &Page, at: usize, way: u64) -> Result<[u8; 4], Corrupt> {
    let mut bytes = [0; 4];
    match way {
        DATA => bytes = (reader.take(32)? as u32).to_be_bytes(),
        DATA_OLD => {
            let data = (reader.take(16)? as u16).to_be_bytes();
            bytes[..2].copy_from_slice(&data);
            old::<Pair, 4>(reader, page, at, &mut bytes, 2)?;
        }
        OLD_DATA => {
            old::<Pair, 4>(reader, page, at, &mut bytes, 0)?;
            let data = (reader.take(16)? as u16).to_be_bytes();
            bytes[2..].copy_from_slice(&data);
        }
        OLD_OLD => {
            old::<Pair, 4>(reader, page, at, &mut bytes, 0)?;
            old::<Pair, 4>(reader, page, at, &mut bytes, 2)?;
        }
        _ => old::<Four, 4>(reader, page, at, &mut bytes, 0)?,
    }
    Ok(bytes)
}

/// Decompresses exactly `bytes` to a page.
pub(super) fn decompress(bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
    let (words, []) = bytes.as_chunks::<8>() else { return Err(Corrupt) };
    let mut reader = Reader { rest: words, pending: 0, left: 0 };
    let mut at = 0;
    loop {
        let code = reader.take(CODE_BITS)?;
        let mut block = [0; BLOCK];
        match code {
            0..OLD_BLOCK => {
                let first = half(&mut reader, page, at, code / WAYS)?;
                let second = half(&mut reader, page, at, code % WAYS)?;
                block[..4].copy_from_slice(&first);
                block[4..].copy_from_slice(&second);
            }
            OLD_BLOCK => old::<Eight, BLOCK>(&mut reader, page, at, &mut block, 0)?,
            REPEAT => {
                let times = reader.take(REPEAT_BITS)? as usize + 1;
                let (done, rest) = page.split_at_mut_checked(at).ok_or(Corrupt)?;
                let last = *done.last_chunk::<BLOCK>().ok_or(Corrupt)?;
                let rest = rest.as_chunks_mut::<BLOCK>().0.get_mut(..times).ok_or(Corrupt)?;
                rest.fill(last);
                at += times * BLOCK;
                continue;
            }
            ZEROS => {}
            END => {
                let sum = reader.take(CHECKSUM_BITS)?;
                let whole =
                    at == PAGE_SIZE && reader.is_at_end() && sum == u64::from(checksum(page));
                return if whole { Ok(()) } else { Err(Corrupt) };
            }
            _ => return Err(Corrupt),
        }
        *page.get_mut(at..).and_then(<[u8]>::first_chunk_mut).ok_or(Corrupt)? = block;
        at += BLOCK;
    }
}
