//! Runs of bits in the words of a 2 MiB block, as pure functions. Each frame has one bit.
//!
//! A set bit is a free frame, so the free blocks of the buddy system are the largest aligned runs
//! of set bits. Nothing has to be merged: two free buddies *are* the block above them.

/// Words of a block.
pub(crate) const WORDS: usize = 8;
/// Frames per word.
pub(crate) const WORD_FRAMES: u32 = u64::BITS;
/// Frames per block: the bits of all words.
pub(crate) const FRAMES: u32 = WORD_FRAMES * WORDS as u32;
/// The order of a word.
const WORD_ORDER: u8 = WORD_FRAMES.trailing_zeros() as u8;
/// The order of a whole block.
pub(crate) const BLOCK_ORDER: u8 = FRAMES.trailing_zeros() as u8;

/// The places in a word where blocks of orders 0 to 6 can begin.
const STARTS: [u64; WORD_ORDER as usize + 1] = [
    !0,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// The lowest `count` set bits of `word`, or all if there are fewer.
#[inline]
pub(crate) fn lowest(word: u64, count: u32) -> u64 {
    if word.count_ones() <= count {
        return word;
    }
    if word == !0 {
        return (1 << count) - 1;
    }
    let mut rest = word;
    for _ in 0..count {
        rest &= rest - 1;
    }
    word ^ rest
}

/// `count` bits from bit `at` on; both fit into a word.
#[inline]
pub(crate) fn ones(at: u32, count: u32) -> u64 {
    debug_assert!(count >= 1 && at + count <= WORD_FRAMES);
    (!0 >> (WORD_FRAMES - count)) << at
}

/// The bits of a run of frames that begins at `at`, word by word. A run longer than a word begins
/// at a word boundary.
#[inline]
pub(crate) fn masks(at: u32, frames: u32) -> impl Iterator<Item = (usize, u64)> {
    let first = (at / WORD_FRAMES) as usize;
    let words = frames.div_ceil(WORD_FRAMES) as usize;
    let mask = ones(at % WORD_FRAMES, frames.min(WORD_FRAMES));
    (first..first + words).map(move |word| (word, mask))
}

/// The lowest free block of `order` (0 to 9).
pub(crate) fn find(words: &[u64; WORDS], order: u8) -> Option<u32> {
    if order > WORD_ORDER {
        let step = 1 << (order - WORD_ORDER);
        let fits = words.chunks_exact(step).position(|run| run.iter().all(|word| *word == !0))?;
        return Some((fits * step) as u32 * WORD_FRAMES);
    }
    words.iter().zip(0..).find_map(|(word, number)| {
        let starts = starts(*word, order);
        (starts != 0).then(|| number * WORD_FRAMES + starts.trailing_zeros())
    })
}

/// The places where free blocks of `order` (0 to 6) begin in a word.
#[inline]
fn starts(word: u64, order: u8) -> u64 {
    // After step n, bit i is set if 1 << n frames from i on are free.
    let whole = (0..order).fold(word, |free, step| free & free >> (1 << step));
    whole & STARTS[order as usize]
}

/// Passes the first frame and the order of every free block of orders 0 to 9 to `see`.
pub(crate) fn each_block(words: &[u64; WORDS], see: &mut dyn FnMut(u32, u8)) {
    let mut left = *words;
    for order in (0..=BLOCK_ORDER).rev() {
        while let Some(at) = find(&left, order) {
            for (word, mask) in masks(at, 1 << order) {
                left[word] &= !mask;
            }
            see(at, order);
        }
    }
}

/// Passes the first frame and the length of every longest run of free frames to `see`.
pub(crate) fn each_run(words: &[u64; WORDS], mut see: impl FnMut(u32, u32)) {
    let is_free = |at: u32| words[(at / WORD_FRAMES) as usize] >> (at % WORD_FRAMES) & 1 != 0;
    let mut start = 0;
    for at in 0..=FRAMES {
        if at == FRAMES || !is_free(at) {
            if at > start {
                see(start, at - start);
            }
            start = at + 1;
        }
    }
}

/// The number of set bits.
pub(crate) fn count(words: &[u64; WORDS]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

// Loom compiles this file into a test of its own.
#[cfg(all(test, not(loom)))]
mod tests;
