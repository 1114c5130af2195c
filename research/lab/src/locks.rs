//! `rampack-lab locks`: the schemes that guard slots, under the loads with which Weijie Yang in
//! 2014 replaced zram's table lock by one lock for each entry.

use anyhow::Result;
use designs::{SLOT_SCHEMES, Variants};
use serde_json::Value;

use crate::args::LocksArgs;
use crate::drive::{Experiment, Subject};

/// The base of the experiment: one lock for all slots.
const BASE: &str = "global-rwlock";
/// Bytes of each thread, as in `iozone -s 200M`.
const SIZE: u64 = 200 << 20;

/// Runs the command.
pub fn run(args: &LocksArgs) -> Result<Value> {
    let mut schemes: Vec<&str> = args.schemes.iter().map(String::as_str).collect();
    if schemes.is_empty() {
        schemes = SLOT_SCHEMES.to_vec();
        schemes.sort_by_key(|scheme| *scheme != BASE);
    }
    let scheme = |slots: &str| Variants { slots: slots.to_owned(), ..Variants::default() };
    let mut subjects: Vec<Subject> =
        schemes.iter().map(|name| Subject::ours(name, scheme(name))).collect();
    if args.shared_counters {
        let default = SLOT_SCHEMES[0];
        let variants = Variants { counters: "shared".to_owned(), ..scheme(default) };
        subjects.push(Subject::ours(&format!("{default}, shared counters"), variants));
    }
    Experiment::new(&args.drive, &args.threads, subjects, SIZE)?.run("locks")
}
