//! The program that runs in the control group: it writes more than fits in the group and checks
//! every byte.

use std::io::{self, Read};
use std::thread;
use std::time::Duration;

use control::{ControlError, Errno};
use host::{self, errno};
use serde::{Deserialize, Serialize};
use units::PAGE_SIZE;

use crate::args::Hungry;
use crate::terminal::answer;

/// The result of the program.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Pages that were checked.
    pub verified: u64,
    /// Checked pages with wrong contents.
    pub wrong: u64,
    /// Copies of the program that found all their pages right.
    pub copies: u64,
}

/// Waits for a word on standard input, runs, and prints the result.
///
/// # Errors
/// The error of the system call; `EIO` for wrong pages.
pub fn main(options: &Hungry) -> Result<(), ControlError> {
    let mut word = [0; 3];
    let told = std::io::stdin().read_exact(&mut word);
    told.map_err(|e| service::failure::failed("nobody said when to begin", &e))?;
    let outcome = run(options)?;
    let line = serde_json::to_string(&outcome).unwrap_or_default();
    answer(format!("{line}\n"))?;
    match outcome.wrong {
        0 => Ok(()),
        wrong => Err(ControlError::new(Errno::EIO, format!("{wrong} pages were wrong"))),
    }
}

/// Writes and checks all pages in `options.rounds` rounds. The process must have one thread.
///
/// # Errors
/// When no copy of the process can be made.
pub fn run(options: &Hungry) -> Result<Outcome, ControlError> {
    let mut memory = Memory::new(options.pages, options.seed);
    let mut outcome = Outcome::default();
    for round in 0..options.rounds {
        for page in 0..options.pages {
            // A third of the pages is left unchanged, to grow old.
            if round == 0 || !(page as u32 + round).is_multiple_of(3) {
                memory.write(page, round + 1);
            }
        }
        outcome.wrong += memory.verify();
        let code = in_a_copy(|| u8::from(!copy(&mut memory, round)));
        let code = code.map_err(|e| service::failure::failed("cannot make a copy", &e))?;
        outcome.copies += u64::from(code == 0);
        // The pages that the copy wrote are its own.
        outcome.wrong += memory.verify();
        outcome.verified += 2 * options.pages as u64;
    }
    Ok(outcome)
}

/// How often a copy is tried, and the pause between two tries.
const TRIES: u32 = 500;
const PAUSE: Duration = Duration::from_millis(20);

/// As [`host::in_a_copy`]. At the limit of the group a fork fails at once while pages are on their
/// way to the swap device. This waits for those pages.
fn in_a_copy(mut work: impl FnMut() -> u8) -> io::Result<i32> {
    for _ in 1..TRIES {
        match host::in_a_copy(&mut work) {
            Err(error) if error.raw_os_error() == Some(errno::ENOMEM) => thread::sleep(PAUSE),
            done => return done,
        }
    }
    host::in_a_copy(work)
}

/// Checks, in a copy, the pages from before it, and changes half of them for the copy alone.
fn copy(memory: &mut Memory, round: u32) -> bool {
    let before = memory.verify();
    for page in (0..memory.versions.len()).step_by(2) {
        memory.write(page, 1 << 20 | round);
    }
    before == 0 && memory.verify() == 0
}

/// Pages whose contents follow from a seed, the page number and the number of writes.
struct Memory {
    bytes: Vec<u8>,
    versions: Vec<u32>,
    seed: u64,
}

impl Memory {
    fn new(pages: usize, seed: u64) -> Memory {
        Memory { bytes: vec![0; pages * PAGE_SIZE], versions: vec![0; pages], seed }
    }

    fn write(&mut self, page: usize, version: u32) {
        self.versions[page] = version;
        let seed = self.seed;
        let at = page * PAGE_SIZE;
        contents(seed, page, version, &mut self.bytes[at..at + PAGE_SIZE]);
    }

    /// Counts the wrong pages. The order differs from that of the writes: the last run of pages
    /// comes first, but pages in a run follow one another, as in programs.
    fn verify(&self) -> u64 {
        const RUN: usize = 64;
        let mut expected = [0; PAGE_SIZE];
        let mut wrong = 0;
        for first in (0..self.versions.len()).step_by(RUN).rev() {
            for page in first..(first + RUN).min(self.versions.len()) {
                contents(self.seed, page, self.versions[page], &mut expected);
                let at = page * PAGE_SIZE;
                wrong += u64::from(self.bytes[at..at + PAGE_SIZE] != expected);
            }
        }
        wrong
    }
}

/// The contents of a page. Of four pages one is random, one is like text, one repeats the same
/// eight bytes, and one is random in its first half.
fn contents(seed: u64, page: usize, version: u32, into: &mut [u8]) {
    const WORDS: [&[u8; 8]; 8] = [
        b"memory, ",
        b"pages   ",
        b"swapped ",
        b"the old ",
        b"and new ",
        b"stored, ",
        b"in order",
        b"\0\0\0\0\0\0\0\0",
    ];
    if version == 0 {
        return into.fill(0);
    }
    let mut numbers = fastrand::Rng::with_seed(seed ^ (page as u64) << 32 ^ u64::from(version));
    let pattern = numbers.u64(..);
    for (n, chunk) in into.chunks_exact_mut(8).enumerate() {
        let number = match page % 4 {
            0 => numbers.u64(..),
            1 if n % 16 == 0 => numbers.u64(..),
            1 => u64::from_le_bytes(*WORDS[numbers.usize(..WORDS.len())]),
            2 => pattern,
            _ if n < PAGE_SIZE / 16 => numbers.u64(..),
            _ => pattern,
        };
        chunk.copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
