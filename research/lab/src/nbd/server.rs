//! Servers: ours and others', each on a socket of its own.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::programs::{self, Running, last_words};

/// Time a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub struct Server {
    /// Its name in results.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// Its version, in its own words.
    pub version: String,
    /// The URI of its export.
    pub uri: String,
    running: Running,
}

impl Server {
    /// Starts our server with one device of `bytes`.
    ///
    /// # Errors
    /// The server does not start.
    pub fn ours(program: &Path, directory: &Path, bytes: u64) -> Result<Server> {
        let root = directory.join("rampack");
        let mut command = Command::new(program);
        command.arg("serve").arg("--root").arg(&root);
        command.args(["--transport", "nbd", "--num-devices", "1"]);
        command.args(["--size", &bytes.to_string()]);
        Server::start("rampack", program, command, &root.join("nbd.sock"), "zram0")
    }

    /// Starts nbdkit's memory plugin with one of its allocators.
    ///
    /// # Errors
    /// The server does not start.
    pub fn nbdkit(
        program: &Path,
        allocator: Option<&str>,
        directory: &Path,
        bytes: u64,
    ) -> Result<Server> {
        let (name, socket) = match allocator {
            Some(allocator) => (format!("nbdkit memory {allocator}"), format!("{allocator}.sock")),
            None => ("nbdkit memory".to_owned(), "nbdkit.sock".to_owned()),
        };
        let socket = directory.join(socket);
        let mut command = Command::new(program);
        command.args(["--foreground", "--newstyle", "--unix"]).arg(&socket);
        command.arg("memory").arg(format!("size={bytes}"));
        if let Some(allocator) = allocator {
            command.arg(format!("allocator={allocator}"));
        }
        Server::start(&name, program, command, &socket, "")
    }

    fn start(
        name: &str,
        program: &Path,
        mut command: Command,
        socket: &Path,
        export: &str,
    ) -> Result<Server> {
        let file = program.file_name().unwrap_or_default().to_string_lossy();
        let directory = socket.parent().unwrap_or(Path::new("")).to_string_lossy();
        let arguments: Vec<String> = command
            .get_args()
            .map(|argument| argument.to_string_lossy().replace(&*directory, "DIR"))
            .collect();
        let log = tempfile::tempfile().context("cannot make a temporary file")?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?);
        let mut running = Running::start(&mut command, false)?;
        let listening = interrupt::wait_for(name, PATIENCE, || {
            running.check()?;
            Ok(UnixStream::connect(socket).ok())
        });
        if let Err(error) = listening {
            bail!("{error:#}: {}", last_words(log));
        }
        Ok(Server {
            name: name.to_owned(),
            command: format!("{file} {}", arguments.join(" ")),
            version: programs::version(program, "--version"),
            uri: format!("nbd+unix:///{export}?socket={}", socket.display()),
            running,
        })
    }

    /// Succeeds while the server runs.
    ///
    /// # Errors
    /// The server has ended.
    pub fn check(&mut self) -> Result<()> {
        self.running.check()
    }

    /// Bytes of resident memory of the server.
    ///
    /// # Errors
    /// The server has ended.
    pub fn resident_bytes(&mut self) -> Result<u64> {
        self.check()?;
        let path = format!("/proc/{}/status", self.running.id());
        let text = fs::read_to_string(&path).context(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let number = line.split_ascii_whitespace().next().unwrap_or_default();
        Ok(number.parse::<u64>().context("its resident memory")? * 1024)
    }
}

/// The allocators of nbdkit to compare with: the compressing one if nbdkit was built with it, and
/// the plain one.
///
/// # Errors
/// nbdkit has no memory plugin.
pub fn allocators(nbdkit: &Path) -> Result<Vec<Option<&'static str>>> {
    let text = programs::said(nbdkit, &["--dump-plugin", "memory"])?;
    let zstd = text.lines().any(|line| line.trim() == "zstd=yes");
    if !zstd {
        eprintln!("this nbdkit is built without zstd, so only its plain allocator takes part");
    }
    Ok(zstd.then_some(Some("zstd")).into_iter().chain([None]).collect())
}
