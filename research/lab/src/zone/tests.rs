use super::workload::{PAGE_FAULT1, usual_frames};
use super::*;
use indicatif::ProgressBar;

/// A plan that takes a moment.
pub fn small(names: &[&str], workloads: &[Workload], threads: &[usize]) -> Plan {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Plan {
        designs: designs::named(&names).expect("designs"),
        threads: threads.to_vec(),
        workloads: workloads.to_vec(),
        mode: Mode::Raw,
        start: Start::Stagger,
        frames: Some(8192),
        repeat: 2,
        cycles: 2,
        batch: None,
        pcp: None,
        give_back: false,
        seed: 1,
        cpus: host::allowed_cpus(),
    }
}

const EVERY: [Workload; 6] = [
    Workload::Bulk,
    Workload::Repeat,
    Workload::Rand,
    Workload::PageFault1,
    Workload::CrossFree,
    Workload::MixedOrder9,
];

#[test]
fn shares_fit_into_the_zone() {
    for workload in EVERY {
        for threads in [1, 2, 3, 64] {
            let frames = usual_frames(workload, threads);
            let share = workload.share(frames, threads);
            assert!(share > 0 && share * threads <= frames as usize / 4 * 3, "{workload:?}");
        }
    }
    assert_eq!(Workload::PageFault1.share(usual_frames(Workload::PageFault1, 8), 8), PAGE_FAULT1);
}

#[test]
fn the_mutex_is_seen_to_be_taken_once_for_each_call() {
    let plan = small(&["mutex-buddy"], &[Workload::Rand, Workload::Repeat], &[1]);
    for run in plan.measure(&ProgressBar::hidden()).expect("runs") {
        let taken = run.acquisitions_per_page.expect("it is listened to");
        assert!((taken - 2.0).abs() < 1e-9, "{run:?}");
        // One thread never waits for itself.
        assert_eq!(run.lock_wait_percent, Some(0.0), "{run:?}");
        let visits = run.alloc_visits.expect("visits");
        assert_eq!((visits.pages, visits.reads, visits.heads), (Some(1.0), 0.0, 0.0));
        assert_eq!((run.order0_share, run.unmerged_buddies), (Some(0.0), Some(0)));
        let info = run.buddyinfo.expect("its free blocks");
        assert_eq!(info.after_drain, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
        assert_eq!(info.after_drain, info.before_drain);
        assert!(run.order9_at_rest.is_some_and(|order9| order9.success == 1.0));
        if run.workload == Workload::Rand {
            assert!(run.order0_shares.expect("shares").live > 0.0);
        }
    }
}

#[test]
fn every_design_gives_everything_back_under_every_workload() {
    let threads: Vec<usize> = (1..=host::allowed_cpus().len().min(2)).collect();
    let mut plan = small(&["all"], &EVERY, &threads);
    plan.check().expect("a plan");
    plan.cycles = 1;
    for (start, workloads) in [(Start::Stagger, &EVERY[..]), (Start::Lockstep, &EVERY[3..4])] {
        plan.start = start;
        plan.workloads = workloads.to_vec();
        let bar = ProgressBar::hidden();
        let runs = plan.measure(&bar).expect("runs");
        assert_eq!(bar.position(), plan.turns());
        let blocks = plan.designs.iter().filter(|design| design.blocks).count();
        let of = |workload: &Workload| {
            if workload.wants_blocks() { blocks } else { plan.designs.len() }
        };
        assert_eq!(runs.len(), threads.len() * workloads.iter().map(of).sum::<usize>());
        for run in runs {
            assert!(run.pair_ns > 0.0 && run.alloc_ns >= 0.0 && run.free_ns >= 0.0, "{run:?}");
            assert!((run.alloc_ns + run.free_ns - run.pair_ns).abs() < run.pair_ns, "{run:?}");
            assert_eq!(run.order9.is_some(), run.workload == Workload::MixedOrder9, "{run:?}");
        }
    }
}

#[test]
fn a_zone_that_is_too_small_is_refused() {
    let mut plan = small(&["mutex-buddy"], &[Workload::MixedOrder9], &[1]);
    plan.frames = Some(1024);
    let error = plan.check().expect_err("too small").to_string();
    assert!(error.contains("mixed-order9"), "{error}");
    let mut plan = small(&["pcp-only"], &[Workload::MixedOrder9], &[1]);
    plan.frames = Some(8192);
    assert!(plan.check().is_err());
}

#[test]
fn threads_are_never_more_than_cpus() {
    assert_eq!(threads(&[], &[3]).expect("one"), [1]);
    assert_eq!(threads(&[], &[3, 4, 5]).expect("two"), [1, 2]);
    assert_eq!(threads(&[3, 1], &[3, 4, 5]).expect("these"), [3, 1]);
    let error = threads(&[4], &[3, 4, 5]).expect_err("too many").to_string();
    assert!(error.contains("there are 3 CPUs"), "{error}");
    assert!(threads(&[1, 1], &[3]).is_err());
}
