//! One suite for every slot scheme: against a model, and threads tearing at a few slots whose
//! objects notice being read after they were freed. Two broken schemes show that it can fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use pagealloc::{NoMemory, World};
use testkit::Rng;
use zram::slots::{BitLock, SlotTable};
use zram::{Kind, Slot};
use zsmalloc::Handle;

/// Objects that only know whether they are live, and what was put into them.
struct Cells {
    live: Vec<AtomicBool>,
    stamp: Vec<AtomicU64>,
    next: AtomicU32,
    wrong: AtomicU32,
}

const CELLS: usize = 1 << 17;

impl Cells {
    fn new() -> Cells {
        Cells {
            live: (0..CELLS).map(|_| AtomicBool::new(false)).collect(),
            stamp: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU32::new(1),
            wrong: AtomicU32::new(0),
        }
    }

    fn make(&self, stamp: u64) -> Slot {
        let cell = self.next.fetch_add(1, SeqCst);
        self.stamp[cell as usize].store(stamp, SeqCst);
        self.live[cell as usize].store(true, SeqCst);
        Slot::compressed(Handle::from_raw(cell), 1 + (stamp % 4000) as usize, 0)
    }

    fn cell(slot: Slot) -> Option<usize> {
        match slot.kind() {
            Kind::Compressed { handle, .. } => Some(handle.get() as usize),
            _ => None,
        }
    }

    /// Reads an object twice, a moment apart: it must live all the time.
    fn read(&self, slot: Slot) -> Option<u64> {
        let cell = Cells::cell(slot)?;
        let before = self.live[cell].load(SeqCst);
        let stamp = self.stamp[cell].load(SeqCst);
        std::thread::yield_now();
        if !before || !self.live[cell].load(SeqCst) {
            self.wrong.fetch_add(1, SeqCst);
        }
        Some(stamp)
    }

    fn free(&self, slot: Slot) {
        let freed_twice = |cell: usize| !self.live[cell].swap(false, SeqCst);
        if Cells::cell(slot).is_some_and(freed_twice) {
            self.wrong.fetch_add(1, SeqCst);
        }
    }
}

/// What a scheme must do; the sentence says what it did not.
fn conforms<T: SlotTable>(seed: u64) -> Result<(), String> {
    matches_model::<T>(seed)?;
    survives_threads::<T>(seed)
}

fn matches_model<T: SlotTable>(seed: u64) -> Result<(), String> {
    let slots = 5000;
    let table = T::new(&host::Mmap, slots).map_err(|error| error.to_string())?;
    let mut model: BTreeMap<usize, Slot> = BTreeMap::new();
    let mut rng = Rng::new(seed);
    for step in 0..20_000u64 {
        let index = rng.below(slots as u64) as usize;
        let was = model.get(&index).copied().unwrap_or(Slot::EMPTY);
        match rng.below(4) {
            0 => {
                let seen = table.load(index, |slot| slot);
                check(seen == was, "load", step)?;
                check(table.peek(index) == was, "peek", step)?;
            }
            1 => {
                let declined = table.update(index, |_| None);
                check(declined == Err(was), "a declined update", step)?;
            }
            2 => {
                let new = Slot::filled(step << 32 | step).unwrap_or(Slot::EMPTY);
                check(table.update(index, |_| Some(new)) == Ok(was), "update", step)?;
                model.insert(index, new);
            }
            _ => {
                let claimed = table.update(index, |slot| Some(slot.claimed()));
                check(claimed == Ok(was), "a claim", step)?;
                model.insert(index, was.claimed());
            }
        }
    }
    let mut at = 0;
    for (index, slot) in &model {
        while table.next_touched(at, slots) < *index {
            at += 1;
        }
        check(*slot == table.peek(*index), "the table at the end", *index as u64)?;
        check(table.next_touched(*index, slots) == *index, "next_touched", *index as u64)?;
    }
    check(table.count() == slots, "count", 0)
}

