//! `rampack-lab streams`: the policies by which threads get a stream, under the load with which
//! zram got several streams (Linux commit beca3ec71f, of 2014).

use anyhow::{Result, anyhow, bail};
use designs::Variants;

use crate::args::StreamsArgs;
use crate::drive::{Count, Experiment, Ours, Subject};

/// Bytes of each thread, as in `iozone -s 60M`.
const SIZE: u64 = 60 << 20;

/// The subjects if the command line names none: the base of the experiment, the good column with
/// one stream, the bad one, the one with as many streams as threads, and the later policy. Policies
/// that the engine does not have are left out.
const USUAL: &[&str] = &["mutex", "single", "multi:1", "multi:N", "percpu"];

/// Runs the command.
///
/// # Errors
/// Two options contradict each other, a subject fails, or a page is not the written one.
pub fn run(args: &StreamsArgs) -> Result<()> {
    let experiment = Experiment::new(&args.drive, &args.threads, subjects(args)?, SIZE)?;
    crate::report::show(&experiment.run("streams")?, args.drive.json)
}

/// The subjects, the base first.
fn subjects(args: &StreamsArgs) -> Result<Vec<Subject>> {
    if args.policies.is_empty() {
        return Ok(USUAL.iter().filter_map(|name| subject(name).ok()).collect());
    }
    let mut subjects: Vec<Subject> = Vec::new();
    for name in &args.policies {
        if subjects.iter().any(|other| other.name == *name) {
            bail!("--policies {name}: it takes part already");
        }
        subjects.push(subject(name)?);
    }
    Ok(subjects)
}

/// A policy, with its number of streams if the name has one.
fn subject(name: &str) -> Result<Subject> {
    let (policy, streams) = match name.split_once(':') {
        None => (name, Count::Usual),
        Some((policy, "N")) => (policy, Count::Threads),
        Some((policy, number)) => match number.parse() {
            Ok(count @ 1..=1024) => (policy, Count::Fixed(count)),
            _ => bail!("--policies {name}: {number:?} is neither N nor a number from 1 to 1024"),
        },
    };
    let variants = Variants { streams: policy.to_owned(), ..Variants::default() };
    variants.check().map_err(|fault| anyhow!("--policies {name}: {}", fault.message))?;
    let ours = Ours { variants, streams, by_page: false };
    Ok(Subject { name: name.to_owned(), ours: Some(ours) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_those_of_the_engine() {
        let usual: Vec<String> =
            USUAL.iter().filter_map(|name| subject(name).ok()).map(|s| s.name).collect();
        assert!(usual.contains(&"percpu".to_owned()), "{usual:?}");
        let ours = subject("percpu:N").expect("a subject").ours.expect("ours");
        assert_eq!(ours.streams, Count::Threads);
        let ours = subject("percpu:3").expect("a subject").ours.expect("ours");
        assert_eq!(ours.streams, Count::Fixed(3));
        for (name, word) in
            [("hope", "percpu"), ("percpu:", "percpu:"), ("percpu:0", "\"0\""), ("percpu:x", "N")]
        {
            let error = subject(name).expect_err("refused").to_string();
            assert!(error.contains(word), "{name}: {error}");
        }
    }
}
