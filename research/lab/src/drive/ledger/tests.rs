use std::sync::Mutex;

use super::*;
use crate::drive::content::Content;
use crate::drive::modes::{Amount, Kind, RECORD, Workload};
use crate::drive::workers;
use crate::threads;

/// A device in plain memory.
struct Plain(Mutex<Vec<u8>>);

impl Target for Plain {
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        let mut bytes = self.0.lock().expect("the bytes");
        bytes[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let bytes = self.0.lock().expect("the bytes");
        into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
        Ok(())
    }
}

#[test]
fn every_workload_is_found_as_it_was_left_and_a_changed_page_is_noticed() {
    let cpus = threads::cpus(2).expect("CPUs");
    for kind in [Kind::Modes, Kind::Fio, Kind::Eight] {
        let amount = Amount { bytes: 20 * RECORD, loops: 2, operations: 50 };
        let workload = Workload { kind, amount };
        let source = Content::Half.prepare(workload.block(), 1000).expect("contents");
        let target = Plain(Mutex::new(vec![0; workload.device_bytes(2)]));
        let mut ledger = Ledger::new(workload.places(2), workload.shared());
        for mode in 0..workload.modes().len() {
            let parts = workload.parts(mode, 2, &source);
            let rate = workers::run(&parts, &cpus, &target, &source).expect("a rate");
            assert!(rate.wall > 0.0 && rate.cpu > 0.0, "{kind:?} {mode}");
            ledger.note(&parts);
            ledger.verify(&target, &source).unwrap_or_else(|e| panic!("{kind:?} {mode}: {e}"));
        }
        target.0.lock().expect("the bytes")[4096 * 3 + 77] ^= 1;
        let error = ledger.verify(&target, &source).expect_err("a changed byte").to_string();
        assert!(error.contains("page 3 "), "{error}");
    }
}

#[test]
fn another_block_of_the_contents_is_no_answer() {
    let workload = Workload {
        kind: Kind::Modes,
        amount: Amount { bytes: 20 * RECORD, loops: 1, operations: 1 },
    };
    let source = Content::Half.prepare(workload.block(), 100).expect("contents");
    let target = Plain(Mutex::new(vec![0; workload.device_bytes(1)]));
    let mut ledger = Ledger::new(workload.places(1), workload.shared());
    let (first, second) = (workload.parts(0, 1, &source), workload.parts(1, 1, &source));
    let cpus = threads::cpus(1).expect("CPUs");
    workers::run(&first, &cpus, &target, &source).expect("a rate");
    ledger.note(&first);
    // It claims what was not done.
    ledger.note(&second);
    assert!(ledger.verify(&target, &source).is_err());
}
