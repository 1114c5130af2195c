use std::vec::Vec;

use super::*;

/// Words with bits set by chance, about `eighths` of eight.
fn words(seed: u64, eighths: u64) -> [u64; WORDS] {
    let mut numbers = testkit::Rng::new(seed);
    let mut words = [0; WORDS];
    for bit in 0..FRAMES {
        if numbers.below(8) < eighths {
            words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }
    words
}

fn all_free(words: &[u64; WORDS], at: u32, frames: u32) -> bool {
    (at..at + frames).all(|bit| words[(bit / 64) as usize] >> (bit % 64) & 1 != 0)
}

fn samples() -> impl Iterator<Item = [u64; WORDS]> {
    let chance = (0..60).map(|seed| words(seed, seed % 9));
    let whole_words = (0..256u32)
        .map(|set| core::array::from_fn(|word| if set >> word & 1 != 0 { !0 } else { 0 }));
    chance.chain(whole_words)
}

#[test]
fn free_blocks_are_the_largest_aligned_runs() {
    for words in samples() {
        let mut seen = [0; WORDS];
        each_block(&words, &mut |at, order| {
            assert!(at.is_multiple_of(1 << order) && all_free(&words, at, 1 << order));
            for bit in at..at + (1 << order) {
                let (word, mask) = ((bit / 64) as usize, 1 << (bit % 64));
                assert_eq!(seen[word] & mask, 0, "a frame is in two blocks");
                seen[word] |= mask;
            }
            let buddy = at ^ 1 << order;
            assert!(
                order == BLOCK_ORDER || !all_free(&words, buddy, 1 << order),
                "{at} and {buddy} of order {order} are both free and were not merged"
            );
        });
        assert_eq!(seen, words);
    }
}

#[test]
fn runs_are_as_long_as_they_go() {
    for words in samples() {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        each_run(&words, |at, frames| runs.push((at, frames)));
        assert_eq!(runs.iter().map(|run| run.1).sum::<u32>(), count(&words));
        for (at, frames) in &runs {
            assert!(all_free(&words, *at, *frames));
        }
        for pair in runs.windows(2) {
            assert!(pair[0].0 + pair[0].1 < pair[1].0, "two runs touch: {pair:?}");
        }
    }
}

#[test]
fn the_lowest_bits_are_taken() {
    for word in samples().flatten() {
        for wanted in [0, 1, 2, 31, 63, 64] {
            let taken = lowest(word, wanted);
            assert_eq!(taken.count_ones(), word.count_ones().min(wanted));
            assert_eq!(taken & !word, 0);
            let left = word & !taken;
            assert!(left == 0 || taken == 0 || taken.ilog2() < left.trailing_zeros());
        }
    }
}
