//! Tests with one thread, and a map with the right answers.

use std::collections::BTreeMap;
use std::ops::Range;

use testkit::Rng;
use units::Cpu;
use zswap::{Index, Word};

use super::{Make, Numbers, edges, word};

const CPU: Cpu = Cpu(0);
/// The most bytes that an index may take for an entry when the entries are dense.
const BYTES_OF_DENSE: u64 = 64;

/// An index, and a map that gets the same changes.
struct Pair<'a> {
    index: &'a dyn Index,
    model: BTreeMap<u64, Word>,
    /// The calls so far, for the failure message.
    done: Vec<String>,
    seed: u64,
}

impl Pair<'_> {
    fn new(index: &dyn Index, seed: u64) -> Pair<'_> {
        Pair { index, model: BTreeMap::new(), done: Vec::new(), seed }
    }

    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: String, is: T, should: T) {
        self.done.push(what);
        let last = self.done.len().saturating_sub(12);
        assert!(
            is == should,
            "it gave {is:?} instead of {should:?}; the last calls were\n  {}\ndrawn from {:#x}",
            self.done[last..].join("\n  "),
            self.seed
        );
    }

    fn insert(&mut self, offset: u64, word: Word) -> Option<Word> {
        let old = self.index.insert(CPU, offset, word).expect("there is memory for all entries");
        let should = self.model.insert(offset, word);
        self.same(format!("insert({offset}, {word:?})"), old, should);
        old
    }

    fn get(&mut self, offset: u64) {
        let (is, should) = (self.index.get(CPU, offset), self.model.get(&offset).copied());
        self.same(format!("get({offset})"), is, should);
    }

    fn remove(&mut self, offset: u64) -> Option<Word> {
        let old = self.index.remove(CPU, offset);
        let should = self.model.remove(&offset);
        self.same(format!("remove({offset})"), old, should);
        old
    }

    fn remove_if(&mut self, offset: u64, word: Word) -> bool {
        let removed = self.index.remove_if(CPU, offset, word);
        let should = self.model.get(&offset) == Some(&word);
        if should {
            self.model.remove(&offset);
        }
        self.same(format!("remove_if({offset}, {word:?})"), removed, should);
        removed
    }

    fn drain(&mut self, offsets: Range<u64>) -> Vec<Word> {
        let mut drained = Vec::new();
        self.index.drain(CPU, offsets.clone(), &mut |offset, word| drained.push((offset, word)));
        let should: Vec<_> = self.model.range(offsets.clone()).map(|(o, w)| (*o, *w)).collect();
        self.model.retain(|offset, _| !offsets.contains(offset));
        let words = should.iter().map(|(_, word)| *word).collect();
        self.same(format!("drain({offsets:?})"), drained, should);
        words
    }

    fn check(&mut self) {
        self.index.validate();
        self.same("count()".into(), self.index.count(), self.model.len() as u64);
        if self.model.is_empty() {
            self.same("bytes() of nothing".into(), self.index.bytes(), 0);
        }
    }

    /// Compares index and map at every offset.
    fn compare(&mut self, offsets: &[u64]) {
        self.check();
        offsets.iter().for_each(|offset| self.get(*offset));
    }
}

/// Compares an index with a map after random calls, on areas of several sizes.
///
/// # Panics
/// When index and map differ.
pub fn against_model(seed: u64, make: Make<'_>) {
    let mut rng = Rng::new(seed);
    for (pages, entries, calls) in
        [(1, 1, 200), (70, 50, 4000), (40_000, 300, 6000), (1 << 32, 2000, 12_000)]
    {
        let index = make(pages, entries);
        random(&*index, pages, entries, calls, rng.fork(), seed);
    }
}

fn random(index: &dyn Index, pages: u64, entries: u32, calls: usize, mut rng: Rng, seed: u64) {
    let mut pair = Pair::new(index, seed);
    let numbers = Numbers::new(entries);
    let edges = edges(pages);
    let mut recent = vec![0u64];
    for call in 0..calls {
        // Some offsets are near the edges, some near other entries, some anywhere.
        let offset = match rng.below(4) {
            0 => *rng.pick(&edges),
            1 | 2 => rng.pick(&recent).saturating_add(rng.below(9)).saturating_sub(4),
            _ => rng.below(pages),
        };
        let offset = offset.min(pages - 1);
        // The index grows and shrinks by turns.
        let growing = (call / 500).is_multiple_of(2);
        match rng.below(16) {
            0..7 if growing || rng.one_in(3) => {
                if let Some(word) = numbers.take() {
                    pair.insert(offset, word).into_iter().for_each(|old| numbers.give(old));
                    recent.push(offset);
                }
            }
            7..10 => pair.get(offset),
            10..12 => pair.remove(offset).into_iter().for_each(|word| numbers.give(word)),
            12..15 => {
                let Some((&offset, &there)) = pair.model.range(offset..).next() else { continue };
                let other = word(there.number(), (there.get() >> 32) as u32 + 1);
                pair.remove_if(offset, other);
                pair.get(offset);
                if !growing && pair.remove_if(offset, there) {
                    numbers.give(there);
                }
            }
            15 if rng.one_in(8) => {
                let end = offset.saturating_add(1 + rng.below(200)).min(pages);
                pair.drain(offset..end).into_iter().for_each(|word| numbers.give(word));
            }
            _ => {}
        }
        if call.is_multiple_of(64) {
            pair.check();
        }
    }
    let known: Vec<u64> = pair.model.keys().copied().chain(edges).collect();
    pair.compare(&known);
    assert_eq!(numbers.with_index(), pair.model.len() as u64);
    pair.drain(0..pages);
    pair.compare(&known);
}

