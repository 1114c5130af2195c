//! The suite of roads accepts a road of no length and rejects each one with a flaw.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use sim::roads::{self, Client, Kind, RoadFlaw, Short};

/// What does not hang is answered within this time; what hangs is found after it.
const SHORT: Duration = Duration::from_millis(500);

#[test]
fn a_road_of_no_length_passes() {
    roads::pass("a_road_of_no_length_passes", &[], |subject| {
        Arc::new(Short::new(subject.device(), None))
    });
}

#[test]
fn every_flaw_of_a_road_is_found() {
    let seed = testkit::seed("every_flaw_of_a_road_is_found");
    for flaw in RoadFlaw::ALL {
        let open = |kind: Kind, pages: u64| -> Arc<dyn Client> {
            Arc::new(Short::new(kind.of(pages * 4096).device(), Some(flaw)))
        };
        let part = || match flaw {
            RoadFlaw::FlushesLate => roads::flushes(&*open(Kind::Deferring, 16)),
            RoadFlaw::CutsOff => roads::limits(&*open(Kind::Plain, 3), true),
            RoadFlaw::SpreadsFaults => roads::faults(&*open(Kind::Faulty, 16), seed),
            RoadFlaw::EndsAtPanics => roads::panics(&*open(Kind::Panicking, 16)),
            RoadFlaw::HoldsUp => roads::waits(&open(Kind::Waiting, 16), SHORT),
            RoadFlaw::Hangs | RoadFlaw::SaysDone => roads::loss(&open(Kind::Plain, 16), SHORT),
            RoadFlaw::LetsIn => roads::strangers(&*open(Kind::Plain, 16), seed),
        };
        let expected = match flaw {
            RoadFlaw::FlushesLate => "is older than the flush",
            RoadFlaw::CutsOff => "passes the end, and succeeds",
            RoadFlaw::SpreadsFaults => "beside faults",
            RoadFlaw::EndsAtPanics => "after a panic",
            RoadFlaw::HoldsUp => "another client, while one waits is not answered",
            RoadFlaw::Hangs | RoadFlaw::SaysDone => "without a server is not answered",
            RoadFlaw::LetsIn => ", beside strangers",
        };
        let found = catch_unwind(AssertUnwindSafe(part)).expect_err("it passes");
        let said = found.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(said.contains(expected), "{flaw:?} is rejected for another reason: {said}");
    }
}
