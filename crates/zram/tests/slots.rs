//! One suite for every slot scheme: against a model, and threads tearing at a few slots whose
//! objects notice being read after they were freed. Broken schemes show that it can fail.

#[path = "common/broken.rs"]
mod broken;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use broken::{EpochOfNone, EpochTooShort, FreesAtOnce, HoldsNothing, LosesUpdates};
use testkit::Rng;
use units::Cpu;
use zram::slots::{BitLock, Cas, Epoch, GlobalRwLock, RwLock, SlotTable, SpinLock};
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

/// Fewer than threads: some share one.
const CPUS: usize = 3;

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
                let mut rng = Rng::new(seed + thread);
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

conforming! {
    bit_lock_conforms: BitLock, 8;
    global_rw_lock_conforms: GlobalRwLock, 8;
    cas_conforms: Cas, 8;
    spin_lock_conforms: SpinLock, 16;
    rw_lock_conforms: RwLock, 16;
    epoch_conforms: Epoch, 8;
}

/// What waits to be freed can be had at any time, and no more waits than there is room for.
#[test]
fn displaced_objects_come_back_on_demand() {
    let table = Epoch::new(&host::Mmap, 8, CPUS).unwrap();
    let cells = Cells::new();
    let live = || cells.live.iter().filter(|live| live.load(SeqCst)).count();
    for n in 0..1000u32 {
        let new = cells.make(n.into());
        let old = table.update(n as usize % 8, |_| Some(new)).unwrap();
        table.retire(Cpu(n), old, |slot| cells.free(slot));
        assert!(live() <= 8 + CPUS * 128, "{} objects live after {n} stores", live());
    }
    assert!(live() > 8, "nothing ever waited");
    assert!(table.quiesce(|slot| cells.free(slot)));
    assert_eq!(live(), 8);
    assert_eq!(cells.wrong.load(SeqCst), 0);
}

/// A reader who stays keeps what it reads, and writers go on.
#[test]
fn a_reader_who_stays_stops_no_writer() {
    let table = Epoch::new(&host::Mmap, 8, CPUS).unwrap();
    let cells = Cells::new();
    let store = |cpu, stamp| {
        let new = cells.make(stamp);
        let old = table.update(0, |_| Some(new)).unwrap();
        table.retire(cpu, old, |slot| cells.free(slot));
    };
    store(Cpu(0), 1);
    let (ready, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            table.load(Cpu(1), 0, |slot| {
                ready.wait();
                go.wait();
                assert_eq!(cells.read(slot), Some(1));
            });
        });
        ready.wait();
        // Fewer than fill a bag.
        (2..60).for_each(|stamp| store(Cpu(0), stamp));
        go.wait();
    });
    assert!(table.quiesce(|slot| cells.free(slot)));
    assert_eq!(cells.wrong.load(SeqCst), 0, "the reader lost what it read");
}

#[test]
fn epochs_that_do_not_wait_are_rejected() {
    let rejected = (0..50).any(|seed| conforms::<EpochOfNone>(seed).is_err());
    assert!(rejected, "the suite accepted an epoch scheme that frees at once");
}

#[test]
fn epochs_that_end_too_early_are_rejected() {
    let rejected = (0..50).any(|seed| conforms::<EpochTooShort>(seed).is_err());
    assert!(rejected, "the suite accepted an epoch scheme that frees too early");
}

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

#[test]
fn schemes_whose_readers_hold_nothing_are_rejected() {
    let rejected = (0..50).any(|seed| conforms::<HoldsNothing>(seed).is_err());
    assert!(rejected, "the suite accepted a scheme whose readers hold nothing");
}
