//! The suite of slot schemes (`crates/zram/tests/common/slot_suite.rs`) for those that the product
//! does not ship.
#![cfg(not(loom))]

#[path = "../../../crates/zram/tests/common/slot_suite.rs"]
mod slot_suite;

use std::sync::atomic::Ordering::SeqCst;

use designs::slots::{Cas, Epoch, GlobalRwLock, RwLock, SpinLock};
use slot_suite::{CPUS, Cells, conforming, conforms};
use units::Cpu;
use zram::slots::SlotTable;

conforming! {
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
        // Fewer than fill a queue.
        (2..60).for_each(|stamp| store(Cpu(0), stamp));
        go.wait();
    });
    assert!(table.quiesce(|slot| cells.free(slot)));
    assert_eq!(cells.wrong.load(SeqCst), 0, "the reader lost what it read");
}
