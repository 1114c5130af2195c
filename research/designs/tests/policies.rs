//! The suite of stream policies (`crates/zcomp/tests/policies`) for those that the product does not
//! ship.
#![cfg(not(loom))]

#[path = "../../../crates/zcomp/tests/policies/suite.rs"]
mod suite;
#[path = "../../../crates/zcomp/tests/policies/watched.rs"]
#[allow(dead_code)]
mod watched;

use std::sync::Arc;
use std::time::Duration;

use designs::streams::{MultiStreams, MutexStream, SingleStream};
use suite::Subject;
use watched::Watched;
use zcomp::{Compressor, Streams};

/// What never takes longer, however loaded the machine is, unless it is stuck.
const LONG: Duration = Duration::from_secs(120);

const CPUS: usize = 3;

fn shared(codec: &Arc<Watched>) -> Arc<dyn Compressor> {
    codec.clone()
}

fn passes<S: Streams>(subject: Subject<S>) {
    let seed = testkit::seed("every policy of streams");
    if let Err(complaint) = suite::judge(subject, seed, LONG) {
        panic!("{complaint}");
    }
}

/// A policy that has one stream.
fn one_passes<S: Streams>() {
    let make = |codec: &Arc<Watched>, _| S::make(&shared(codec), CPUS, 1).unwrap();
    passes(Subject { most: |_| 1, ..Subject::new(make) });
}

#[test]
fn mutex() {
    one_passes::<MutexStream>();
}

#[test]
fn multi() {
    let make = |codec: &Arc<Watched>, limit| MultiStreams::new(&shared(codec), limit).unwrap();
    passes(Subject { grows: true, ..Subject::new(make) });
}

#[test]
fn single() {
    one_passes::<SingleStream>();
}
