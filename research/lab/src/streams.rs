//! `rampack-lab streams`: the policies by which threads get a stream, under the load with which
//! zram got several streams (Linux commit beca3ec71f, of 2014).

use anyhow::{Result, bail};
use designs::{STREAM_POLICIES, Variants};
use serde_json::Value;

use crate::args::StreamsArgs;
use crate::drive::{Count, Experiment, Subject};

/// Bytes of each thread, as in `iozone -s 60M`.
const SIZE: u64 = 60 << 20;

/// Runs the command.
pub fn run(args: &StreamsArgs) -> Result<Value> {
    let subjects = args.policies.iter().map(|name| subject(name)).collect::<Result<_>>()?;
    Experiment::new(&args.drive, [2, 3], subjects, SIZE)?.run("streams")
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
    if !STREAM_POLICIES.contains(&policy) {
        bail!("--policies {name}: there are: {}", STREAM_POLICIES.join(" "));
    }
    let variants = Variants { streams: policy.to_owned(), alike: true, ..Variants::default() };
    Ok(Subject { streams, ..Subject::ours(name, variants) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_those_of_the_engine() {
        for (name, streams) in
            [("single", Count::Usual), ("percpu:N", Count::Threads), ("multi:3", Count::Fixed(3))]
        {
            assert_eq!(subject(name).expect("a subject").streams, streams);
        }
        for (name, word) in
            [("hope", "percpu"), ("percpu:", "percpu:"), ("percpu:0", "\"0\""), ("percpu:x", "N")]
        {
            let error = subject(name).expect_err("refused").to_string();
            assert!(error.contains(word), "{name}: {error}");
        }
    }
}
