//! Short histories of concurrent calls, and the search for an order that explains them.
//!
//! A call takes effect at one instant between its beginning and its end (Herlihy and Wing,
//! "Linearizability", 1990). Offsets are independent, so the search takes each alone: an offset is
//! a cell with one word or none.

use std::ops::Range;
use std::thread;

use sync::Mutex;
use sync::atomic::{AtomicU64, Ordering};
use testkit::Rng;
use units::Cpu;
use zswap::{Index, Word};

use super::{Make, word};
use crate::suite::together;

const ROUNDS: usize = 400;
const THREADS: u32 = 3;
const CALLS: u32 = 3;
/// Two offsets of one node, and two that are alone in their nodes.
const OFFSETS: [u64; 4] = [5, 6, 70, 20_000];

/// A call of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// [`Index::get`].
    Get,
    /// [`Index::insert`].
    Insert(Word),
    /// [`Index::remove`], or [`Index::drain`] that met the offset.
    Remove,
    /// [`Index::remove_if`].
    RemoveIf(Word),
}

/// A call and its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The times of its beginning and its end.
    pub time: (u64, u64),
    /// The offset.
    pub offset: u64,
    /// The call.
    pub call: Call,
    /// The word that the call returned, if any. For [`Call::RemoveIf`]: the word, if it was
    /// removed.
    pub got: Option<Word>,
}

/// All calls of an index, with their times.
pub struct History {
    clock: AtomicU64,
    outcomes: Mutex<Vec<Outcome>>,
}

impl Default for History {
    fn default() -> History {
        History { clock: AtomicU64::new(0), outcomes: Mutex::new(Vec::new()) }
    }
}

impl History {
    /// Calls the index and records the result.
    ///
    /// # Panics
    /// If memory is out.
    pub fn call(&self, index: &dyn Index, cpu: Cpu, offset: u64, call: Call) {
        // Read-modify-writes of one word have a total order, and the calls between them follow it.
        let began = self.clock.fetch_add(1, Ordering::AcqRel); // pairs with the other one
        let got = match call {
            Call::Get => index.get(cpu, offset),
            Call::Insert(word) => index.insert(cpu, offset, word).expect("there is memory"),
            Call::Remove => index.remove(cpu, offset),
            Call::RemoveIf(word) => index.remove_if(cpu, offset, word).then_some(word),
        };
        let ended = self.clock.fetch_add(1, Ordering::AcqRel); // pairs with the other one
        let outcome = Outcome { time: (began, ended), offset, call, got };
        self.outcomes.lock().push(outcome);
    }

    /// Drains the index and records the result for each of `offsets`: its word came out, or it had
    /// no word at some moment of the drain.
    pub fn drain(&self, index: &dyn Index, cpu: Cpu, range: Range<u64>, offsets: &[u64]) {
        let mut drained = Vec::new();
        let began = self.clock.fetch_add(1, Ordering::AcqRel); // pairs with the other one
        index.drain(cpu, range.clone(), &mut |offset, word| drained.push((offset, word)));
        let ended = self.clock.fetch_add(1, Ordering::AcqRel); // pairs with the other one
        let mut outcomes = self.outcomes.lock();
        for &offset in offsets.iter().filter(|offset| range.contains(offset)) {
            let got = drained.iter().find(|(at, _)| *at == offset).map(|(_, word)| *word);
            let call = if got.is_some() { Call::Remove } else { Call::Get };
            outcomes.push(Outcome { time: (began, ended), offset, call, got });
        }
    }

    /// Looks for an order that explains the history. The index was empty at its start.
    ///
    /// # Panics
    /// If no order explains it.
    pub fn explain(&self) {
        let mut outcomes = self.outcomes.lock().clone();
        outcomes.sort_by_key(|outcome| (outcome.offset, outcome.time.0));
        for of_offset in outcomes.chunk_by(|one, other| one.offset == other.offset) {
            let mut left = of_offset.to_vec();
            assert!(explained(&mut left, None), "no order of calls explains this:\n{of_offset:#?}");
        }
    }
}

