use std::collections::BTreeMap;
use std::vec::Vec;

use zsmalloc::Handle;

use super::*;

fn index(keys: u64) -> Index {
    Index::new(&host::Mmap, keys).expect("address space")
}

fn word(key: u32) -> Word {
    Word::head(Fingerprint::of(hash(key)), Handle::from_raw(key + 1), false)
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
        index.words(number, |word| {
            assert_eq!(number_of(word.fingerprint(), index.count()), number);
            seen += 1;
        });
    }
    assert_eq!(seen, model.len());
    // What a chain does not need any more is not linked.
    let linked = (0..index.count()).map(|number| index.chain(number as usize).count() - 1);
    let linked: usize = linked.sum();
    assert_eq!(linked + left.len(), index.spare.lock().fresh as usize - 1);
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
