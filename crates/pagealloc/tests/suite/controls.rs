//! That each check finds what it is there for: a plain zone passes all of them, and with a flaw it
//! is rejected by the checks that are meant for it, and for the right reason.

use std::panic::{AssertUnwindSafe, catch_unwind};

use testkit::{Rng, seed};

use crate::design::Design;
use crate::model::Make;
use crate::naive::{Flaw, Naive};
use crate::{bad_frees, bitmap, crowd, exhaustive, rest};

fn naive(make: Make) -> Design {
    Design { name: "naive", make, merges: true, returns_at_once: false }
}

fn bitmap(make: Make) {
    bitmap::against_bitmap(&naive(make));
}

/// Several times: a flaw that takes several CPUs, say, is not to be seen if none of the zones that
/// are drawn has some.
fn bitmaps(make: Make) {
    let mut rng = Rng::new(seed("bitmaps"));
    (0..12).for_each(|_| bitmap::drawn_from(rng.next_u64(), &naive(make)));
}

#[track_caller]
fn is_rejected(check: fn(Make), make: Make, because: &[&str]) {
    let result = catch_unwind(AssertUnwindSafe(|| check(make)));
    let panic = result.expect_err("a broken zone passed");
    let text = panic.downcast_ref::<String>().expect("a panic with a text");
    let right = because.iter().any(|because| text.contains(because));
    assert!(right, "rejected for another reason: {text}");
}

#[test]
fn a_plain_zone_passes() {
    let make: Make = |provider, options| Naive::boxed(provider, options, Flaw::None);
    let checks = [
        exhaustive::small_scenarios,
        bitmap,
        crowd::crowds,
        bad_frees::bad_frees,
        rest::at_rest,
        rest::huge_when_there,
    ];
    checks.iter().for_each(|check| check(make));
}

/// A test for each flaw and check: the reasons that are right.
macro_rules! controls {
    ($($test:ident: $flaw:expr, $check:path, $because:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let make: Make = |provider, options| Naive::boxed(provider, options, $flaw);
                is_rejected($check, make, &$because);
            }
        )*
    };
}

controls! {
    forgetting_other_cpus_is_found_in_small_worlds:
        Flaw::ForgetsOtherCpus, exhaustive::small_scenarios, ["None for order"];
    losing_on_drain_is_found_in_small_worlds:
        Flaw::LosesOnDrain, exhaustive::small_scenarios, ["and frames managed"];
    keeping_on_drain_is_found_in_small_worlds:
        Flaw::KeepsOnDrain, exhaustive::small_scenarios, ["and frames managed"];
    merging_what_is_allocated_is_found_in_small_worlds:
        Flaw::MergesAllocated, exhaustive::small_scenarios, ["is free and allocated", "free twice", "allocated twice"];
    merging_once_is_found_in_small_worlds:
        Flaw::MergesOnce, exhaustive::small_scenarios, ["everything free is merged"];
    giving_up_is_found_by_the_bitmap: Flaw::GivesUp, bitmaps, ["None for order"];
    lending_twice_is_found_by_the_bitmap: Flaw::LendsTwice, bitmaps, ["was allocated twice"];
    losing_on_drain_is_found_by_the_bitmap:
        Flaw::LosesOnDrain, bitmaps, ["and frames managed", "None for order"];
    // A frame of a merged block that is given back lies in the block, and in a cache besides.
    merging_what_is_allocated_is_found_by_the_bitmap:
        Flaw::MergesAllocated, bitmaps,
        ["is free and allocated", "free twice", "allocated twice", "and frames managed"];
    miscounting_is_found_by_the_bitmap: Flaw::Miscounts, bitmaps, ["as shown, as counted"];
    showing_what_is_allocated_is_found_by_the_bitmap: Flaw::ShowsLent, bitmaps, ["is free and allocated"];
    unmerged_buddies_are_found_by_the_bitmap:
        Flaw::NeverMerges, bitmaps, ["are not merged", "None for order"];
    forgetting_other_cpus_is_found_by_crowds:
        Flaw::ForgetsOtherCpus, crowd::crowds, ["None for a thread"];
    lending_twice_is_found_by_crowds:
        Flaw::LendsTwice, crowd::crowds, ["allocated to two", "somebody else wrote", "nobody's", "freed"];
    losing_on_drain_is_found_by_crowds:
        Flaw::LosesOnDrain, crowd::crowds, ["and frames managed", "None for a thread"];
    silence_on_bad_frees_is_found: Flaw::Silent, bad_frees::bad_frees, ["was not found"];
    bad_frees_with_an_effect_are_found:
        Flaw::TakesAnything, bad_frees::bad_frees, ["had an effect", "and frames managed"];
    freeing_under_any_order_is_found: Flaw::TakesAnyOrder, bad_frees::bad_frees, ["was not found"];
    never_merging_is_found_at_rest: Flaw::NeverMerges, rest::at_rest, ["are not merged", "everything free"];
    merging_once_is_found_at_rest: Flaw::MergesOnce, rest::at_rest, ["are not merged", "everything free"];
    hidden_blocks_are_found: Flaw::HidesHuge, rest::huge_when_there, ["None for order"];
    unmerged_blocks_are_found_when_they_are_wanted:
        Flaw::NeverMerges, rest::huge_when_there, ["None for order"];
}

/// Where nothing ends with a panic, there is no message.
#[cfg(debug_assertions)]
#[test]
fn vague_messages_are_found() {
    let make: Make = |provider, options| Naive::boxed(provider, options, Flaw::Vague);
    is_rejected(bad_frees::bad_frees, make, &["the message is"]);
}
