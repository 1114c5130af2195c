//! A program that wants more memory than its group has.

use std::io::{Read, Write};
use std::process::Stdio;

use cli::swap::selftest::group::Group;
use cli::swap::selftest::hungry::Outcome;

use crate::common::{program, wait_until};

/// A program in a group with little memory, that compares all it has in each round.
pub fn hungry(group: &Group, seed: u64, used: impl Fn() -> u64) -> (Outcome, u64) {
    let (outcome, most) = try_hungry(group, seed, used);
    (outcome.unwrap_or_else(|ended| panic!("{ended}")), most)
}

/// As [`hungry`], for a program that may be hurt: the error says how it ended.
pub fn try_hungry(
    group: &Group,
    seed: u64,
    used: impl Fn() -> u64,
) -> (Result<Outcome, String>, u64) {
    let mut command = program();
    command.args(["selftest", "hungry", "--rounds", "2", "--pages", "4000", "--seed"]);
    command.arg(seed.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    group.take(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut most = 0;
    wait_until("the program's end", || {
        group.relieve();
        most = most.max(used());
        child.try_wait().unwrap().is_some()
    });
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let outcome = serde_json::from_str(text.trim());
    (outcome.map_err(|_| format!("{:?} {text}", child.wait())), most)
}
