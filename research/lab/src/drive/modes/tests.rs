use std::collections::BTreeSet;

use super::*;
use crate::drive::content::Content;

fn workload(kind: Kind) -> Workload {
    let amount = Amount { bytes: 40 * RECORD, loops: 6, operations: 100 };
    Workload { kind, amount }
}

fn source(workload: &Workload) -> Source {
    Content::Half.prepare(workload.block(), 100).expect("contents")
}

#[test]
fn every_mode_of_iozone_takes_each_record_once() {
    let workload = workload(Kind::Modes);
    let source = source(&workload);
    assert_eq!(workload.modes().len(), 11);
    assert_eq!(workload.device_bytes(3), 3 * 40 * RECORD);
    for mode in 0..11 {
        let parts = workload.parts(mode, 3, &source);
        for (thread, part) in parts.iter().enumerate() {
            assert_eq!((part.steps.len(), part.laps), (40, 1));
            let places: BTreeSet<u32> = part.steps.iter().map(|step| step.place).collect();
            let own: BTreeSet<u32> = (40 * thread as u32..40 * (thread as u32 + 1)).collect();
            assert_eq!(places, own);
        }
    }
}

#[test]
fn orders_are_those_of_iozone() {
    let workload = workload(Kind::Modes);
    let source = source(&workload);
    let places = |mode: usize| -> Vec<u32> {
        let parts = workload.parts(mode, 1, &source);
        parts[0].steps.iter().map(|step| step.place).collect()
    };
    assert_eq!(places(4)[..3], [39, 38, 37]);
    assert_eq!(places(5)[..5], [0, 17, 34, 1, 18]);
    assert_ne!(places(6), places(8));
    assert_eq!(places(10)[..3], [0, 1, 2]);
}

#[test]
fn half_of_the_threads_read_in_the_mixed_workload() {
    let workload = workload(Kind::Modes);
    let source = source(&workload);
    let parts = workload.parts(7, 4, &source);
    let reads = |part: &Part| part.steps.iter().filter(|step| step.source == Step::READ).count();
    assert_eq!(parts.iter().map(reads).collect::<Vec<_>>(), [40, 0, 40, 0]);
}

#[test]
fn threads_and_changes_write_different_blocks() {
    let workload = workload(Kind::Modes);
    let source = source(&workload);
    let first = |mode, thread: usize| workload.parts(mode, 2, &source)[thread].steps[0].source;
    let seen: BTreeSet<u32> = [(0, 0), (1, 0), (9, 0), (0, 1), (1, 1), (9, 1)]
        .into_iter()
        .map(|(mode, thread)| first(mode, thread))
        .collect();
    assert_eq!(seen.len(), 6);
}

#[test]
fn jobs_of_fio_loop_over_the_same_ten_mebibytes() {
    for (loops, laid, laps) in [(6, 6, 1), (16, 8, 2), (11, 1, 11), (3000, 8, 375)] {
        let mut workload = workload(Kind::Fio);
        workload.amount.loops = loops;
        let source = source(&workload);
        assert_eq!(workload.device_bytes(4), 10 << 20);
        for part in workload.parts(3, 2, &source) {
            assert_eq!((part.steps.len(), part.laps), (laid * 320, laps));
            let writes = part.steps.iter().filter(|step| step.source != Step::READ).count();
            assert!((100 * laid..220 * laid).contains(&writes), "{writes} of {}", laid * 320);
        }
    }
}

#[test]
fn eight_pages_are_met_by_all() {
    let mut workload = workload(Kind::Eight);
    workload.amount.operations = 10_000;
    let source = source(&workload);
    assert_eq!(workload.device_bytes(7), 8 * 4096);
    for part in workload.parts(0, 2, &source) {
        assert_eq!((part.steps.len(), part.laps), (4096, 3));
        let places: BTreeSet<u32> = part.steps.iter().map(|step| step.place).collect();
        assert_eq!(places, (0..8).collect());
    }
}
