//! One suite for every slot scheme: against a model, and threads tearing at a few slots whose
//! objects notice being read after they were freed.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use testkit::Rng;
use units::Cpu;
use zram::slots::SlotTable;
use zram::{Kind, Object, Slot};
use zsmalloc::Handle;

/// Objects that only know whether they are live, and what was put into them.
pub struct Cells {
    pub live: Vec<AtomicBool>,
    stamp: Vec<AtomicU64>,
    next: AtomicU32,
    pub wrong: AtomicU32,
}

const CELLS: usize = 1 << 17;

/// Fewer than threads: some share one.
pub const CPUS: usize = 3;

impl Cells {
    pub fn new() -> Cells {
        Cells {
            live: (0..CELLS).map(|_| AtomicBool::new(false)).collect(),
            stamp: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU32::new(1),
            wrong: AtomicU32::new(0),
        }
    }

    pub fn make(&self, stamp: u64) -> Slot {
        let cell = self.next.fetch_add(1, SeqCst);
        self.stamp[cell as usize].store(stamp, SeqCst);
        self.live[cell as usize].store(true, SeqCst);
        Slot::stored(Object::Compressed {
            handle: Handle::from_raw(cell),
            length: 1 + (stamp % 4000) as usize,
            codec: 0,
        })
    }

    fn cell(slot: Slot) -> Option<usize> {
        match slot.kind() {
            Kind::Stored(object) => Some(object.handle().get() as usize),
            _ => None,
        }
    }

    /// Reads an object twice, a moment apart: it must live all the time.
    pub fn read(&self, slot: Slot) -> Option<u64> {
        let cell = Cells::cell(slot)?;
        let before = self.live[cell].load(SeqCst);
        let stamp = self.stamp[cell].load(SeqCst);
        std::thread::yield_now();
        if !before || !self.live[cell].load(SeqCst) {
            self.wrong.fetch_add(1, SeqCst);
        }
        Some(stamp)
    }

    pub fn free(&self, slot: Slot) {
        let freed_twice = |cell: usize| !self.live[cell].swap(false, SeqCst);
        if Cells::cell(slot).is_some_and(freed_twice) {
            self.wrong.fetch_add(1, SeqCst);
        }
    }
}

/// What a scheme must do; the sentence says what it did not.
pub fn conforms<T: SlotTable>(seed: u64) -> Result<(), String> {
    matches_model::<T>(seed)?;
    survives_threads::<T>(seed)
}

fn matches_model<T: SlotTable>(seed: u64) -> Result<(), String> {
    let slots = 5000;
    let table = T::new(&host::Mmap, slots, CPUS).map_err(|error| error.to_string())?;
    let mut model: BTreeMap<usize, Slot> = BTreeMap::new();
    let mut rng = Rng::new(seed);
    for step in 0..20_000u64 {
        let index = rng.below(slots as u64) as usize;
        let was = model.get(&index).copied().unwrap_or(Slot::EMPTY);
        match rng.below(4) {
            0 => {
                let seen = table.load(Cpu(0), index, |slot| slot);
                check(seen == was, "load", step)?;
                check(table.peek(index) == was, "peek", step)?;
            }
            1 => {
                let declined = table.update(index, |_| None);
                check(declined == Err(was), "a declined update", step)?;
            }
            2 => {
                let new = Slot::same_filled(step << 32 | step).unwrap_or(Slot::EMPTY);
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
    let table = T::new(&host::Mmap, 8, CPUS).map_err(|error| error.to_string())?;
    let cells = Cells::new();
    let counts: [AtomicU64; 8] = Default::default();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (table, cells, counts) = (&table, &cells, &counts);
            scope.spawn(move || {
                let mut rng = Rng::new(seed.wrapping_add(thread));
                let cpu = Cpu(thread as u32);
                for _ in 0..4_000 {
                    let index = rng.below(8) as usize;
                    if rng.below(2) == 0 {
                        let new = cells.make(rng.next_u64());
                        if let Ok(old) = table.update(index, |_| Some(new)) {
                            table.retire(cpu, old, |slot| cells.free(slot));
                            counts[index].fetch_add(1, SeqCst);
                        }
                    } else {
                        table.load(cpu, index, |slot| cells.read(slot));
                    }
                }
            });
        }
    });
    // Every object but the ones the slots name at the end was freed exactly once.
    for index in 0..8 {
        if let Ok(old) = table.update(index, |_| Some(Slot::EMPTY)) {
            table.retire(Cpu(1), old, |slot| cells.free(slot));
        }
    }
    table.quiesce(|slot| cells.free(slot));
    check(!table.quiesce(|slot| cells.free(slot)), "something waits after all was freed", 0)?;
    let left = cells.live.iter().filter(|live| live.load(SeqCst)).count();
    check(left == 0, "objects were lost", left as u64)?;
    let wrong = cells.wrong.load(SeqCst);
    check(wrong == 0, "objects were read or freed after they were freed", wrong.into())
}

fn check(right: bool, what: &str, number: u64) -> Result<(), String> {
    if right { Ok(()) } else { Err(format!("{what} ({number})")) }
}

/// A test for each scheme.
macro_rules! conforming {
    ($($test:ident: $scheme:ty, $bytes:literal;)*) => {
        $(
            #[test]
            fn $test() {
                conforms::<$scheme>(testkit::seed(stringify!($test))).unwrap();
                assert_eq!(<$scheme>::BYTES, $bytes);
            }
        )*
    };
}
pub(crate) use conforming;
