//! Servers: ours and others', each on a socket of its own.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::proc_files::kib;
use crate::programs::{self, Running};

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
    pub fn ours(program: &Path, directory: &Path, bytes: u64) -> Result<Server> {
        let root = directory.join("rampack");
        let mut command = Command::new(program);
        command.arg("serve").arg("--root").arg(&root);
        command.args(["--transport", "nbd", "--num-devices", "1"]);
        command.args(["--size", &bytes.to_string()]);
        Server::start("rampack", program, command, &root.join("nbd.sock"), "zram0")
    }

    /// Starts nbdkit's memory plugin with one of its allocators.
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
        command.stdout(Stdio::null());
        let mut running = Running::start(&mut command, false)?;
        running.wait_until(PATIENCE, || Ok(UnixStream::connect(socket).ok()))?;
        Ok(Server {
            name: name.to_owned(),
            command: format!("{file} {}", arguments.join(" ")),
            version: programs::version(program, "--version"),
            uri: format!("nbd+unix:///{export}?socket={}", socket.display()),
            running,
        })
    }

    /// Bytes of resident memory of the server.
    pub fn resident_bytes(&self) -> Result<u64> {
        kib(&format!("/proc/{}/status", self.running.id()), "VmRSS")
            .with_context(|| format!("{} has ended", self.name))
    }
}

/// The allocators of nbdkit to compare with: the compressing one if nbdkit was built with it, and
/// the plain one.
pub fn allocators(nbdkit: &Path) -> Result<Vec<Option<&'static str>>> {
    let text = programs::said(nbdkit, &["--dump-plugin", "memory"])?;
    let zstd = text.lines().any(|line| line.trim() == "zstd=yes");
    if !zstd {
        eprintln!("this nbdkit is built without zstd, so only its plain allocator takes part");
    }
    Ok(zstd.then_some(Some("zstd")).into_iter().chain([None]).collect())
}
