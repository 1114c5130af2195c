//! The log under random events, beside a model that accounts for every byte. Broken variants of it
//! are rejected.

#[path = "suite/adapter.rs"]
mod adapter;
#[path = "suite/model.rs"]
mod model;

use adapter::Flaw;
use model::{Plan, run};
use testkit::{Rng, asked};

/// Events of each run, if `RAMPACK_EVENTS` does not say otherwise.
const EVENTS: u64 = 60_000;

fn events() -> u64 {
    asked("RAMPACK_EVENTS", EVENTS)
}

fn plans() -> Vec<Plan> {
    let plan = Plan { segments: 16, mib: 1, percent: 90, deaths: false };
    let plans = [
        plan,
        Plan { segments: 3, ..plan },
        Plan { segments: 4, percent: 99, ..plan },
        Plan { mib: 4, segments: 5, ..plan },
        Plan { percent: 80, ..plan },
        Plan { segments: 3, percent: 100, ..plan },
    ];
    let mortal: Vec<Plan> = plans.iter().map(|plan| Plan { deaths: true, ..*plan }).collect();
    plans.into_iter().chain(mortal).collect()
}

#[test]
fn every_byte_is_accounted_for_and_cleaning_makes_room() {
    let mut rng = Rng::new(testkit::seed("every_byte_is_accounted_for_and_cleaning_makes_room"));
    for plan in plans() {
        let summary = run(plan, None, events(), &mut rng).unwrap_or_else(|why| {
            panic!("{plan:?}: {why}");
        });
        println!("{plan:?}: {summary:?}");
        assert!(summary.cleaned > 10 && summary.punched > 10, "{plan:?}: {summary:?}");
        assert_eq!(summary.amid_cleaning > 3, plan.deaths, "{plan:?}: {summary:?}");
    }
}

#[test]
fn every_broken_log_is_rejected() {
    let mut rng = Rng::new(testkit::seed("every_broken_log_is_rejected"));
    for flaw in Flaw::ALL {
        let rejected = plans().into_iter().find_map(|plan| {
            // Some flaws show only in some plans.
            run(plan, Some(flaw), EVENTS, &mut rng).err()
        });
        println!("{flaw:?}: {}", rejected.unwrap_or_else(|| panic!("{flaw:?} passed")));
    }
}
