//! The suite accepts a right device and rejects each device with a flaw.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use block::{BlockDevice, Checked, Plain};
use sim::controls::{Broken, Budget, Flaw, WhenFull};
use sim::suite;
use testkit::seed;

/// Runs the suite and returns its complaint, if any.
fn complaint(suite: impl FnOnce()) -> Option<String> {
    let payload = catch_unwind(AssertUnwindSafe(suite)).err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default())
}

#[test]
fn a_plain_device_passes() {
    let seed = seed("a_plain_device_passes");
    suite::block_device(seed, |bytes| Arc::new(Plain::new(bytes as usize)));
    suite::block_device(seed, |bytes| Arc::new(Checked::new(Plain::new(bytes as usize))));
}

/// Parts of the expected complaint for each flaw. The suite must not reject a device for another
/// reason.
fn expected(flaw: Flaw) -> &'static [&'static str] {
    match flaw {
        Flaw::LosesNeighbours => &["somebody who wrote beside it"],
        Flaw::TearsPages => &["is another from byte"],
        Flaw::ShufflesPages => &["of another place"],
        Flaw::StaleAfterDiscard => &["0x00 was stored", "given up or never written"],
        Flaw::DiscardsTooMuch => &["reads as 0x00"],
        Flaw::DropsLastBlock => &["was stored"],
        Flaw::HidesLastBlock => &["reads as 0x00"],
        Flaw::AlwaysPunches => &["is called a hole"],
        Flaw::NeverPunches => &["given up or never written"],
        Flaw::TrustsFirstHalf => &["was stored"],
        Flaw::CallsDataZero => &["has data and is called Zero"],
        Flaw::ShortExtents => &["end at"],
        Flaw::ReadsOldPages => &["was stored", "came back after"],
        Flaw::BlocksHalfWay => &["by a change that would block"],
        Flaw::NeverWaits => &["failed: the device would have to wait"],
    }
}

#[test]
fn every_flaw_is_found() {
    let seed = seed("every_flaw_is_found");
    for flaw in Flaw::ALL {
        let make = |bytes| -> Arc<dyn BlockDevice> { Arc::new(Broken::new(bytes, flaw)) };
        let said = complaint(|| suite::block_device(seed, make));
        let said = said.unwrap_or_else(|| panic!("{flaw:?} passes the suite"));
        let right = expected(flaw).iter().any(|part| said.contains(part));
        assert!(right, "{flaw:?} is rejected for another reason: {said}");
    }
}

/// Random events alone find the flaws that one thread can see, and reduce them to few events.
#[test]
fn the_model_finds_flaws_and_shrinks_them() {
    let seed = seed("the_model_finds_flaws_and_shrinks_them");
    let seen_by_one = [
        Flaw::StaleAfterDiscard,
        Flaw::DiscardsTooMuch,
        Flaw::DropsLastBlock,
        Flaw::HidesLastBlock,
        Flaw::AlwaysPunches,
        Flaw::NeverPunches,
        Flaw::TrustsFirstHalf,
        Flaw::CallsDataZero,
        Flaw::ShortExtents,
        Flaw::BlocksHalfWay,
    ];
    for flaw in seen_by_one {
        let make = |bytes| -> Arc<dyn BlockDevice> { Arc::new(Broken::new(bytes, flaw)) };
        let drive = sim::model::Drive::new(seed, 3000);
        let said = complaint(|| suite::against_model(&make, 30 * 4096, drive));
        let said = said.unwrap_or_else(|| panic!("{flaw:?} passes the model"));
        let told = said.lines().filter(|line| line.starts_with("  ")).count();
        assert!((1..=4).contains(&told), "{flaw:?} took {told} events to show: {said}");
    }
}

#[test]
fn full_devices_must_keep_what_they_have() {
    let seed = seed("full_devices_must_keep_what_they_have");
    let run = |when_full| {
        let make = |bytes| -> Arc<dyn BlockDevice> { Arc::new(Budget::new(bytes, when_full)) };
        complaint(|| suite::filling_up(seed, make))
    };
    assert_eq!(run(WhenFull::KeepsOld), None);
    for wrong in [WhenFull::LosesOld, WhenFull::WritesHalf] {
        let said = run(wrong).unwrap_or_else(|| panic!("{wrong:?} passes"));
        // A lost page of zeroes reads as before, but is a hole now. A half-written one reads as
        // before, too, but is no hole any more.
        let lost = ["neither the old nor the new one", "is called"];
        assert!(lost.iter().any(|part| said.contains(part)), "{wrong:?}: {said}");
    }
    let said = run(WhenFull::StaysFull).expect("a device that stays full passes");
    assert!(said.contains("space again"), "{said}");
    let said = run(WhenFull::SaysDone).expect("a device that forgets what it took passes");
    assert!(tells_of_a_forgotten_page(&said), "{said}");
    let plain = |bytes| -> Arc<dyn BlockDevice> { Arc::new(Plain::new(bytes as usize)) };
    let said = complaint(|| suite::filling_up(seed, plain)).expect("no limit is no test");
    assert!(said.contains("nothing was refused"), "{said}");
}

/// A device with a place for pages that its memory cannot hold refuses none and forgets none.
#[test]
fn wrong_answers_of_an_overflowing_device_are_found() {
    let seed = seed("wrong_answers_of_an_overflowing_device_are_found");
    let run = |when_full| {
        let make = |bytes| -> Arc<dyn BlockDevice> { Arc::new(Budget::new(bytes, when_full)) };
        complaint(|| suite::overflowing(seed, make)).expect("a device without another place passes")
    };
    assert!(run(WhenFull::KeepsOld).contains("limit is reached"));
    let said = run(WhenFull::SaysDone);
    assert!(tells_of_a_forgotten_page(&said), "{said}");
}

/// Which of the two is seen first depends on what the model asks next: for the page, or for holes.
fn tells_of_a_forgotten_page(said: &str) -> bool {
    ["was stored", "was written, and is called a hole"].iter().any(|part| said.contains(part))
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let events = |seed| -> Vec<_> {
        let device = Plain::new(30 * 4096);
        sim::model::Drive::new(seed, 500).events(&device).collect()
    };
    assert_eq!(events(7), events(7));
    assert_ne!(events(7), events(8));
}
