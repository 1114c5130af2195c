//! The compressor: it writes each block in the shortest code that its three tables allow.

use units::{PAGE_SIZE, Page};

use super::crc::checksum;
use super::format::{
    BLOCK, CHECKSUM_BITS, CODE_BITS, DATA, DATA_OLD, END, Eight, Four, OLD, OLD_BLOCK, OLD_DATA,
    OLD_OLD, Pair, Piece, REPEAT, REPEAT_BITS, WAYS, ZEROS,
};

/// The room for any page: every block uncompressed, with its code, then the end.
pub(super) const BOUND: usize = {
    let bits = PAGE_SIZE / BLOCK * (CODE_BITS as usize + 64) + (CODE_BITS + CHECKSUM_BITS) as usize;
    bits.div_ceil(64) * 8
};

/// The last places of pieces of each size, by hash.
pub(super) struct Tables {
    pairs: [u16; 1 << PAIR_BITS],
    fours: [u16; 1 << FOUR_BITS],
    eights: [u16; 1 << EIGHT_BITS],
}

const PAIR_BITS: u32 = 10;
const FOUR_BITS: u32 = 10;
const EIGHT_BITS: u32 = 9;

impl Tables {
    pub(super) fn new() -> Tables {
        Tables {
            pairs: [0; 1 << PAIR_BITS],
            fours: [0; 1 << FOUR_BITS],
            eights: [0; 1 << EIGHT_BITS],
        }
    }
}

/// The output, bit by bit.
struct Writer<'a> {
    bytes: &'a mut [u8; BOUND],
    length: usize,
    /// Bits not yet written, at the top.
    pending: u64,
    /// The number of bits that still fit there; never 0.
    free: u32,
}

impl Writer<'_> {
    /// Writes the lowest `bits` bits of `value`, 1 to 64; the others are zero. `None` when there is
    /// no room, which does not happen.
    #[inline(always)]
    fn put(&mut self, value: u64, bits: u32) -> Option<()> {
        if bits < self.free {
            self.free -= bits;
            self.pending |= value << self.free;
            return Some(());
        }
        let left = bits - self.free;
        let word = self.pending | value >> left;
        *self.bytes.get_mut(self.length..)?.first_chunk_mut()? = word.to_be_bytes();
        self.length += 8;
        self.free = 64 - left;
        self.pending = if left == 0 { 0 } else { value << self.free };
        Some(())
    }

    /// Fills up with zeros, and returns the number of bytes.
    fn finish(mut self) -> Option<usize> {
        if self.free < 64 {
            self.put(0, self.free)?;
        }
        Some(self.length)
    }
}

#[inline(always)]
fn hash<const N: usize>(value: u64) -> usize {
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - N.trailing_zeros())) as usize % N
}

/// The index of an earlier copy of the piece at `at`, which belongs to the block at `block`. The
/// copy lies before the block and within reach.
#[inline(always)]
fn seek<P: Piece, const N: usize>(
    table: &[u16; N],
    page: &Page,
    block: usize,
    at: usize,
) -> Option<u64> {
    let value = P::at(page, at);
    let seen = usize::from(table[hash::<N>(value)]);
    // An unused entry is 0. The piece at 0 is as good as any, if it is the same.
    let usable = seen < block && block - seen <= P::REACH && P::at(page, seen) == value;
    usable.then(|| (seen / P::SIZE) as u64 % (1 << P::BITS))
}

/// Notes the places of the pieces of the block at `at`.
#[inline(always)]
fn note(tables: &mut Tables, page: &Page, at: usize) {
    tables.eights[hash::<{ 1 << EIGHT_BITS }>(Eight::at(page, at))] = at as u16;
    for at in [at, at + 4] {
        tables.fours[hash::<{ 1 << FOUR_BITS }>(Four::at(page, at))] = at as u16;
    }
    for at in [at, at + 2, at + 4, at + 6] {
        tables.pairs[hash::<{ 1 << PAIR_BITS }>(Pair::at(page, at))] = at as u16;
    }
}

/// A half in its shortest way: the way, the bits that follow the code, and their number.
#[inline(always)]
fn half(tables: &Tables, page: &Page, block: usize, at: usize) -> (u64, u64, u32) {
    if let Some(four) = seek::<Four, _>(&tables.fours, page, block, at) {
        return (OLD, four, Four::BITS);
    }
    let first = seek::<Pair, _>(&tables.pairs, page, block, at);
    let second = seek::<Pair, _>(&tables.pairs, page, block, at + 2);
    let bytes = (Four::at(page, at) as u32).swap_bytes();
    let (high, low) = (u64::from(bytes >> 16), u64::from(bytes & 0xffff));
    match (first, second) {
        (Some(first), Some(second)) => (OLD_OLD, first << Pair::BITS | second, 2 * Pair::BITS),
        (Some(first), None) => (OLD_DATA, first << 16 | low, Pair::BITS + 16),
        (None, Some(second)) => (DATA_OLD, high << Pair::BITS | second, 16 + Pair::BITS),
        (None, None) => (DATA, bytes.into(), 32),
    }
}

/// Compresses `page` into the beginning of `into`, and returns the number of bytes.
pub(super) fn compress(page: &Page, tables: &mut Tables, into: &mut [u8; BOUND]) -> Option<usize> {
    tables.pairs.fill(0);
    tables.fours.fill(0);
    tables.eights.fill(0);
    let mut writer = Writer { bytes: into, length: 0, pending: 0, free: 64 };
    let mut before = None;
    let mut at = 0;
    while at < PAGE_SIZE {
        let block = Eight::at(page, at);
        if before == Some(block) {
            // The count is the largest that the code can hold. A repeat has no new pieces to note.
            let most = PAGE_SIZE.min(at + (BLOCK << REPEAT_BITS));
            let rest = page.get(at..most)?.as_chunks::<BLOCK>().0;
            let times =
                rest.iter().take_while(|&other| u64::from_le_bytes(*other) == block).count();
            if block == 0 && times <= 2 {
                // This is shorter than a repeat code.
                (0..times).try_for_each(|_| writer.put(ZEROS, CODE_BITS))?;
            } else {
                let code = REPEAT << REPEAT_BITS | (times as u64 - 1);
                writer.put(code, CODE_BITS + REPEAT_BITS)?;
            }
            at += times * BLOCK;
            continue;
        }
        before = Some(block);
        if block == 0 {
            writer.put(ZEROS, CODE_BITS)?;
        } else if let Some(old) = seek::<Eight, _>(&tables.eights, page, at, at) {
            writer.put(OLD_BLOCK << Eight::BITS | old, CODE_BITS + Eight::BITS)?;
        } else {
            let (first, first_bits, first_count) = half(tables, page, at, at);
            let (second, second_bits, second_count) = half(tables, page, at, at + 4);
            let code = WAYS * first + second;
            writer.put(code << first_count | first_bits, CODE_BITS + first_count)?;
            writer.put(second_bits, second_count)?;
        }
        note(tables, page, at);
        at += BLOCK;
    }
    writer.put(END, CODE_BITS)?;
    writer.put(checksum(page).into(), CHECKSUM_BITS)?;
    writer.finish()
}
