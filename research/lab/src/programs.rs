//! Finds, runs and ends other programs.

use std::env;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::interrupt::wait_for;
use crate::sys::{self, Signal};

/// The path of the program `name`, searched as a shell does.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    in_directories(env::split_paths(&path), name)
}

/// As `find`, for a program of root, whose directory may be missing in other users' `PATH`.
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
/// Where it should be, and the command that builds it there, by the profile that it has.
pub fn beside_us() -> Result<PathBuf> {
    let us = env::current_exe().context("cannot tell where this program is")?;
    let path = us.with_file_name("rampack");
    if path.is_file() {
        return Ok(path);
    }
    let directory = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let profile = match &*directory {
        "debug" => String::new(),
        "release" => " --release".to_owned(),
        name => format!(" --profile {name}"),
    };
    bail!("program {}, which cargo build{profile} -p rampack-cli makes", path.display())
}

/// The program of `option`, else that of [`beside_us`].
pub fn rampack(option: Option<&Path>) -> Result<PathBuf> {
    let beside = || beside_us().context("--rampack PATH is not given, and there is no");
    option.map_or_else(beside, |path| Ok(path.to_owned()))
}

/// The output of a program, standard output and error together, without the last newline.
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
pub fn version(program: &Path, option: &str) -> String {
    said(program, &[option]).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// The time in UTC, as RFC 3339 writes it. Empty where the system has no date(1).
pub fn now() -> String {
    let date = find("date").unwrap_or_else(|| "/bin/date".into());
    said(&date, &["-u", "+%FT%TZ"]).unwrap_or_default()
}

/// A running program, without input. Drop ends it.
pub struct Running {
    child: Child,
    name: String,
    /// Its standard error.
    log: File,
    /// Time that it has to end after a request.
    backoff: Duration,
}

/// Time that most programs have to end.
const PATIENCE: Duration = Duration::from_millis(500);

impl Running {
    /// Starts `command`, which dies with this process. If `fixed`, it has its memory at the same
    /// addresses each time.
    pub fn start(command: &mut Command, fixed: bool) -> Result<Running> {
        Running::spawn(sys::bind(command, Signal::SIGKILL, fixed), PATIENCE)
    }

    /// Starts `command`. When this process dies, the program gets a request to end, and `backoff`
    /// to clean up. Ctrl-C does not reach it: this process ends it when nobody uses it any more.
    pub fn start_gently(command: &mut Command, backoff: Duration) -> Result<Running> {
        // A process group of its own.
        Running::spawn(sys::bind(command.process_group(0), Signal::SIGTERM, false), backoff)
    }

    fn spawn(command: &mut Command, backoff: Duration) -> Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = tempfile::tempfile().context("cannot make a temporary file")?;
        command.stdin(Stdio::null()).stderr(log.try_clone()?);
        let child = command.spawn().with_context(|| format!("cannot run {name}"))?;
        Ok(Running { child, name, log, backoff })
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Succeeds while the program runs.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait().with_context(|| self.name.clone())? {
            None => Ok(()),
            Some(status) => bail!("{} has ended: {status}", self.name),
        }
    }

    /// Waits until `ready` has an answer while the program runs.
    pub fn wait_until<T>(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let name = self.name.clone();
        let waited = wait_for(&name, limit, || {
            self.check()?;
            ready()
        });
        waited.map_err(|error| anyhow!("{error:#}: {}", self.last_words()))
    }

    /// Waits until the program has ended.
    pub fn finish(mut self, limit: Duration) -> Result<()> {
        let status = wait_for(&self.name, limit, || Ok(self.child.try_wait()?))?;
        if !status.success() {
            let words = self.last_words();
            bail!("{}: {status}: {words}", self.name);
        }
        Ok(())
    }

    /// The last part of its standard error.
    pub fn last_words(&mut self) -> String {
        match text_of(&mut self.log).trim() {
            "" => "it said nothing".to_owned(),
            text => text.to_owned(),
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
        // A server may have files to remove, so we first request it to end.
        if sys::signal(&mut self.child, Signal::SIGTERM).is_ok() {
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

/// All that a program has written to a file, which it need not be text.
pub fn text_of(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
