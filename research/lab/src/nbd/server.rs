//! Servers: ours and others', each on a socket of its own.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use procfs::process::Process;

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
    /// Starts all that there are, each with `bytes`; ours first. What is not installed is said.
    pub fn all(ours: &Path, directory: &Path, bytes: u64) -> Result<Vec<Server>> {
        let size = bytes.to_string();
        let mut all = Vec::new();
        let mut start = |name: &str, program: &Path, words: &[&str], socket: &str, export: &str| {
            let mut command = Command::new(program);
            command.args(words).current_dir(directory);
            Server::start(name, program, command, &directory.join(socket), export)
                .map(|server| all.push(server))
        };
        let serve = "serve --root rampack --transport nbd --num-devices 1 --size";
        let serve: Vec<&str> = serve.split(' ').chain([&*size]).collect();
        start("rampack", ours, &serve, "rampack/nbd.sock", "zram0")?;
        let plain = ours.with_file_name("examples/serve_plain");
        match plain.exists() {
            true => start("our server, plain memory", &plain, &["plain", &size], "plain", "disk")?,
            false => eprintln!("there is no {}, an example of rampack-nbd", plain.display()),
        }
        match programs::find("nbdkit") {
            Some(nbdkit) => {
                for allocator in allocators(&nbdkit)? {
                    let name = format!("nbdkit memory {allocator}");
                    let words = format!(
                        "--foreground --newstyle --unix {allocator} memory size={size} \
                         allocator={allocator}"
                    );
                    let words: Vec<&str> = words.split(' ').collect();
                    start(&name, &nbdkit, &words, allocator, "")?;
                }
            }
            None => eprintln!("nbdkit is not installed (package nbdkit)"),
        }
        match programs::find("qemu-nbd") {
            Some(qemu) => {
                File::create(directory.join("disk"))?.set_len(bytes)?;
                let socket = format!("--socket={}", directory.join("qemu").display());
                let words = "--persistent --shared=8 --format=raw --cache=unsafe disk";
                let words: Vec<&str> = words.split(' ').chain([&*socket]).collect();
                start("qemu-nbd, file in memory", &qemu, &words, "qemu", "")?;
            }
            None => eprintln!("qemu-nbd is not installed (package qemu-utils)"),
        }
        Ok(all)
    }

    fn start(
        name: &str,
        program: &Path,
        mut command: Command,
        socket: &Path,
        export: &str,
    ) -> Result<Server> {
        let file = program.file_name().unwrap_or_default().to_string_lossy();
        let words: Vec<_> = command.get_args().map(|it| it.to_string_lossy()).collect();
        let line = format!("{file} {}", words.join(" "));
        command.stdout(Stdio::null());
        let mut running = Running::start(&mut command, false)?;
        running.wait_until(PATIENCE, || Ok(UnixStream::connect(socket).ok()))?;
        Ok(Server {
            name: name.to_owned(),
            command: line,
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

    /// Seconds of CPU time of all its threads since it began, also of those that have ended.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = Process::new(self.running.id().cast_signed())?.stat()?;
        Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    }
}

/// The allocators of nbdkit to compare with: the plain one, and the compressing one if it has that.
fn allocators(nbdkit: &Path) -> Result<Vec<&'static str>> {
    let text = programs::said(nbdkit, &["--dump-plugin", "memory"])?;
    let zstd = text.lines().any(|line| line.trim() == "zstd=yes");
    if !zstd {
        eprintln!("this nbdkit is built without zstd, so only its plain allocator takes part");
    }
    Ok(["sparse"].into_iter().chain(zstd.then_some("zstd")).collect())
}
