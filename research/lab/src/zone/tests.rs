use super::workload::{PAGE_FAULT1, usual_frames};
use super::*;
use indicatif::ProgressBar;

/// A plan that takes a moment.
fn small(names: &[&str], workloads: &[Workload], threads: &[usize]) -> Plan {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Plan {
        designs: designs::named(&names).expect("designs"),
        threads: threads.to_vec(),
        workloads: workloads.to_vec(),
        frames: Some(8192),
        repeat: 2,
        cycles: 2,
        cpus: host::allowed_cpus(),
    }
}

const EVERY: [Workload; 4] =
    [Workload::Bulk, Workload::Repeat, Workload::PageFault1, Workload::CrossFree];

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
fn a_lock_without_pcp_lists_is_seen_to_be_taken_once_for_each_call() {
    let plan = small(&["no-pcp"], &EVERY, &[1]);
    for run in plan.measure(&ProgressBar::hidden()).expect("runs") {
        assert!((run.acquisitions_per_page - 2.0).abs() < 1e-9, "{run:?}");
        // One thread never waits for itself.
        assert_eq!(run.lock_wait_percent, 0.0, "{run:?}");
        let visits = run.alloc_visits;
        let each = if run.workload == Workload::Repeat { 0.5 } else { 1.0 };
        assert_eq!((visits.pages, visits.reads, visits.heads), (each, 0.0, 0.0));
        assert_eq!((run.picture.order0_share, run.picture.unmerged_buddies), (0.0, 0));
        assert_eq!(run.picture.buddyinfo, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
    }
}

#[test]
fn a_zone_that_is_too_small_is_refused() {
    let mut plan = small(&["no-pcp"], &[Workload::Bulk], &[3]);
    plan.frames = Some(1024);
    let error = plan.check().expect_err("too small").to_string();
    assert!(error.contains("bulk"), "{error}");
}

#[test]
fn threads_are_never_more_than_cpus() {
    assert_eq!(threads(&[], 1, 1).expect("one"), [1]);
    assert_eq!(threads(&[], 3, 2).expect("two"), [1, 2]);
    assert_eq!(threads(&[3, 1], 3, 2).expect("these"), [3, 1]);
    let error = threads(&[4], 3, 2).expect_err("too many").to_string();
    assert!(error.contains("there are 3 CPUs"), "{error}");
    assert!(threads(&[1, 1], 1, 1).is_err());
}
