//! Runs of bits in the words of a 2 MiB block, as pure functions. Each frame has one bit.
//!
//! A set bit is a free frame, so the free blocks of the buddy system are the largest aligned parts
//! of runs of set bits. Nothing has to be merged: two free buddies *are* the block above them.

/// Words of a block.
pub(crate) const WORDS: usize = 8;
/// Frames per word.
pub(crate) const WORD_FRAMES: u32 = u64::BITS;
/// Frames per block: the bits of all words.
pub(crate) const FRAMES: u32 = WORD_FRAMES * WORDS as u32;
/// The order of a whole block.
pub(crate) const BLOCK_ORDER: u8 = FRAMES.trailing_zeros() as u8;

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

/// The lowest `count` bits of a word, 1 to all.
#[inline]
pub(crate) fn ones(count: u32) -> u64 {
    debug_assert!((1..=WORD_FRAMES).contains(&count));
    !0 >> (WORD_FRAMES - count)
}

/// Sets the bits of a run.
pub(crate) fn insert(words: &mut [u64; WORDS], at: u32, frames: u32) {
    let end = at + frames;
    for (word, first) in words.iter_mut().zip((0..).step_by(WORD_FRAMES as usize)) {
        let (from, to) =
            (at.clamp(first, first + WORD_FRAMES), end.clamp(first, first + WORD_FRAMES));
        if from < to {
            *word |= ones(to - from) << (from - first);
        }
    }
}

/// Passes the first frame and the order of every free block to `see`: each run is cut into the
/// largest blocks that are aligned to their size.
pub(crate) fn each_block(words: &[u64; WORDS], see: &mut dyn FnMut(u32, u8)) {
    each_run(words, |mut at, mut frames| {
        while frames > 0 {
            let order = at.trailing_zeros().min(frames.ilog2());
            see(at, order as u8);
            at += 1 << order;
            frames -= 1 << order;
        }
    });
}

/// Passes the first frame and the length of every longest run of free frames to `see`.
pub(crate) fn each_run(words: &[u64; WORDS], mut see: impl FnMut(u32, u32)) {
    let mut start = next(words, 0, 0);
    while start < FRAMES {
        let end = next(words, start, !0);
        see(start, end - start);
        start = next(words, end, 0);
    }
}

/// The first bit from `at` on that is set in its word xor `flip`; [`FRAMES`] if there is none.
fn next(words: &[u64; WORDS], mut at: u32, flip: u64) -> u32 {
    while at < FRAMES {
        let rest = (words[(at / WORD_FRAMES) as usize] ^ flip) >> (at % WORD_FRAMES);
        if rest != 0 {
            return at + rest.trailing_zeros();
        }
        at = (at / WORD_FRAMES + 1) * WORD_FRAMES;
    }
    FRAMES
}

/// The number of set bits.
pub(crate) fn count(words: &[u64; WORDS]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

// Loom compiles this file into a test of its own.
#[cfg(all(test, not(loom)))]
mod tests;
