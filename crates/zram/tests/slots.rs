//! The product's slot table passes the suite of slot schemes, and broken schemes do not.

#[path = "common/broken.rs"]
mod broken;
#[path = "common/slot_suite.rs"]
mod slot_suite;

use broken::{FreesAtOnce, HoldsNothing, LosesUpdates};
use slot_suite::{conforming, conforms};
use zram::slots::{BitLock, SlotTable};

conforming! {
    bit_lock_conforms: BitLock, 8;
}

#[test]
fn schemes_that_free_at_once_are_rejected() {
    let rejected = (0..50).any(|seed| conforms::<FreesAtOnce>(seed).is_err());
    assert!(rejected, "the suite accepted a scheme that frees what is being read");
}

#[test]
fn schemes_that_lose_updates_are_rejected() {
    let rejected = (0..50).any(|seed| conforms::<LosesUpdates>(seed).is_err());
    assert!(rejected, "the suite accepted a scheme that loses updates");
}

#[test]
fn schemes_whose_readers_hold_nothing_are_rejected() {
    let rejected = (0..50).any(|seed| conforms::<HoldsNothing>(seed).is_err());
    assert!(rejected, "the suite accepted a scheme whose readers hold nothing");
}
