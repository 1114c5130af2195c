//! A walk over all words while the index grows and shrinks.
//!
//! It goes in the order of the turned fingerprints: those whose lowest bit is the highest. In that
//! order a bucket is one piece, and so are the two that it is split into. So the place where a walk
//! is splits the words in those that were seen and those that were not, whatever becomes of the
//! buckets.

use alloc::vec::Vec;

use sync::atomic::Ordering;

use super::{Index, VERSION, number_of};
use crate::word::{FINGERPRINT_BITS, Fingerprint, Word};

/// The place behind all words. The first is 0.
pub(crate) const END: u64 = 1 << FINGERPRINT_BITS;

impl Index {
    /// Adds the words of the bucket at `place` that lie from there on to `words`, each once, and
    /// returns the place of the next bucket. The calling thread is a reader.
    pub(crate) fn scan(&self, place: u64, words: &mut Vec<Word>) -> u64 {
        let before = words.len();
        loop {
            words.truncate(before);
            let count = self.count();
            let number = number_of(turned(place as u32), count);
            let link = &self.buckets.get(number as usize)[0];
            // Acquire pairs with the Release of moves and stores, here and below: as in `find`.
            let version = link.load(Ordering::Acquire) & VERSION;
            for slot in self.chain(number as usize).flat_map(|bucket| &bucket[1..]) {
                let Some(word) = Word::from_raw(slot.load(Ordering::Acquire)) else { continue };
                let is_next = place_of(word.fingerprint()) >= place
                    && number_of(word.fingerprint(), count) == number;
                if is_next && words[before..].iter().all(|seen| !seen.is(word)) {
                    words.push(word);
                }
            }
            // Acquire pairs with the Release of a move.
            if link.load(Ordering::Acquire) & VERSION == version && self.count() == count {
                let first = place_of(Fingerprint(number as u32));
                return first + (END >> bits_of(number, count));
            }
        }
    }
}

/// The fingerprint of a place, and the other way round.
fn turned(bits: u32) -> Fingerprint {
    Fingerprint(bits.reverse_bits() >> (u32::BITS - FINGERPRINT_BITS))
}

fn place_of(fingerprint: Fingerprint) -> u64 {
    u64::from(turned(fingerprint.0).0)
}

/// How many bits of a fingerprint say that it belongs to a bucket.
fn bits_of(number: u64, count: u64) -> u32 {
    let all = count.next_power_of_two();
    let is_split = number >= all / 2 || number + all / 2 < count;
    all.ilog2() - u32::from(!is_split)
}
