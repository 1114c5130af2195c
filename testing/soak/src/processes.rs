//! Finds, runs and ends other programs.
//!
//! # Why unsafe
//! What a child does before it becomes its program may neither allocate nor lock.

use std::env;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// The program `rampack` of the same build as this one.
///
/// # Errors
/// It does not exist.
pub fn rampack() -> Result<PathBuf> {
    let us = env::current_exe().context("cannot tell where this program is")?;
    let path = us.with_file_name("rampack");
    if !path.is_file() {
        bail!("there is no {}; build it or name another with --rampack PATH", path.display());
    }
    Ok(path)
}

/// The output of a program, standard output and error together, without the last newline.
///
/// # Errors
/// The program cannot run, or fails.
pub fn said(program: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    if !output.status.success() {
        bail!("{} {}: {}: {text}", program.display(), arguments.join(" "), output.status);
    }
    Ok(text)
}

/// A running program. Drop ends it.
pub struct Running {
    child: Child,
    name: String,
    /// Time that it has to end after a request.
    backoff: Duration,
}

/// Time that a program has to end which has nothing to clean up.
const PATIENCE: Duration = Duration::from_millis(500);

impl Running {
    /// Starts `command`, which dies with this process.
    ///
    /// # Errors
    /// The program cannot run.
    pub fn start(command: &mut Command) -> Result<Running> {
        Running::bound(command, Signal::KILL, PATIENCE)
    }

    /// Starts `command`. When this process dies, the program gets a request to end, and `backoff`
    /// to clean up.
    ///
    /// # Errors
    /// The program cannot run.
    pub fn start_gently(command: &mut Command, backoff: Duration) -> Result<Running> {
        Running::bound(command, Signal::TERM, backoff)
    }

    fn bound(command: &mut Command, signal: Signal, backoff: Duration) -> Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        let prepare = move || set_parent_process_death_signal(Some(signal)).map_err(Into::into);
        // SAFETY: the closure only makes a system call, which neither allocates nor locks.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().with_context(|| format!("cannot run {name}"))?;
        Ok(Running { child, name, backoff })
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Succeeds while the program runs.
    ///
    /// # Errors
    /// The program has ended; the message says how.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait().with_context(|| self.name.clone())? {
            None => Ok(()),
            Some(status) => bail!("{} has ended: {status}", self.name),
        }
    }

    /// Kills it at once without a request: right for a stopped process.
    pub fn kill(mut self) {
        self.kill_and_wait();
    }

    fn kill_and_wait(&mut self) {
        // Fails if the program has ended, which is fine. SIGKILL reaches a stopped process, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have files to remove, so it gets a request first.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let begun = Instant::now();
            while begun.elapsed() < self.backoff {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.kill_and_wait();
    }
}

/// The last part of a program's standard error.
pub fn last_words(mut log: File) -> String {
    let mut bytes = Vec::new();
    let read = log.seek(SeekFrom::Start(0)).and_then(|_| log.read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    match (read, text.trim()) {
        (Ok(_), text) if !text.is_empty() => text.to_owned(),
        _ => "it said nothing".to_owned(),
    }
}
