//! sort(1) of a file larger than the group's memory, in one piece in memory.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::task::{Task, Verdict, in_group};
use crate::interrupt;
use crate::pressure::{Measured, SwapGroup};
use crate::programs::{Running, last_words};

/// Words of the lines, so that they compress as text does.
const WORDS: [&str; 16] = [
    "page", "frame", "order", "zone", "object", "class", "handle", "slot", "stream", "lane", "pin",
    "block", "device", "sector", "codec", "door",
];

/// A file to sort, and the expected result.
pub struct Prepared {
    file: PathBuf,
    lines: u64,
    sum: String,
}

/// Makes the file, and sorts it without a memory limit.
///
/// # Errors
/// The disk is full, sort fails, or the run is interrupted.
pub fn prepare(task: &Task<'_>) -> Result<Prepared> {
    let file = task.directory.join("unsorted");
    let lines = write_lines(&file, task.bytes, task.seed)
        .with_context(|| format!("cannot write {}", file.display()))?;
    let sorted = task.directory.join("expected");
    let log = tempfile::tempfile().context("cannot make a temporary file")?;
    let mut command = sort(task, &file, &sorted);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?);
    let mut running = Running::start(&mut command, false)?;
    let status = interrupt::wait_for("sort", task.timeout, || Ok(running.child().try_wait()?))?;
    if !status.success() {
        bail!("sort without a limit: {status}: {}", last_words(log));
    }
    let sum = sum(&sorted)?;
    std::fs::remove_file(&sorted)?;
    Ok(Prepared { file, lines, sum })
}

/// Sorts the file in the group.
///
/// # Errors
/// sort cannot start, or the group or the swap it needs is gone.
pub fn run(
    task: &Task<'_>,
    prepared: &Prepared,
    swap_group: &mut SwapGroup,
) -> Result<(Verdict, Measured)> {
    let sorted = task.directory.join("sorted");
    let mut command = sort(task, &prepared.file, &sorted);
    let (said, measured) = in_group(&mut command, "sort", swap_group)?;
    let verdict = match said {
        Err(message) => Err(message),
        Ok(_) if sum(&sorted)? == prepared.sum => {
            let lines = prepared.lines;
            Ok(format!("{lines} lines, the same SHA-256 as sorted without a limit"))
        }
        Ok(_) => Err("what was sorted differs from what is sorted without a limit".to_owned()),
    };
    let _ = std::fs::remove_file(&sorted);
    Ok((verdict, measured))
}

/// The command that sorts in one piece. sort keeps 32 bytes for each line besides the line.
fn sort(task: &Task<'_>, from: &Path, to: &Path) -> Command {
    let mut command = Command::new(&task.program);
    command.args(["--parallel=1", "--buffer-size", &(task.bytes * 3).to_string()]);
    command.arg("--temporary-directory").arg(task.directory).arg("--output").arg(to).arg(from);
    command.env("LC_ALL", "C");
    command
}

fn write_lines(path: &Path, bytes: u64, seed: u64) -> std::io::Result<u64> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut written, mut lines) = (0, 0);
    while written < bytes {
        let mut line = format!("{:016x}", random.u64(..));
        for _ in 0..4 + random.u64(..12) {
            line.push(' ');
            line.push_str(WORDS[random.usize(..WORDS.len())]);
        }
        line.push('\n');
        file.write_all(line.as_bytes())?;
        written += line.len() as u64;
        lines += 1;
    }
    file.flush()?;
    Ok(lines)
}

fn sum(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = file.read(&mut buffer).with_context(|| path.display().to_string())?;
        if length == 0 {
            break;
        }
        hash.update(&buffer[..length]);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_lines_from_the_same_seed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let lines = write_lines(&path("a"), 10_000, 1).expect("a file");
        assert_eq!(lines, write_lines(&path("b"), 10_000, 1).expect("a file"));
        write_lines(&path("c"), 10_000, 2).expect("a file");
        let sum = |name: &str| sum(&path(name)).expect("a sum");
        assert_eq!(sum("a"), sum("b"));
        assert_ne!(sum("a"), sum("c"));
        let text = std::fs::read_to_string(path("a")).expect("text");
        assert_eq!(text.lines().count() as u64, lines);
        assert!((10_000..10_200).contains(&text.len()));
    }
}
