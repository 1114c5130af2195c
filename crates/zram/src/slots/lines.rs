//! The slots of clones: one word for eight neighbours, while that says all of them.
//!
//! A clone begins with slots that name what its origin has, and neighbours there mostly have
//! shared objects whose entries follow one another, or the same fill pattern. A *line* is eight
//! slots. Its *head* is a word:
//!
//! | head | the slots |
//! |---|---|
//! | 0 | all are empty |
//! | a slot, and n in bits 59–61 | a *run*: that slot, n that follow it, and empty ones |
//! | of kind 0, with bit 58 and n | a *pair*, of this number: a run, but for slot n |
//! | of kind 0, not 0 | they have a word each, in the place of this number, less one |
//!
//! A slot follows another if it names the entry behind that of the other, or the same pattern.
//!
//! # Invariants
//! * A line gets a pair once, and words of its own once, and keeps them. With words of its own its
//!   head does not change any more.
//! * Until then the lock of the head is that of all eight slots, afterwards each has its own.
//! * The run of a pair does not end with the slot that is another.
//!
//! # Why unsafe
//! The engine frees the objects that a slot table gives back.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::{LOCKED, WAITED, WaitQueues};
use units::Cpu;

use super::{SlotTable, Touched};
use crate::engine::{Kind, Part, SLOT_BITS, Slot};

/// Slots of a line.
pub(crate) const LINE: usize = 8;
/// Where the head of a run says how many slots follow the first one.
const MORE_SHIFT: u32 = 59;
const MORE: u64 = 7 << MORE_SHIFT;
const _: () = assert!(MORE >> MORE_SHIFT == LINE as u64 - 1 && MORE >> SLOT_BITS == 0);

/// In a head of kind 0: a pair.
const PAIR: u64 = 1 << 58;
const NUMBER: u64 = (1 << 50) - 1;

/// The table: a byte a page, two more for each page of a line with one slot that is another, and
/// then eight for each page of a line with more of them.
pub struct Lines {
    heads: LazyTable<AtomicU64>,
    pairs: LazyTable<[AtomicU64; 2]>,
    own: LazyTable<[AtomicU64; LINE]>,
    /// The pairs that lines have.
    paired: AtomicUsize,
    /// The lines that have words of their own.
    split: AtomicUsize,
    touched: Touched,
    queues: WaitQueues,
}

/// What a head says.
enum Line {
    Run(u64),
    Pair { number: usize, other: usize },
    Own(usize),
}

/// A locked slot, or all slots of a line without words of its own. A drop unlocks, also when a
/// closure panics: nothing is changed then.
struct Locked<'a> {
    table: &'a Lines,
    word: &'a AtomicU64,
    key: usize,
    is_own: bool,
    /// What the word becomes when it is unlocked; at first what it is.
    next: u64,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.table.queues.unlock(self.word, self.key, self.next);
    }
}

impl Locked<'_> {
    fn slot(&self, index: usize) -> Slot {
        match self.is_own {
            true => Slot::from_word(self.next),
            false => self.table.slot_in(self.next, index % LINE),
        }
    }

    fn put(&mut self, index: usize, new: Slot) {
        self.next = match self.is_own {
            true => new.word(),
            false => self.table.with(self.next, index % LINE, new),
        };
    }
}

fn line_of(head: u64) -> Line {
    let number = (head & NUMBER) as usize;
    match head == 0 || Slot::from_word(head & !MORE).kind() != Kind::Empty {
        true => Line::Run(head),
        false if head & PAIR != 0 => Line::Pair { number, other: more(head) },
        false => Line::Own(number - 1),
    }
}

/// The place of a head, if its line has words of its own.
fn place_of(head: u64) -> Option<usize> {
    match line_of(head) {
        Line::Own(place) => Some(place),
        _ => None,
    }
}

fn more(head: u64) -> usize {
    (head >> MORE_SHIFT & 7) as usize
}

/// A run of so many slots, of which this is the first.
fn run(first: Slot, length: usize) -> u64 {
    if length == 0 { 0 } else { first.word() | (length as u64 - 1) << MORE_SHIFT }
}

/// A run without the slot `other`, if it ends with that.
fn without(head: u64, other: usize) -> u64 {
    match head != 0 && more(head) == other {
        true => run(Slot::from_word(head & !MORE), other),
        false => head,
    }
}

/// A slot of a run, or of an empty line.
fn slot_of(head: u64, at: usize) -> Slot {
    let first = Slot::from_word(head & !MORE);
    match head == 0 || at > more(head) {
        true => Slot::EMPTY,
        false => follower(first, at).unwrap_or(first),
    }
}

/// The slot that is `at` behind the first one of a run; `None` if the first one begins no run.
fn follower(first: Slot, at: usize) -> Option<Slot> {
    match first.kind() {
        Kind::SameFilled(_) => Some(first),
        Kind::Shared(Part { entry, packed: false, .. }) => {
            // The entry is in the lowest bits.
            entry.checked_add(at as u32).map(|_| Slot::from_word(first.word() + at as u64))
        }
        _ => None,
    }
}

/// The head of a run, or of an empty line, after a slot of it has become `new`; `None` if it is no
/// run then.
fn with_slot(head: u64, at: usize, new: Slot) -> Option<u64> {
    let first = Slot::from_word(head & !MORE);
    let length = if head == 0 { 0 } else { more(head) + 1 };
    match new {
        _ if slot_of(head, at) == new => Some(head),
        Slot::EMPTY if at + 1 == length => Some(run(first, at)),
        _ if at == length && at == 0 => follower(new, 0).map(|new| run(new, 1)),
        _ if at == length && follower(first, at) == Some(new) => Some(run(first, at + 1)),
        _ => None,
    }
}

