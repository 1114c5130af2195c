//! The model of swap caches passes what is right and rejects what is wrong, for the right reason
//! and with few events.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sim::swap::{Cache, Drive, Flaw, Mix, Naive};
use testkit::{Rng, seed};

const EVENTS: usize = 4000;

fn naive(flaw: Flaw) -> Box<dyn Cache> {
    Box::new(Naive::new(flaw))
}

/// The order in which pages leave, limits, then everything.
fn drives(seed: u64) -> [Drive; 3] {
    let mut rng = Rng::new(seed);
    [(Mix::ORDER, 1), (Mix::LIMITS, 3), (Mix::ALL, 3)].map(|(mix, lanes)| {
        let seed = rng.next_u64();
        Drive { seed, events: EVENTS, mix, lanes }
    })
}

fn complaint(run: impl FnOnce()) -> Option<String> {
    let payload = catch_unwind(AssertUnwindSafe(run)).err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default())
}

#[test]
fn a_naive_cache_passes() {
    for drive in drives(seed("a_naive_cache_passes")) {
        let outcome = drive.run(&|| naive(Flaw::None));
        println!("{outcome:?}");
        let fails = drive.mix.faults == (outcome.failed_writes > 0);
        assert!(fails && outcome.written_back > 50 && outcome.duplicates > 50, "{outcome:?}");
    }
}

/// What must be said of each flaw, in part.
fn expected(flaw: Flaw) -> &'static [&'static str] {
    match flaw {
        Flaw::DropsOnFailure => &["in the cache is Some", "it counts", "the oldest were"],
        Flaw::LosesItsPlace | Flaw::NoSecondChance => &["the oldest were"],
        Flaw::KeepsOldOnRefusal => &["it counts", "in the cache is None", "is not in the cache"],
        Flaw::AreaForgetsCounts | Flaw::DuplicateForgetsTenant => &["it counts"],
        Flaw::LimitOffByBatch => &["the limit is"],
        Flaw::NoHysteresis => &["the mark"],
        Flaw::UnboundedWrites => &["are under way at once"],
        Flaw::CountsFailures => {
            &["is said of", "it counts", "more were written", "the oldest were"]
        }
        Flaw::KeepsWhatWasTaken => &["it counts"],
        Flaw::IgnoresSwitch => &["must not be written back"],
        Flaw::IgnoresShare => &["may have"],
        Flaw::LeavesPagesBehind => &["turning area"],
        Flaw::LeavesTooSoon => &["in the cache is Some", "it counts", "the oldest were"],
        _ => &[],
    }
}

#[test]
fn every_flaw_is_found_and_made_small() {
    let seed = seed("every_flaw_is_found_and_made_small");
    for flaw in Flaw::SEEN_BY_ONE {
        let said = drives(seed).iter().find_map(|drive| {
            complaint(|| {
                drive.run(&|| naive(flaw));
            })
        });
        let said = said.unwrap_or_else(|| panic!("{flaw:?} passes"));
        let right = expected(flaw).iter().any(|part| said.contains(part));
        assert!(right, "{flaw:?} is rejected for another reason: {said}");
        let told = said.lines().filter(|line| line.starts_with("  ")).count();
        assert!((1..=60).contains(&told), "{flaw:?} took {told} events to show: {said}");
        println!("{flaw:?}, {told} events: {}", said.lines().next().unwrap_or_default());
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let drive = Drive { seed, events: 500, mix: Mix::ALL, lanes: 3 };
        drive.run(&|| naive(Flaw::None))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
