//! `rampack-lab locks`: the schemes that guard slots, under the loads with which Weijie Yang in
//! 2014 replaced zram's table lock by one lock for each entry.

use anyhow::Result;
use designs::{SLOT_SCHEMES, Variants};
use serde_json::Value;

use crate::args::{LocksArgs, chosen};
use crate::drive::{Experiment, Subject};

/// The base of the experiment: one lock for all slots.
const BASE: &str = "global-rwlock";
/// Bytes of each thread, as in `iozone -s 200M`.
const SIZE: u64 = 200 << 20;

/// Runs the command.
pub fn run(args: &LocksArgs) -> Result<Value> {
    let mut schemes = chosen("--schemes", &args.schemes, SLOT_SCHEMES)?;
    if args.schemes.is_empty() {
        schemes.sort_by_key(|scheme| *scheme != BASE);
    }
    let subject = |slots: &str| {
        Subject::ours(
            slots,
            Variants { slots: slots.to_owned(), alike: true, ..Variants::default() },
        )
    };
    let subjects = schemes.into_iter().map(subject).collect();
    Experiment::new(&args.drive, [1, 2], subjects, SIZE)?.run("locks")
}
