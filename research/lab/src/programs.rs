//! Finds, runs and ends other programs.

use std::env;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::sys::{self, Signal};

/// The path of the program `name`, searched as a shell does.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    in_directories(env::split_paths(&path), name)
}

/// As `find`, for a program of root, whose directory may be missing in other users' `PATH`.
#[must_use]
pub fn find_for_root(name: &str) -> Option<PathBuf> {
    find(name).or_else(|| in_directories(["/usr/sbin", "/sbin"].map(PathBuf::from), name))
}

fn in_directories(all: impl IntoIterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    all.into_iter().map(|directory| directory.join(name)).find(|path| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

/// The program `rampack` of the same build as this one.
///
/// # Errors
/// It does not exist.
pub fn beside_us() -> Result<PathBuf> {
    let us = env::current_exe().context("cannot tell where this program is")?;
    let path = us.with_file_name("rampack");
    if !path.is_file() {
        bail!(
            "there is no {}; build it (cargo build --release -p rampack-cli) or name another with \
             --rampack PATH",
            path.display()
        );
    }
    Ok(path)
}

/// The output of a program, standard output and error together, without the last newline.
///
/// # Errors
/// The program cannot run, or fails.
pub fn said(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    if !output.status.success() {
        bail!("{} {}: {}: {text}", program.display(), arguments.join(" "), output.status);
    }
    Ok(text)
}

/// The first line of a program's version message, or an empty text.
#[must_use]
pub fn version(program: &Path, option: &str) -> String {
    said(program, &[option]).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// A running program. Drop ends it.
pub struct Running {
    child: Child,
    name: String,
    /// Time that it has to end after a request.
    backoff: Duration,
}

/// Time that most programs have to end.
const PATIENCE: Duration = Duration::from_millis(500);

impl Running {
    /// Starts `command`, which dies with this process; `fixed` as in [`sys::bind`].
    ///
    /// # Errors
    /// The program cannot run.
    pub fn start(command: &mut Command, fixed: bool) -> Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child =
            sys::bind(command, fixed).spawn().with_context(|| format!("cannot run {name}"))?;
        Ok(Running { child, name, backoff: PATIENCE })
    }

    /// Starts `command`. When this process dies, the program gets a request to end, and `backoff`
    /// to clean up.
    ///
    /// # Errors
    /// The program cannot run.
    pub fn start_gently(command: &mut Command, backoff: Duration) -> Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child =
            sys::bind_gently(command).spawn().with_context(|| format!("cannot run {name}"))?;
        Ok(Running { child, name, backoff })
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its process id.
    #[must_use]
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
}

impl Running {
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
        // A server may have files to remove, so we first request it to end.
        if sys::signal(&mut self.child, Signal::Terminate).is_ok() {
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
#[must_use]
pub fn last_words(mut log: File) -> String {
    let mut bytes = Vec::new();
    let read = log.seek(SeekFrom::Start(0)).and_then(|_| log.read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    match (read, text.trim()) {
        (Ok(_), text) if !text.is_empty() => text.to_owned(),
        _ => "it said nothing".to_owned(),
    }
}
