//! The seed of a test run, and the command that runs a failed test with it again.

use std::env;
use std::io::Read;
use std::process::Command;

use anyhow::Result;
use fs_err::File;

/// The variable that random tests take their seed from.
pub const VARIABLE: &str = "RAMPACK_SEED";

/// How many tests of a program run at once.
pub const THREADS: &str = "RUST_TEST_THREADS";

/// The seed of `RAMPACK_SEED`, or one from the system's random numbers.
pub fn draw() -> Result<String> {
    if let Ok(given) = env::var(VARIABLE) {
        return Ok(given);
    }
    let mut bytes = [0; 8];
    let source = "/dev/urandom";
    File::open(source)?.read_exact(&mut bytes)?;
    Ok(format!("{:#x}", u64::from_le_bytes(bytes)))
}

/// The command line that runs the test `name` again as the `cargo test` in `command` did, with the
/// same seed, build and checker.
pub fn again(command: &Command, name: &str) -> String {
    // Those about skips change nothing for a test that ran, nor does a number of tests for one.
    let passing = ["RAMPACK_SKIPS", "RAMPACK_STRICT", THREADS];
    let mut words = Vec::new();
    for (variable, value) in command.get_envs() {
        let variable = variable.to_string_lossy();
        if let Some(value) = value.filter(|_| !passing.contains(&&*variable)) {
            words.push(format!("{variable}={}", quoted(&value.to_string_lossy())));
        }
    }
    words.push("cargo".into());
    words.extend(command.get_args().map(|word| quoted(&word.to_string_lossy())));
    words.push(format!("-- --exact {}", quoted(name)));
    words.join(" ")
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{THREADS, VARIABLE, again};

    #[test]
    fn a_failed_test_is_run_as_before() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--package", "rampack-sim"]).env("RUSTFLAGS", "--cfg shuttle");
        command.env(VARIABLE, "0x2a").env("RAMPACK_SKIPS", "/tmp/skips");
        command.env_remove("RAMPACK_STRICT").env(THREADS, "4");
        let line = again(&command, "tests::it's_one");
        let expected = "RAMPACK_SEED=0x2a RUSTFLAGS='--cfg shuttle' cargo test --package \
                        rampack-sim -- --exact 'tests::it'\\''s_one'";
        assert_eq!(line, expected);
    }
}