/// Tests every order of insertion and every order of removal of a few entries, and every short
/// sequence of calls on two offsets.
///
/// # Panics
/// When index and map differ.
pub fn small_scenarios(make: Make<'_>) {
    // The offsets are neighbours, in the next node, in the next part, and far away.
    let offsets = [3, 4, 63, 64, 16_384, 1 << 20];
    orders(make, &offsets[..5]);
    longer_orders(make);
    sequences(make, 63, 64);
    sequences(make, 16_383, 16_384);
}

fn orders(make: Make<'_>, offsets: &[u64]) {
    let index = make(1 << 21, 8);
    let mut pair = Pair::new(&*index, 0);
    permutations(offsets, &mut |coming| {
        permutations(offsets, &mut |going| {
            pair.done.clear();
            for (n, offset) in (1..).zip(coming) {
                pair.insert(*offset, word(n, 1));
                pair.check();
            }
            coming.iter().for_each(|offset| pair.get(*offset));
            for offset in going {
                pair.remove(*offset);
                pair.check();
            }
        });
    });
}

/// Tests more entries, in every order of insertion and three orders of removal.
fn longer_orders(make: Make<'_>) {
    let index = make(1 << 21, 8);
    let mut pair = Pair::new(&*index, 0);
    let offsets: Vec<u64> = (0..7).collect();
    let goings = [[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [3, 2, 4, 1, 5, 0, 6]];
    permutations(&offsets, &mut |coming| {
        for going in &goings {
            pair.done.clear();
            for (n, offset) in (1..).zip(coming) {
                pair.insert(*offset, word(n, 1));
            }
            pair.check();
            for offset in going {
                pair.remove(*offset);
                pair.check();
            }
        }
    });
}

/// Calls `visit` with every order of `items`.
fn permutations(items: &[u64], visit: &mut dyn FnMut(&[u64])) {
    fn rest(items: &mut [u64], done: usize, visit: &mut dyn FnMut(&[u64])) {
        if done == items.len() {
            return visit(items);
        }
        for n in done..items.len() {
            items.swap(done, n);
            rest(items, done + 1, visit);
            items.swap(done, n);
        }
    }
    rest(&mut items.to_vec(), 0, visit);
}

/// Every sequence of five calls, each on one of two offsets.
fn sequences(make: Make<'_>, first: u64, second: u64) {
    const CALLS: u32 = 5;
    const KINDS: u32 = 8;
    let index = make(1 << 21, CALLS);
    let mut pair = Pair::new(&*index, 0);
    for sequence in 0..KINDS.pow(CALLS) {
        pair.done.clear();
        let mut rest = sequence;
        for number in 1..=CALLS {
            let kind = rest % KINDS;
            rest /= KINDS;
            let offset = if kind.is_multiple_of(2) { first } else { second };
            let there = pair.model.get(&offset).copied();
            match (kind / 2, there) {
                (0, _) => drop(pair.insert(offset, word(number, 7))),
                (1, _) => drop(pair.remove(offset)),
                (2, Some(there)) => drop(pair.remove_if(offset, there)),
                (2, None) => drop(pair.remove_if(offset, word(number, 7))),
                (_, Some(there)) => drop(pair.remove_if(offset, word(there.number(), 6))),
                (_, None) => pair.get(offset),
            }
        }
        pair.compare(&[first, second]);
        pair.drain(0..second + 1);
    }
}

/// Tests an area of 16 TiB. An empty area takes almost no memory. Lookups find entries in all
/// places, and a drain returns them in order. The memory of dense entries is in proportion to their
/// number.
///
/// # Panics
/// When one of these does not hold.
pub fn vast(make: Make<'_>) {
    let pages = 1 << 32;
    let index = make(pages, 50_000);
    assert_eq!(index.bytes(), 0, "an empty index has nodes");
    let mut pair = Pair::new(&*index, 0);
    let offsets: Vec<u64> = (0..2000).map(|n| n * (pages / 2000) + n).collect();
    for (n, offset) in (1..).zip(&offsets) {
        pair.insert(*offset, word(n, 1));
    }
    pair.compare(&offsets);
    pair.drain(0..pages / 2);
    pair.drain(0..pages);
    pair.check();
    for (n, offset) in (1..=50_000).zip(pages / 3..) {
        index.insert(CPU, offset, word(n, 2)).expect("there is memory for all entries");
    }
    index.validate();
    let bytes = index.bytes();
    assert!(bytes <= 50_000 * BYTES_OF_DENSE, "{bytes} bytes for 50000 neighbours");
    let mut next = 1;
    index.drain(CPU, 0..pages, &mut |_, word| {
        assert_eq!(word.number(), next, "drained in another order");
        next += 1;
    });
    pair.check();
}
