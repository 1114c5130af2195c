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
use units::Cpu;
use zram::Slot;
use zram::slots::{BitLock, SlotTable};

conforming! {
    bit_lock_conforms: BitLock, 8;
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
