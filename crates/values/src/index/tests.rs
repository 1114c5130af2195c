use std::collections::BTreeMap;
use std::vec::Vec;

use zsmalloc::Handle;

use super::*;
use crate::word::Left;

fn index(keys: u64) -> Index {
    Index::new(&host::Mmap, keys).expect("address space")
}

fn word(key: u32) -> Word {
    Word::head(Fingerprint::of(hash(key)), Handle::from_raw(key + 1), false)
}

/// The words of a bucket.
fn words(index: &Index, number: u64) -> Vec<Word> {
    let slots = index.chain(number as usize).flat_map(|bucket| &bucket[1..]);
    slots.filter_map(|slot| Word::from_raw(slot.load(Ordering::Relaxed))).collect()
}

fn hash(key: u32) -> u64 {
    u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

#[test]
fn every_key_belongs_to_one_bucket_at_any_count() {
    for count in 64..300 {
        for key in 0..1000 {
            let key = Fingerprint(key * 7919);
            let (number, next) = (number_of(key, count), number_of(key, count + 1));
            assert!(number < count);
            // Only the bucket that is split loses keys, and only to the new one.
            let split = count - (1 << count.ilog2());
            assert!(next == number || (number == split && next == count), "{count} {key:?}");
        }
    }
}

#[test]
fn keys_are_found_while_the_index_grows_and_shrinks() {
    let index = index(1 << 20);
    let (mut left, mut model) = (Vec::new(), BTreeMap::new());
    for key in 0..20_000 {
        let mut chain = index.lock(word(key).fingerprint());
        chain.insert(word(key)).expect("room");
        drop(chain);
        model.insert(key, word(key));
        index.grow(|number| left.push(number));
        if key % 3 == 0 {
            let gone = word(key / 2);
            let mut chain = index.lock(gone.fingerprint());
            if let Some(slot) = chain.slot_of(gone) {
                assert!(chain.take(slot).is_some_and(|word| word.is(gone)));
            }
            model.remove(&(key / 2));
        }
    }
    assert!(index.count() > 1500, "{}", index.count());
    assert!(!left.is_empty());
    for key in 0..20_000 {
        let found = index.find_word(word(key));
        assert_eq!(found.is_some(), model.contains_key(&key), "key {key}");
    }
    assert_eq!(index.keys(), model.len() as u64);
    // Each word is in its bucket, once.
    let mut seen = 0;
    for number in 0..index.count() {
        for word in words(&index, number) {
            assert_eq!(number_of(word.fingerprint(), index.count()), number);
            seen += 1;
        }
    }
    assert_eq!(seen, model.len());
    // What a chain does not need any more is not linked.
    let linked = (0..index.count()).map(|number| index.chain(number as usize).count() - 1);
    let linked: usize = linked.sum();
    assert_eq!(linked + left.len(), taken(&index));
}

/// Buckets behind others that are not given back.
fn taken(index: &Index) -> usize {
    let mut behind = index.behind.lock();
    let end = behind.end();
    let free = std::iter::from_fn(|| behind.take()).take_while(|number| *number < end);
    let free: Vec<u32> = free.collect();
    end as usize - 1 - free.len()
}

/// Gives back what nobody reads.
fn give_back(index: &Index, left: &mut Vec<Left>) {
    for left in left.drain(..) {
        match left {
            Left::Bucket(number) => index.give_back(number),
            Left::Pages(begun) => index.give_back_pages(begun),
            other => panic!("{other:?} is nothing of an index"),
        }
    }
}

/// All words, by a walk that `between` interrupts at each bucket.
fn walk(index: &Index, mut between: impl FnMut(u64)) -> Vec<Word> {
    let (mut place, mut words) = (0, Vec::new());
    while place < END {
        place = index.scan(place, &mut words);
        between(place);
    }
    words
}

fn take(index: &Index, word: Word) {
    let mut chain = index.lock(word.fingerprint());
    let slot = chain.slot_of(word).expect("it is there");
    assert!(chain.take(slot).is_some_and(|taken| taken.is(word)));
}

#[test]
fn an_index_shrinks_to_what_the_rest_needs() {
    let index = index(1 << 20);
    let (mut left, empty) = (Vec::new(), index.bytes());
    for round in 0..3 {
        for key in 0..60_000 {
            index.lock(word(key).fingerprint()).insert(word(key)).expect("room");
            index.grow(|it| left.push(it));
            give_back(&index, &mut left);
        }
        assert!(index.count() >= 12_000, "{}", index.count());
        for key in 600..60_000 {
            take(&index, word(key));
            index.shrink(|it| left.push(it));
            // What a reader of before could be in is given back later.
            if key % 5000 == 0 {
                give_back(&index, &mut left);
            }
        }
        give_back(&index, &mut left);
        assert!(index.count() * LOAD * SPARSE_QUARTERS <= 600 * 4 + 64, "{}", index.count());
        assert!(index.bytes() < empty + 600 * 24, "{} bytes in round {round}", index.bytes());
        for key in 0..60_000 {
            assert_eq!(index.find_word(word(key)).is_some(), key < 600, "key {key}");
        }
        assert_eq!(walk(&index, |_| ()).len(), 600);
        (0..600).for_each(|key| take(&index, word(key)));
        while index.shrink(|it| left.push(it)) {}
        give_back(&index, &mut left);
        assert_eq!((index.count(), index.keys(), index.bytes()), (FIRST, 0, empty));
    }
}

#[test]
fn a_walk_sees_each_word_once_while_the_index_grows_and_shrinks() {
    for grows in [true, false] {
        let index = index(1 << 20);
        let mut left = Vec::new();
        (0..20_000).for_each(|key| {
            index.lock(word(key).fingerprint()).insert(word(key)).expect("room");
            index.grow(|it| left.push(it));
        });
        let mut next = if grows { 20_000 } else { 5000 };
        let seen = walk(&index, |_| {
            for _ in 0..8 {
                if grows {
                    index.lock(word(next).fingerprint()).insert(word(next)).expect("room");
                    index.grow(|it| left.push(it));
                } else if next < 20_000 {
                    take(&index, word(next));
                    index.shrink(|it| left.push(it));
                }
                next += 1;
            }
        });
        let stay = if grows { 20_000 } else { 5000 };
        let count = |key| seen.iter().filter(|seen| seen.is(word(key))).count();
        assert!((0..stay).step_by(7).all(|key| count(key) == 1), "{grows}");
        let all: std::collections::BTreeSet<u64> = seen.iter().map(|word| word.get()).collect();
        assert_eq!(all.len(), seen.len(), "a word is seen twice");
        assert!(grows == (index.count() > 4000), "{} buckets", index.count());
    }
}

#[test]
fn what_a_dead_process_left_is_mended() {
    let index = index(1 << 20);
    for key in 0..2000 {
        index.lock(word(key).fingerprint()).insert(word(key)).expect("room");
        index.grow(|_| ());
    }
    let (count, bytes) = (index.count(), index.bytes());
    // A split, a merge and a move within a bucket stopped on their ways; a lock is held.
    let last = count - 1;
    let from = last as usize - (1 << last.ilog2());
    let words = words(&index, last);
    words.iter().for_each(|word| index.lock_number(from).place(*word).expect("room"));
    words.iter().for_each(|word| index.lock_number(count as usize).place(*word).expect("room"));
    index.lock_number(last as usize).place(words[0]).expect("room");
    std::mem::forget(index.lock_number(7));
    // Damage: a bucket behind another that there cannot be.
    index.buckets.get(3)[0].fetch_or(NEXT, Ordering::Relaxed);
    *index.behind.lock() = Numbers::new(index.more.len(), IN_PAGE as usize);
    let mut seen = Vec::new();
    index.mend(|word| {
        seen.push(word);
        word.get() % 16 != 0 || word.fingerprint().0 % 3 != 0
    });
    assert!(seen.len() > 1980, "{}", seen.len());
    assert_eq!(index.count(), count);
    assert!(index.bytes() <= bytes, "{} after {bytes}", index.bytes());
    let all = walk(&index, |_| ());
    assert_eq!(all.len() as u64, index.keys());
    assert!(all.iter().all(|word| seen.contains(word)));
    index.retain(|word| word.get() % 2 == 0);
    assert!(walk(&index, |_| ()).iter().all(|word| word.get() % 2 == 0));
    for key in 5000..9000 {
        index.lock(word(key).fingerprint()).insert(word(key)).expect("room");
        index.grow(|_| ());
    }
    assert_eq!(walk(&index, |_| ()).len() as u64, index.keys());
}

/// A release may leave all as it was: the pages of the system are larger, or the file system makes
/// no holes.
#[test]
fn a_bucket_that_another_process_left_is_begun_anew_though_its_memory_stayed() {
    let index = index(1 << 20);
    let mut next = 0;
    let mut grow_to = move |index: &Index, count| {
        while index.count() < count {
            index.lock(word(next).fingerprint()).insert(word(next)).expect("room");
            index.grow(|_| ());
            next += 1;
        }
    };
    grow_to(&index, 128);
    index.mend(|_| true);
    // The other process died when it had the lock of the bucket behind the last, with words in it.
    let behind = index.take_behind().expect("a bucket");
    index.buckets.get(128)[1].store(word(1 << 20).get(), Ordering::Relaxed);
    index.buckets.get(128)[0].store(u64::from(behind), Ordering::Relaxed);
    index.more.get(behind as usize)[7].store(word(1 << 21).get(), Ordering::Relaxed);
    std::mem::forget(index.lock_number(128));
    let (tell, grown) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        grow_to(&index, 200);
        tell.send(index).expect("it is waited for");
    });
    let grown = grown.recv_timeout(std::time::Duration::from_secs(60));
    let index = grown.expect("it waits for the lock of a process that is not there");
    let all = walk(&index, |_| ());
    assert_eq!(all.len() as u64, index.keys());
    assert!(all.iter().all(|there| !there.is(word(1 << 20)) && !there.is(word(1 << 21))));
}

#[test]
fn a_full_bucket_has_others_behind_it() {
    let index = index(0);
    let same = |n: u32| Word::head(Fingerprint(9), Handle::from_raw(n), false);
    let mut inserted = 0;
    for n in 1.. {
        if index.lock(Fingerprint(9)).insert(same(n)).is_err() {
            break;
        }
        inserted = n;
    }
    assert_eq!(inserted as usize, SLOTS * (1 + FIRST as usize));
    for n in 1..=inserted {
        assert!(index.find(Fingerprint(9), |word| word.is(same(n))).is_some());
    }
}

#[test]
fn a_find_marks_and_the_hand_takes_the_mark() {
    let index = index(0);
    index.lock(word(1).fingerprint()).insert(word(1)).expect("room");
    let number = number_of(word(1).fingerprint(), index.count());
    let unread = || {
        let mut seen = 0;
        index.visit(number, |_| true, |_| seen += 1);
        seen
    };
    assert_eq!(unread(), 1);
    index.find(word(1).fingerprint(), |_| true);
    assert_eq!((unread(), unread()), (0, 1));
}
