//! stress-ng's virtual memory stressor: it writes patterns all over its memory and verifies them.

use std::process::Command;

use anyhow::Result;

use super::task::{Task, Verdict, in_group};
use crate::pressure::{Measured, SwapGroup};

/// The method: random bytes in each 64-bit word, verified in order.
const METHOD: &str = "rand-set";
/// An operation of the method covers 4096 words, or 2^15 bytes.
const OPERATION: u32 = 15;
/// Number of times that all memory is written and verified.
const ROUNDS: u64 = 4;

/// Runs stress-ng in the group.
///
/// # Errors
/// It cannot start, or the group or the swap it needs is gone.
pub fn run(task: &Task<'_>, swap_group: &mut SwapGroup) -> Result<(Verdict, Measured)> {
    let mut command = Command::new(&task.program);
    // Without --oomable, stress-ng silently begins again when the system kills it.
    command.args(["--vm", "1", "--vm-keep", "--oomable", "--verify"]);
    command.args(["--vm-method", METHOD, "--vm-bytes", &task.bytes.to_string()]);
    let operations = ROUNDS * (task.bytes >> OPERATION).max(1);
    command.args(["--vm-ops", &operations.to_string(), "--seed", &task.seed.to_string()]);
    command.args(["--timeout", &task.timeout.as_secs().to_string(), "--metrics"]);
    command.arg("--temp-path").arg(task.directory);
    let (said, measured) = in_group(&mut command, "stress-ng", swap_group)?;
    Ok((said.and_then(|said| judge(&said)), measured))
}

/// It must have verified something, and reported success.
fn judge(said: &str) -> Verdict {
    let metrics = said.lines().filter(|line| line.contains("metrc") || line.contains("info"));
    let operations = metrics.filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let at = words.iter().position(|word| *word == "vm")?;
        words.get(at + 1)?.parse::<u64>().ok()
    });
    match operations.max() {
        Some(operations) if operations > 0 && said.contains("successful run completed") => {
            Ok(format!("{operations} operations, that is {ROUNDS} rounds, verified by stress-ng"))
        }
        _ => Err(format!("stress-ng did not succeed: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn what_it_says() {
        let said = "stress-ng: info:  [7] dispatching hogs: 1 vm\n\
            stress-ng: metrc: [7] stressor       bogo ops real time  usr time\n\
            stress-ng: metrc: [7] vm                    4      1.02      0.97\n\
            stress-ng: info:  [7] successful run completed in 1.02s\n";
        let verdict = judge(said).expect("a success");
        assert!(verdict.starts_with("4 operations"), "{verdict}");
        assert!(judge(&said.replace("successful", "failed")).is_err());
        assert!(judge(&said.replace(" 4 ", " 0 ")).is_err());
        assert!(judge("").is_err());
    }
}
