//! What a process left that died: see the module above.

use alloc::vec::Vec;

use sync::atomic::Ordering;

use super::{Growing, Index, NEXT, number_of};
use crate::word::Word;

impl Index {
    /// Takes out what is there besides the words, and the words for which `stays` is false. Nobody
    /// else uses the index. A process that dies on the way leaves an index to be mended.
    pub(crate) fn mend(&self, mut stays: impl FnMut(Word) -> bool) {
        let count = self.count();
        let (mut keys, mut words) = (0, Vec::new());
        for number in 0..count {
            words.clear();
            let mut bucket = self.buckets.get(number as usize);
            loop {
                // No thread has the lock.
                let next = (bucket[0].load(Ordering::Relaxed) & NEXT) as u32;
                let is_there = next != 0 && self.behind.lock().claim(next);
                bucket[0].store(if is_there { u64::from(next) } else { 0 }, Ordering::Relaxed);
                for slot in &bucket[1..] {
                    let raw = slot.load(Ordering::Relaxed);
                    let Some(word) = Word::from_raw(raw) else { continue };
                    let is_its_own = number_of(word.fingerprint(), count) == number
                        && words.iter().all(|seen: &Word| !seen.is(word));
                    if is_its_own && stays(word) {
                        words.push(word);
                    } else {
                        slot.store(0, Ordering::Relaxed);
                    }
                }
                if !is_there {
                    break;
                }
                bucket = self.more.get(next as usize);
            }
            keys += words.len() as u64;
        }
        self.buckets.release(count as usize..self.buckets.len());
        self.more.release(self.behind.lock().end() as usize..self.more.len());
        self.keys.store(keys, Ordering::Relaxed);
        *self.growing.lock() = Growing { pages_begun: 0, end: count, begun: count };
    }

    /// Takes out the words for which `stays` is false. Nobody else uses the index, which is mended.
    pub(crate) fn retain(&self, mut stays: impl FnMut(Word) -> bool) {
        for number in 0..self.count() {
            for slot in self.chain(number as usize).flat_map(|bucket| &bucket[1..]) {
                let word = Word::from_raw(slot.load(Ordering::Relaxed));
                if word.is_some_and(|word| !stays(word)) {
                    slot.store(0, Ordering::Relaxed);
                    self.keys.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }
}