fn survives_threads<T: SlotTable>(seed: u64) -> Result<(), String> {
    let table = T::new(&host::Mmap, 8).map_err(|error| error.to_string())?;
    let cells = Cells::new();
    let counts: [AtomicU64; 8] = Default::default();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (table, cells, counts) = (&table, &cells, &counts);
            scope.spawn(move || {
                let mut rng = Rng::new(seed + thread);
                for _ in 0..4_000 {
                    let index = rng.below(8) as usize;
                    if rng.below(2) == 0 {
                        let new = cells.make(rng.next_u64());
                        if let Ok(old) = table.update(index, |_| Some(new)) {
                            table.retire(old, |slot| cells.free(slot));
                            counts[index].fetch_add(1, SeqCst);
                        }
                    } else {
                        table.load(index, |slot| cells.read(slot));
                    }
                }
            });
        }
    });
    // Every object but the ones the slots name at the end was freed exactly once.
    for index in 0..8 {
        if let Ok(old) = table.update(index, |_| Some(Slot::EMPTY)) {
            table.retire(old, |slot| cells.free(slot));
        }
    }
    let left = cells.live.iter().filter(|live| live.load(SeqCst)).count();
    check(left == 0, "objects were lost", left as u64)?;
    let wrong = cells.wrong.load(SeqCst);
    check(wrong == 0, "objects were read or freed after they were freed", wrong.into())
}

fn check(right: bool, what: &str, number: u64) -> Result<(), String> {
    if right { Ok(()) } else { Err(format!("{what} ({number})")) }
}

#[test]
fn bit_lock_conforms() {
    conforms::<BitLock>(testkit::seed("bit_lock_conforms")).unwrap();
}

/// Swaps without a lock and frees at once: readers lose what they read.
struct FreesAtOnce(Box<[AtomicU64]>);

/// Reads the word and writes it back as two steps: displaced objects are lost or freed twice.
struct LosesUpdates(Box<[AtomicU64]>);

macro_rules! broken {
    ($name:ident, $swap:expr) => {
        impl SlotTable for $name {
            const NAME: &'static str = stringify!($name);
            const BYTES: usize = 8;

            fn new(_: &dyn World, slots: usize) -> Result<Self, NoMemory> {
                Ok(Self((0..slots).map(|_| AtomicU64::new(0)).collect()))
            }
            fn count(&self) -> usize {
                self.0.len()
            }
            fn load<R>(&self, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
                read(self.peek(index))
            }
            fn update(
                &self,
                index: usize,
                mut next: impl FnMut(Slot) -> Option<Slot>,
            ) -> Result<Slot, Slot> {
                let old = self.peek(index);
                match next(old) {
                    Some(new) => Ok($swap(&self.0[index], old, new)),
                    None => Err(old),
                }
            }
            fn retire(&self, displaced: Slot, mut free: impl FnMut(Slot)) {
                free(displaced);
            }
            fn peek(&self, index: usize) -> Slot {
                Slot::from_word(self.0[index].load(SeqCst))
            }
            fn next_touched(&self, from: usize, _: usize) -> usize {
                from
            }
            fn touched(&self, _: usize) -> u64 {
                0
            }
            fn prefetch(&self, _: usize) {}
        }
    };
}

broken!(FreesAtOnce, |word: &AtomicU64, _, new: Slot| {
    Slot::from_word(word.swap(new.word(), SeqCst))
});
broken!(LosesUpdates, |word: &AtomicU64, old, new: Slot| {
    std::thread::yield_now();
    word.store(new.word(), SeqCst);
    old
});

#[test]
fn schemes_that_free_at_once_are_rejected() {
    let rejected = (0..50).any(|seed| conforms::<FreesAtOnce>(seed).is_err());
    assert!(rejected, "the suite accepted a scheme that frees what is being read");
}

#[test]
fn schemes_that_lose_updates_are_rejected() {
    let rejected = (0..50).any(|seed| conforms::<LosesUpdates>(seed).is_err());
    assert!(rejected, "the suite accepted a scheme that loses updates");
}