/// Whether some order of the calls in `left` is possible after `state`.
fn explained(left: &mut Vec<Outcome>, state: Option<Word>) -> bool {
    let Some(first_end) = left.iter().map(|outcome| outcome.time.1).min() else { return true };
    for n in 0..left.len() {
        let next = left[n];
        // A call may be the first if no other call had ended when it began.
        if next.time.0 > first_end {
            continue;
        }
        let (gives, then) = match next.call {
            Call::Get => (state, state),
            Call::Insert(word) => (state, Some(word)),
            Call::Remove => (state, None),
            Call::RemoveIf(word) if state == Some(word) => (state, None),
            Call::RemoveIf(_) => (None, state),
        };
        if gives != next.got {
            continue;
        }
        left.remove(n);
        if explained(left, then) {
            return true;
        }
        left.insert(n, next);
    }
    false
}

/// Runs many short histories of a few threads.
///
/// # Panics
/// When no order of the calls explains one.
pub fn histories(seed: u64, make: Make<'_>) {
    let mut rng = Rng::new(seed);
    let entries = THREADS * CALLS;
    let index = make(1 << 15, entries);
    for round in 0..ROUNDS {
        let history = History::default();
        let tasks = (0..THREADS).map(|n| {
            let (index, history, mut rng) = (&*index, &history, rng.fork());
            Box::new(move || act(index, history, n, round as u32, &mut rng))
                as Box<dyn FnOnce() + Send + '_>
        });
        together(tasks.collect(), &thread::yield_now);
        for offset in OFFSETS {
            history.call(&*index, Cpu(0), offset, Call::Remove);
        }
        history.explain();
        index.validate();
    }
}

/// The calls of thread `n`.
fn act(index: &dyn Index, history: &History, n: u32, life: u32, rng: &mut Rng) {
    for call in 1..=CALLS {
        let cpu = Cpu(n);
        let number = n * CALLS + call;
        let other = 1 + rng.below(u64::from(THREADS * CALLS)) as u32;
        let offset = OFFSETS[rng.below(if life.is_multiple_of(2) { 2 } else { 4 }) as usize];
        let call = match rng.below(7) {
            0..3 => Call::Insert(word(number, life)),
            3..5 => Call::Get,
            5 => Call::Remove,
            _ => Call::RemoveIf(word(other, life)),
        };
        history.call(index, cpu, offset, call);
        if rng.one_in(6) {
            history.drain(index, cpu, 0..offset + 1, &OFFSETS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(time: (u64, u64), call: Call, got: Option<Word>) -> Outcome {
        Outcome { time, offset: 0, call, got }
    }

    #[test]
    fn tells_what_can_be_explained() {
        let (a, b) = (word(1, 1), word(2, 1));
        let put = |time, word, got| outcome(time, Call::Insert(word), got);
        let good = [
            vec![put((0, 3), a, None), outcome((1, 2), Call::Get, None)],
            vec![put((0, 3), a, None), outcome((1, 2), Call::Get, Some(a))],
            vec![put((0, 3), a, Some(b)), put((1, 2), b, None)],
            vec![put((0, 1), a, None), outcome((2, 3), Call::RemoveIf(b), None)],
        ];
        let bad = [
            vec![put((0, 1), a, None), outcome((2, 3), Call::Get, None)],
            vec![put((0, 3), a, None), put((1, 2), b, None)],
            vec![
                put((0, 1), a, None),
                outcome((2, 5), Call::Remove, Some(a)),
                outcome((3, 4), Call::Remove, Some(a)),
            ],
            vec![put((0, 1), a, None), outcome((2, 3), Call::RemoveIf(a), None)],
        ];
        good.into_iter().for_each(|mut history| assert!(explained(&mut history, None)));
        bad.into_iter().for_each(|mut history| assert!(!explained(&mut history, None)));
    }
}
