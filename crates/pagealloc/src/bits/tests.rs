use std::collections::BTreeSet;
use std::vec::Vec;

use super::*;
use crate::pretended::HeapProvider;

#[test]
fn sets_are_sets() {
    let members = [0, 1, 63, 64, 65, 4096, 4097, 300_000];
    let mut bits = Bits::new(&HeapProvider::default(), members).unwrap();
    let mut models: [BTreeSet<usize>; 8] = Default::default();
    let mut numbers = testkit::Rng::new(1);
    for step in 0..20_000 {
        let tree = 1 + numbers.below(7) as usize;
        let member = numbers.below(members[tree] as u64) as usize;
        assert_eq!(bits.contains(tree, member), models[tree].contains(&member));
        if models[tree].remove(&member) {
            bits.remove(tree, member);
        } else {
            bits.insert(tree, member);
            models[tree].insert(member);
        }
        assert_eq!(bits.next(tree, 0), models[tree].first().copied());
        assert_eq!(bits.last(tree), models[tree].last().copied());
        let from = numbers.below(members[tree] as u64 + 2) as usize;
        assert_eq!(bits.next(tree, from), models[tree].range(from..).next().copied());
        if step % 1000 == 0 {
            for (tree, model) in models.iter().enumerate() {
                bits.validate(tree, tree);
                let mut members = Vec::new();
                while let Some(next) = bits.next(tree, members.last().map_or(0, |last| last + 1)) {
                    members.push(next);
                }
                assert!(members.iter().eq(model.iter()));
            }
        }
    }
    for (tree, model) in models.iter().enumerate() {
        for member in model.iter().copied().collect::<Vec<_>>() {
            bits.remove(tree, member);
        }
        assert_eq!((bits.next(tree, 0), bits.last(tree)), (None, None));
        bits.validate(tree, tree);
    }
}

#[test]
fn numbers_beyond_a_set_are_not_in_it() {
    let bits = Bits::new(&HeapProvider::default(), [64, 64]).unwrap();
    assert!(!bits.contains(0, 64) && !bits.contains(0, usize::MAX));
}

#[test]
#[should_panic(expected = "a set: word 3 of level 0 is 0x1, its summary disagrees")]
fn a_wrong_summary_is_found() {
    let mut bits = Bits::new(&HeapProvider::default(), [1000]).unwrap();
    bits.insert(0, 500);
    bits.set_word(3, 1);
    bits.validate(0, "a set");
}

#[test]
#[should_panic(expected = "beyond its 1000 members")]
fn bits_beyond_a_set_are_found() {
    let mut bits = Bits::new(&HeapProvider::default(), [1000]).unwrap();
    bits.insert(0, 1001);
    bits.validate(0, "a set");
}
