//! The suite that every policy of streams passes (those of `research` run it too), and policies
//! broken on purpose that it rejects.

#[path = "policies/broken.rs"]
mod broken;
#[path = "policies/suite.rs"]
mod suite;
#[path = "policies/watched.rs"]
mod watched;

use std::sync::Arc;
use std::time::Duration;

use broken::{Broken, Flaw};
use suite::Subject;
use watched::Watched;
use zcomp::{PerCpuStreams, Streams};

/// What never takes longer, however loaded the machine is, unless it is stuck.
const LONG: Duration = Duration::from_secs(120);
/// What a policy that is known to be broken may take before it counts as stuck.
const SHORT: Duration = Duration::from_secs(2);

const CPUS: usize = 3;

fn passes<S: Streams + 'static>(subject: Subject<S>) {
    let seed = testkit::seed("every policy of streams");
    if let Err(complaint) = suite::judge(subject, seed, LONG) {
        panic!("{complaint}");
    }
}

#[test]
fn percpu() {
    let make = |codec: &Arc<Watched>, limit| {
        let streams = PerCpuStreams::new(&**codec, CPUS).unwrap();
        streams.limit(limit).unwrap();
        streams
    };
    passes(Subject { most: |limit| limit.min(CPUS), ..Subject::new(make) });
}

fn broken(flaw: Flaw) -> Subject<Broken> {
    let make = move |codec: &Arc<Watched>, limit| Broken::new(codec, limit, flaw);
    Subject { grows: true, ..Subject::new(make) }
}

#[test]
fn a_faithful_copy_passes() {
    passes(broken(Flaw::None));
}

/// What is said of a policy under which somebody waits for ever.
const STUCK: &str = "is stuck";

fn rejected(flaw: Flaw, complaint: &str) {
    // Whoever may be slow must not be taken for stuck.
    let backoff = if complaint == STUCK { SHORT } else { LONG };
    let said = suite::judge(broken(flaw), 1, backoff).expect_err("it is broken on purpose");
    assert!(said.contains(complaint), "{flaw:?} was rejected for another reason: {said}");
}

#[test]
fn lending_a_stream_twice_is_rejected() {
    rejected(Flaw::LendsTwice, "is taken twice");
}

#[test]
fn growing_over_the_limit_is_rejected() {
    rejected(Flaw::GrowsOverTheLimit, "are taken at once");
}

#[test]
fn losing_a_waiter_is_rejected() {
    rejected(Flaw::LosesWaiters, STUCK);
}

#[test]
fn ignoring_a_lowered_limit_is_rejected() {
    rejected(Flaw::IgnoresLoweredLimit, "after the limit was lowered");
}

#[test]
fn forgetting_waiters_when_the_limit_is_raised_is_rejected() {
    rejected(Flaw::RaisesQuietly, STUCK);
}

#[test]
fn failing_when_memory_is_out_is_rejected() {
    rejected(Flaw::FailsWithoutMemory, "panicked");
}

/// As Linux 3.15 did.
#[test]
fn counting_a_stream_that_is_not_there_yet_is_rejected() {
    rejected(Flaw::CountsReservations, STUCK);
}
