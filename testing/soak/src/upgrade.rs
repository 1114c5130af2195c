//! `rampack-soak upgrade` measures how long clients wait while another program takes the place of a
//! daemon.
//!
//! A daemon under `rampack keep` gets pages over NBD, half of each noise. A client then reads and
//! writes single pages at random and compares what it reads; where its connection ends, it connects
//! again and repeats the request. Meanwhile the daemon is upgraded. The pause is the longest time
//! between two answers. In the end each page is compared.

mod load;
mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::args::UpgradeArgs;
use crate::interrupt;
use crate::processes::{self, Running, said};
use load::{Client, Load};
use report::{Report, Round, Size};

/// Time that a daemon may take to serve.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time that it may take to end.
const LEAVING: Duration = Duration::from_secs(30);

/// Runs the command.
///
/// # Errors
/// A daemon does not start or is not upgraded, a page is wrong, or the command was interrupted.
pub fn run(args: &UpgradeArgs) -> Result<()> {
    let program = args.rampack.clone().map_or_else(processes::rampack, Ok)?;
    let to = args.to.clone().unwrap_or_else(|| program.clone());
    let mut sizes = Vec::new();
    for stored in &args.stored {
        sizes.push(measure(args, (&program, &to), *stored)?);
    }
    let report = Report::new(said(&program, &["--version"])?, args, sizes);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(())
}

/// A daemon and its keeper.
struct Service {
    // Dropped in this order: the daemon has files in the directory.
    keeper: Running,
    program: PathBuf,
    directory: TempDir,
}

impl Service {
    fn start(program: &Path, bytes: u64) -> Result<Service> {
        let directory = TempDir::with_prefix("rampack-upgrade-")
            .context("cannot make a temporary directory")?;
        let mut command = Command::new(program);
        command.arg("--root").arg(directory.path().join("root"));
        command.args(["keep", "serve", "--transport", "nbd", "--size", &bytes.to_string()]);
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut keeper = Running::start_gently(&mut command, LEAVING)?;
        let socket = directory.path().join("root/nbd.sock");
        interrupt::wait_for("rampack keep serve", PATIENCE, || {
            keeper.check()?;
            Ok(Client::connect(&socket).ok())
        })?;
        Ok(Service { keeper, program: program.to_owned(), directory })
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("root/nbd.sock")
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        let root = self.directory.path().join("root");
        let root = root.to_str().context("the name of a temporary directory")?;
        said(&self.program, &[&["--root", root], words].concat())
    }

    /// Bytes of the objects, and bytes of memory for them.
    fn memory(&self) -> Result<(u64, u64)> {
        let text = self.ask(&["get", "zram0", "mm_stat"])?;
        let mut numbers = text.split_whitespace().skip(1).map(str::parse);
        let mut next = || numbers.next().context("mm_stat")?.context("mm_stat");
        Ok((next()?, next()?))
    }
}

fn measure(args: &UpgradeArgs, (program, to): (&Path, &Path), stored: u64) -> Result<Size> {
    let mut service = Service::start(program, stored)?;
    let step = |what: &str| {
        eprintln!("upgrade: {} {what}", units::human(stored));
        interrupt::check()
    };
    step("filling")?;
    let mut load = Load::new(&service.socket(), stored)?;
    load.fill()?;
    let (compressed_bytes, memory_bytes) = service.memory()?;
    let to = to.to_str().context("the path of a program")?;
    let wait = Duration::from_millis(args.milliseconds.into());
    let mut rounds = Vec::new();
    for _ in 0..args.repeat {
        step("upgrade")?;
        let before = load.run_until(|| thread::sleep(wait))?;
        let (mut told, mut took) = (Ok(String::new()), Duration::ZERO);
        let during = load.run_until(|| {
            let begun = Instant::now();
            told = service.ask(&["upgrade", "--to", to]);
            took = begun.elapsed();
            thread::sleep(wait);
        })?;
        told.context("rampack upgrade")?;
        service.keeper.check()?;
        ensure!(during.reconnects > 0, "no program took the place of another");
        rounds.push(Round { before, during, command: took });
    }
    step("comparing")?;
    load.compare()?;
    ensure!(service.ask(&["get", "zram0", "lost_pages"])? == "0", "pages are lost");
    drop(load);
    service.ask(&["stop"])?;
    Ok(Size { stored, compressed_bytes, memory_bytes, rounds })
}
