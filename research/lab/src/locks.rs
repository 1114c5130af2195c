//! `rampack-lab locks`: the schemes that guard slots, under the loads with which Weijie Yang in
//! 2014 replaced zram's table lock by one lock for each entry.

use anyhow::{Result, bail};
use designs::{SLOT_SCHEMES, Variants};

use crate::args::LocksArgs;
use crate::drive::{Experiment, Ours, Subject, Through};

/// The base of the experiment: one lock for all slots.
const BASE: &str = "global-rwlock";
/// Bytes of each thread, as in `iozone -s 200M`.
const SIZE: u64 = 200 << 20;

/// Runs the command.
///
/// # Errors
/// Two options contradict each other, a subject fails, or a page is not the written one.
pub fn run(args: &LocksArgs) -> Result<()> {
    let experiment = Experiment::new(&args.drive, &args.threads, subjects(args)?, SIZE)?;
    crate::report::show(&experiment.run("locks")?, args.drive.json)
}

/// The subjects, the base first.
fn subjects(args: &LocksArgs) -> Result<Vec<Subject>> {
    let mut schemes: Vec<&str> = args.schemes.iter().map(String::as_str).collect();
    if schemes.is_empty() {
        schemes = SLOT_SCHEMES.to_vec();
        schemes.sort_by_key(|scheme| *scheme != BASE);
    }
    if let Some(twice) = (1..schemes.len()).find(|&n| schemes[..n].contains(&schemes[n])) {
        bail!("--schemes {}: it takes part already", schemes[twice]);
    }
    let scheme = |slots: &str| Variants { slots: slots.to_owned(), ..Variants::default() };
    let mut subjects: Vec<Subject> =
        schemes.iter().map(|name| Subject::ours(name, scheme(name))).collect();
    let default = SLOT_SCHEMES[0];
    for (option, given) in
        [("--shared-counters", args.shared_counters), ("--by-page", args.by_page)]
    {
        if given && args.drive.through == Through::Device {
            bail!("{option} needs --through process: rampack up has no such option");
        }
    }
    if args.shared_counters {
        let variants = Variants { counters: "shared".to_owned(), ..scheme(default) };
        subjects.push(Subject::ours(&format!("{default}, shared counters"), variants));
    }
    if args.by_page {
        let mut subject = Subject::ours(&format!("{default}, by page"), scheme(default));
        subject.ours = subject.ours.map(|ours| Ours { by_page: true, ..ours });
        subjects.push(subject);
    }
    Ok(subjects)
}
