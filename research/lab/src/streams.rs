//! `rampack-lab streams`: the ways threads come by a stream, under the load by which zram got
//! several of them (Linux commit beca3ec71f, of 2014).

use anyhow::{Result, anyhow, bail};
use designs::Variants;

use crate::args::StreamsArgs;
use crate::drive::{Count, Experiment, Figure, Ours, Subject};

/// Bytes of each thread, as in `iozone -s 60M`.
const SIZE: u64 = 60 << 20;

/// Who takes part if nobody is named: the base of the experiment, the column that did well with one
/// stream, the one that did badly, the one with as many streams as threads, and what came later.
/// Those that the engine does not have are left out.
const USUAL: &[&str] = &["mutex", "single", "multi:1", "multi:N", "percpu"];

/// Runs the command.
///
/// # Errors
/// Options that make no sense, a subject that fails, or a page that is not what was written.
pub fn run(args: &StreamsArgs) -> Result<()> {
    let experiment = Experiment::new(&args.drive, &args.threads, subjects(args)?, SIZE)?;
    experiment.run("streams")?.show(&args.drive, Figure::Mean)
}

/// Who takes part, the base first.
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

/// A policy, with a number of streams if one is named.
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
