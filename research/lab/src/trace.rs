//! `rampack-lab trace`: records which pages of a disk a program uses, second by second.
//!
//! The program runs in a memory cgroup with less memory than it wants, and swaps to a disk of ours.
//! A layer in front of the disk records the requests. So a trace has what a disk's policy of tiers
//! sees: a page that the program uses while it is in its own memory is no use of the disk.

mod file;
mod recorder;

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use designs::{Machine, Variants};
use fuse::{LoopDevice, LoopOptions, Mount};
use tempfile::TempDir;

use crate::args::TraceArgs;
use crate::cgroup::Group;
use crate::corpus::{Subject, recipe};
use crate::interrupt;
use crate::programs::Running;
use crate::served;
use crate::swap::{On, alone, kib};
use file::Header;
use recorder::Recorder;

/// Time between two steps of a program that we drive.
const STEP: Duration = Duration::from_millis(50);
/// How long a program may take until it uses the disk.
const PATIENCE: Duration = Duration::from_secs(300);
/// The name of the disk's file.
const NAME: &str = "disk";

/// Runs the command.
///
/// # Errors
/// The program is unknown, missing or fails; swap is impossible here; the file cannot be written;
/// or the command was interrupted.
pub fn run(args: &TraceArgs) -> Result<()> {
    let size = args.size.unwrap_or(3 * args.limit);
    if size <= args.limit {
        bail!("--size is not more than --limit, so nothing would be swapped");
    }
    let recipe = args.program.as_deref().map(recipe).transpose()?;
    served::check()?;
    let turn = alone(args.force)?;
    let machine = Machine::of(Variants::default()).map_err(|error| anyhow!("{error}"))?;
    let disk = machine.add().map_err(|error| anyhow!("{error}"))?;
    disk.set_disksize(args.swap_size).map_err(|error| anyhow!("{error}"))?;
    let recorder = Arc::new(Recorder::new(disk.as_device()));

    // Dropped from the last one to the first: when the program is killed, its swap is empty.
    let directory =
        TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
    let mut mount = Mount::new(directory.path(), fuse::Options::default())?;
    let file = mount.add(NAME, recorder.clone())?;
    let options = LoopOptions { flush: false, ..LoopOptions::default() };
    let mut device = LoopDevice::attach(&file, options)?;
    let mut on = On::new(device.path(), turn.others).context("swap on our disk")?;
    let group = Group::new(Some(args.limit))?;
    recorder.begin();
    let mut program = match recipe {
        Some(recipe) => Program::Ours(recipe.start(size / PAGE, Some(&group))?),
        None => Program::Theirs(theirs(&args.command, &group)?),
    };
    let grown = program.run(size, Duration::from_secs(args.seconds.into()), &recorder)?;
    let recorded = recorder.end()?;
    let header = Header {
        program: args.program.clone().unwrap_or_else(|| "-".to_owned()),
        command: program.command(&args.command),
        limit: args.limit,
        grown,
    };
    drop(program);
    group.kill()?;
    on.off()?;
    drop(group);
    device.detach()?;
    mount.unmount(false)?;

    let sample = file::sample(recorded, args.pages as usize, args.seed)?;
    let text = file::text(&header, &sample)?;
    fs::write(&args.out, &text).with_context(|| format!("cannot write {}", args.out.display()))?;
    println!(
        "{}: {} uses of {} pages in {} s, of {} pages that were used; {} bytes",
        args.out.display(),
        sample.uses.len(),
        sample.pages,
        sample.seconds,
        sample.of,
        text.len()
    );
    Ok(())
}

const PAGE: u64 = units::PAGE_SIZE as u64;

/// The program that is recorded.
enum Program {
    Ours(Subject),
    Theirs(Running),
}

/// Starts a program of the user's.
fn theirs(words: &[OsString], group: &Group) -> Result<Running> {
    let (name, arguments) = words.split_first().context("which program?")?;
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    group.take(&mut command)?;
    Running::start(&mut command, false)
}

impl Program {
    fn running(&mut self) -> &mut Running {
        match self {
            Program::Ours(subject) => &mut subject.running,
            Program::Theirs(running) => running,
        }
    }

    /// Its command line.
    fn command(&self, words: &[OsString]) -> String {
        match self {
            Program::Ours(subject) => subject.command.clone(),
            Program::Theirs(_) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                words.join(" ")
            }
        }
    }

    /// Lets it work for so long after its first use of the disk, or until it ends; it grows to
    /// `size` bytes. Returns the most bytes that it had.
    fn run(&mut self, size: u64, time: Duration, recorder: &Recorder) -> Result<u64> {
        let (started, mut begun) = (Instant::now(), Instant::now());
        let (mut most, mut is_grown) = (0, false);
        while begun.elapsed() < time {
            interrupt::check()?;
            if recorder.is_empty() && started.elapsed() < PATIENCE {
                begun = Instant::now();
            }
            let name = format!("/proc/{}/status", self.running().id());
            if let Some(status) = self.running().child().try_wait()? {
                if !status.success() {
                    bail!("the program has ended: {status}");
                }
                break;
            }
            let of = |row| kib(&name, row).unwrap_or(0);
            most = most.max(of("RssAnon") + of("VmSwap"));
            if let Program::Ours(subject) = self {
                if most >= size && !is_grown {
                    is_grown = true;
                    subject.is_large_enough()?;
                }
                (subject.grow)()?;
            }
            thread::sleep(STEP);
        }
        Ok(most)
    }
}