impl Lines {
    /// Bytes of the lines that are no runs, beside their heads.
    #[must_use]
    pub fn split_bytes(&self) -> usize {
        let count = |lines: &AtomicUsize| lines.load(Ordering::Relaxed);
        count(&self.paired) * 16 + count(&self.split) * LINE * 8
    }

    /// A slot of a line, as it was a moment ago; called under the lock of the head, as it is.
    fn slot_in(&self, head: u64, at: usize) -> Slot {
        match line_of(head) {
            Line::Run(head) => slot_of(head, at),
            Line::Pair { number, other } => {
                let [run, slot] = self.pairs.get(number);
                match at == other {
                    true => Slot::from_word(slot.load(Ordering::Relaxed)),
                    false => slot_of(run.load(Ordering::Relaxed), at),
                }
            }
            Line::Own(place) => {
                let word = self.own.get(place)[at].load(Ordering::Relaxed);
                Slot::from_word(word & !(LOCKED | WAITED))
            }
        }
    }

    /// Makes `new` a slot of a line without words of its own. Called under the lock of its head.
    /// Returns the new head.
    fn with(&self, head: u64, at: usize, new: Slot) -> u64 {
        match line_of(head) {
            Line::Pair { number, other } => {
                let [run, slot] = self.pairs.get(number);
                if at == other {
                    slot.store(new.word(), Ordering::Relaxed);
                    return head;
                }
                if let Some(now) = with_slot(run.load(Ordering::Relaxed), at, new) {
                    run.store(without(now, other), Ordering::Relaxed);
                    return head;
                }
            }
            _ => {
                if let Some(head) = with_slot(head, at, new) {
                    return head;
                }
                // What was empty will have other slots, too.
                if head != 0 {
                    // Each line gets a pair once, so there is room.
                    let number = self.paired.fetch_add(1, Ordering::Relaxed);
                    let [run, slot] = self.pairs.get(number);
                    run.store(without(head, at), Ordering::Relaxed);
                    slot.store(new.word(), Ordering::Relaxed);
                    return PAIR | (at as u64) << MORE_SHIFT | number as u64;
                }
            }
        }
        // Each line is split once, so there is room.
        let place = self.split.fetch_add(1, Ordering::Relaxed);
        for (number, word) in self.own.get(place).iter().enumerate() {
            let slot = if number == at { new } else { self.slot_in(head, number) };
            word.store(slot.word(), Ordering::Relaxed);
        }
        place as u64 + 1
    }

    fn lock(&self, index: usize) -> Locked<'_> {
        let (head, key) = (self.heads.get(index / LINE), index / LINE);
        // Acquire pairs with the Release in `WaitQueues::unlock`: the words have been written.
        let seen = head.load(Ordering::Acquire) & !(LOCKED | WAITED);
        let place = match place_of(seen) {
            Some(place) => place,
            None => {
                let next = self.queues.lock(head, key);
                let Some(place) = place_of(next) else {
                    return Locked { table: self, word: head, key, is_own: false, next };
                };
                self.queues.unlock(head, key, next);
                place
            }
        };
        let word = &self.own.get(place)[index % LINE];
        let next = self.queues.lock(word, index);
        Locked { table: self, word, key: index, is_own: true, next }
    }
}

// SAFETY: a thread that swaps a word holds its lock, and that of a head is the lock of each slot it
// says; when it has none any more, nobody holds one of them. A reader holds the lock until it has
// read. A displaced slot is freed once, after that.
unsafe impl SlotTable for Lines {
    const NAME: &'static str = "lines";
    /// At most.
    const BYTES: usize = 11;

    fn new(provider: &dyn MemoryProvider, slots: usize, _cpus: usize) -> Result<Lines, NoMemory> {
        Ok(Lines {
            heads: LazyTable::new(provider, slots.div_ceil(LINE))?,
            pairs: LazyTable::new(provider, slots.div_ceil(LINE))?,
            own: LazyTable::new(provider, slots.div_ceil(LINE))?,
            paired: AtomicUsize::new(0),
            split: AtomicUsize::new(0),
            touched: Touched::new(provider, slots)?,
            queues: WaitQueues::default(),
        })
    }

    fn count(&self) -> usize {
        self.heads.len() * LINE
    }

    #[cold]
    #[inline(never)]
    fn load<R>(&self, _cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        if !self.touched.is_marked(index) {
            return read(Slot::EMPTY);
        }
        let locked = self.lock(index);
        read(locked.slot(index))
    }

    #[cold]
    #[inline(never)]
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        self.touched.mark(index);
        let mut locked = self.lock(index);
        let old = locked.slot(index);
        match next(old) {
            Some(new) => {
                locked.put(index, new);
                Ok(old)
            }
            None => Err(old),
        }
    }

    fn retire(&self, _cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        // A reader holds the lock while it reads, so no reader holds the displaced slot any more.
        free(displaced);
    }

    #[cold]
    fn peek(&self, index: usize) -> Slot {
        if !self.touched.is_marked(index) {
            return Slot::EMPTY;
        }
        // Acquire pairs with the Release in `WaitQueues::unlock`, as in `lock`.
        let head = self.heads.get(index / LINE).load(Ordering::Acquire) & !(LOCKED | WAITED);
        self.slot_in(head, index % LINE)
    }

    fn next_touched(&self, from: usize, end: usize) -> usize {
        self.touched.next(from, end.min(self.count()))
    }

    fn touched(&self, end: usize) -> u64 {
        self.touched.slots(end.min(self.count()))
    }

    fn prefetch(&self, index: usize) {
        sync::prefetch(self.heads.address_of(index / LINE));
    }
}
