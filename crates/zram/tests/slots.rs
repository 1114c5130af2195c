//! The product's slot table passes the suite of slot schemes, and broken schemes do not.

#[path = "common/broken.rs"]
mod broken;
#[path = "common/slot_suite.rs"]
mod slot_suite;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use broken::{FreesAtOnce, HoldsNothing, LosesUpdates};
use slot_suite::{conforming, conforms};
use testkit::Rng;
use units::Cpu;
use zram::slots::{BitLock, Lines, SlotTable};
use zram::{Part, Slot};

conforming! {
    bit_lock_conforms: BitLock, 8;
    lines_conform: Lines, 11;
}

/// What neighbours of a clone are like: parts whose entries mostly follow one another, the same
/// patterns, holes, and slots that belong to nothing.
fn neighbour(rng: &mut Rng, index: usize) -> Slot {
    let shared = |entry, huge| Slot::shared(Part { entry, part: 0, packed: false, huge });
    match rng.below(40) {
        0 => Slot::EMPTY,
        1 => shared(rng.below(1 << 32) as u32 | 1, true),
        2 => shared(u32::MAX - rng.below(8) as u32, false),
        3 => Slot::shared(Part { entry: 7 + index as u32, part: 2, packed: true, huge: false }),
        4 => Slot::same_filled(index as u64 / 8 * ((1 << 32) + 1)).unwrap().claimed(),
        5 => Slot::LOST,
        6 => shared(7 + index as u32, false).with_idle(true),
        7..12 => Slot::same_filled(0).unwrap(),
        _ => shared(7 + index as u32, false),
    }
}

/// Lines against a model: in the order in which a clone is made and given up, and in any other.
#[test]
fn lines_are_as_their_slots() {
    const SLOTS: usize = 4096;
    let mut rng = Rng::new(testkit::seed("lines"));
    for round in 0..30 {
        let table = Lines::new(&host::Mmap, SLOTS, 1).unwrap();
        let mut model = [Slot::EMPTY; SLOTS];
        let set = |model: &mut [Slot; SLOTS], index: usize, new: Slot| {
            assert_eq!(table.update(index, |_| Some(new)), Ok(model[index]), "slot {index}");
            model[index] = new;
            let line = index / 8 * 8;
            for (near, slot) in model.iter().enumerate().skip(line).take(8) {
                assert_eq!(table.peek(near), *slot, "slot {near} after {index}");
                assert_eq!(table.load(Cpu(0), near, |now| now), *slot);
                assert_eq!(table.update(near, |_| None), Err(*slot));
            }
        };
        if round % 3 > 0 {
            for index in 0..SLOTS {
                let new = Slot::shared(Part { entry: 7 + index as u32, ..WHOLE });
                set(
                    &mut model,
                    index,
                    if round % 3 == 1 { new } else { neighbour(&mut rng, index) },
                );
            }
        }
        if round % 3 == 1 {
            assert_eq!(table.split_bytes(), 0, "runs take no words of their own");
        }
        for _ in 0..round * 40 {
            let index = rng.below(SLOTS as u64) as usize;
            set(&mut model, index, neighbour(&mut rng, index));
        }
        let split = table.split_bytes();
        (0..SLOTS).rev().for_each(|index| set(&mut model, index, Slot::EMPTY));
        assert_eq!(table.split_bytes(), split, "to give slots up takes no memory");
    }
}

const WHOLE: Part = Part { entry: 0, part: 0, packed: false, huge: false };

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

#[test]
fn a_panic_while_a_slot_is_locked_leaves_it_unlocked_and_as_it_was() {
    let table = Arc::new(BitLock::new(&host::Mmap, 64, 1).unwrap());
    let (first, second) = (Slot::same_filled(0).unwrap(), Slot::same_filled(1 << 32 | 1).unwrap());
    for index in [5, 6] {
        table.update(index, |_| Some(first)).unwrap();
    }
    let fails = || -> Slot { panic!("this is part of the test") };
    let failed = [
        catch_unwind(AssertUnwindSafe(|| table.load(Cpu(0), 5, |_| fails()))).is_err(),
        catch_unwind(AssertUnwindSafe(|| table.update(6, |_| Some(fails())))).is_err(),
    ];
    assert_eq!(failed, [true; 2]);
    for index in [5, 6] {
        let (done, results) = mpsc::channel();
        let others = table.clone();
        thread::spawn(move || {
            let seen = others.load(Cpu(0), index, |slot| slot);
            done.send((seen, others.update(index, |_| Some(second)))).unwrap();
        });
        let (seen, displaced) =
            results.recv_timeout(Duration::from_secs(10)).expect("the slot is still locked");
        assert_eq!((seen, displaced), (first, Ok(first)));
        assert_eq!(table.peek(index), second);
    }
}
