//! `rampack selftest swap`: proves on this machine that swap devices work, before anyone relies on
//! them.
//!
//! It starts a daemon with a swap device of the highest priority. It runs a program ([`hungry`]) in
//! a memory control group ([`group`]) that may have a third of the memory the program uses. The
//! program checks every byte. Only that program is made to swap; the daemon is outside the group.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::{self, Controller, effective_user, errno, swaps};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use units::{PAGE_SIZE, human};

use crate::args::{Hungry, Selftest, SelftestOf, SelftestSwap};
use crate::terminal::{answer, program};
use service::client::call;
use service::events::Events;
use service::failure::{failed, say};
use service::protocol::{DaemonReport, Request, Status, Stop, SwapOff};
use service::root::Root;
use service::swap::report::{PoolReport, SwapReport};
use service::swap::{header, served};

pub mod group;
pub mod hungry;

use group::Group;

/// The program uses this many times the memory that it may have.
const TIMES: u64 = 3;
/// The percentage of its memory that a copy of the program writes anew.
const COPIED: u64 = 50;
/// With a backing store, the memory of the cache is the memory of the program divided by this: most
/// of the swapped-out pages have to be written back then.
const POOL_PART: u64 = 4;
/// How long the daemon may take to be ready.
const STARTING: Duration = Duration::from_secs(60);
/// How often the daemon is asked to end, and the time between two tries. It refuses while there is
/// no memory for the swapped-out pages.
const STOPS: u32 = 30;
const AGAIN: Duration = Duration::from_secs(1);
/// How often the state is checked.
const LOOK: Duration = Duration::from_millis(100);

/// `rampack selftest …`.
///
/// # Errors
/// The error of the step or check that failed. No part of the test is left, with or without an
/// error.
pub fn run(options: &Selftest) -> Result<(), ControlError> {
    match &options.what {
        SelftestOf::Swap(options) => swap(options),
        SelftestOf::Hungry(options) => hungry::main(options),
    }
}

/// The counts seen while the program ran.
#[derive(Default)]
struct Seen {
    used: u64,
    cached_pages: u64,
    disk_pages: u64,
    pool: PoolReport,
    /// Page faults of the threads that serve the device.
    faults: u64,
    /// How often a process of the group slept at its limit and was woken.
    relieved: u64,
}

impl Seen {
    fn look(&mut self, daemon: &DaemonReport) {
        let pool = daemon.swap_cache.clone().unwrap_or_default();
        for swap in &daemon.swaps {
            self.used = self.used.max(swap.used);
            self.cached_pages = self.cached_pages.max(swap.cached_pages);
            self.disk_pages = self.disk_pages.max(swap.disk_pages);
            let serving = &swap.serving;
            self.faults = self.faults.max(serving.minor_faults + serving.major_faults);
        }
        if pool.pool_bytes > self.pool.pool_bytes {
            self.pool = pool;
        } else {
            let most = (self.pool.stored_pages, self.pool.pool_bytes);
            self.pool = pool;
            (self.pool.stored_pages, self.pool.pool_bytes) = most;
        }
    }
}

/// The daemon. A drop stops it.
struct Daemon {
    root: Root,
    child: Child,
}

impl Daemon {
    fn start(root: Root, options: &SelftestSwap) -> Result<Daemon, ControlError> {
        let mut command = own_program(&root)?;
        command.args(["swap", "on", "--size", &options.size.text]);
        command.args(["--priority", &host::HIGHEST_PRIORITY.to_string()]);
        if let Some(path) = &options.backing {
            command.arg("--backing").arg(path);
            let most = (options.limit.bytes / POOL_PART).max(1 << 20);
            command.args(["--memory", &most.to_string()]);
        } else {
            command.args(["--memory", "100%"]);
        }
        if let Some(name) = &options.algorithm {
            command.args(["--algorithm", name]);
        }
        // Only the program of the test is short of memory, so a loop device is safe.
        if served::is_there().is_err() {
            command.args(["--transport", "fuse"]);
        }
        // The user sees its messages.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = command.spawn().map_err(|e| failed("cannot start a daemon", &e))?;
        Ok(Daemon { root, child })
    }

    /// Waits until the kernel swaps to the device.
    fn ready(&mut self, events: &Events) -> Result<SwapReport, ControlError> {
        let end = Instant::now() + STARTING;
        while Instant::now() < end {
            let ended = self.child.try_wait().map_err(|e| failed("cannot ask for it", &e))?;
            if ended.is_some() {
                let message = "the daemon could not be started: it said why";
                return Err(ControlError::new(Errno::ENODEV, message));
            }
            if self.root.control_socket().exists()
                && let Ok(report) = call::<DaemonReport>(&self.root, &Request::Status(Status {}))
                && let Some(swap) = report.swaps.into_iter().find(|swap| swap.active)
            {
                return Ok(swap);
            }
            check_interrupted(events, LOOK)?;
        }
        Err(ControlError::new(Errno(errno::ETIMEDOUT), "the daemon was not ready in time"))
    }

    fn report(&self) -> Result<DaemonReport, ControlError> {
        call(&self.root, &Request::Status(Status {}))
    }

    /// Has the daemon read everything back and remove the device.
    fn drain(&self) -> Result<(), ControlError> {
        call(&self.root, &Request::SwapOff(SwapOff { name: None }))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for _ in 0..STOPS {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            if !self.root.control_socket().exists() {
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
                let _ = self.child.wait();
                return;
            }
            match call::<()>(&self.root, &Request::Stop(Stop { force: true })) {
                Ok(()) => {
                    let _ = self.child.wait();
                    return;
                }
                Err(error) => say(&format!("rampack: {}\n", error.message)),
            }
            thread::sleep(AGAIN);
        }
        // To kill the daemon would lose the swapped-out pages.
        let program = program(&self.root);
        say(&format!("rampack: the daemon of the test is left; end it with {program} stop\n"));
    }
}

/// A child process that is killed when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // The program may have made a copy of itself.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

fn own_program(root: &Root) -> Result<Command, ControlError> {
    use std::os::unix::process::CommandExt;
    let program = std::env::current_exe().map_err(|e| failed("cannot find this program", &e))?;
    let mut command = Command::new(program);
    // Ctrl-C goes to this process, which ends the others.
    command.arg("--root").arg(root.path()).env_remove("RAMPACK_ROOT").process_group(0);
    Ok(command)
}

fn check_interrupted(events: &Events, time: Duration) -> Result<(), ControlError> {
    match events.wait(time) {
        None => Ok(()),
        Some(_) => Err(ControlError::new(Errno(errno::EINTR), "the test was broken off")),
    }
}

/// Checks the options and the machine before anything is made.
fn check(options: &SelftestSwap) -> Result<Controller, ControlError> {
    if effective_user() != 0 {
        let message = "the test needs root, for swap space and a control group; run it with sudo";
        return Err(ControlError::new(Errno::EPERM, message));
    }
    let highest = i32::from(host::HIGHEST_PRIORITY);
    if let Some(other) = swaps::all().into_iter().find(|other| other.priority >= highest) {
        let path = other.path.display();
        let message = format!(
            "{path} has the highest priority there is ({highest}), so the test could not tell \
             which swap space was used; lower it with `swapoff {path} && swapon -p 100 {path}`"
        );
        return Err(ControlError::new(Errno::EBUSY, message));
    }
    let needed = options.limit.bytes.saturating_mul(TIMES * (100 + COPIED)) / 100;
    if options.size.bytes < needed {
        let message = format!(
            "--size {} is too small for --limit {}: the program needs {} of swap space at most",
            options.size.text,
            options.limit.text,
            human(needed)
        );
        return Err(ControlError::invalid(message));
    }
    Controller::find().ok_or_else(|| {
        let message = "no memory controller of control groups is mounted, neither version 1 nor 2";
        ControlError::new(Errno::ENODEV, message)
    })
}

fn swap(options: &SelftestSwap) -> Result<(), ControlError> {
    let controller = check(options)?;
    let events = Events::listen().map_err(|e| failed("cannot listen for signals", &e))?;
    let root = Root::choose(Some(&PathBuf::from(format!(
        "/run/rampack-selftest-{}",
        std::process::id()
    ))))?;
    for limit in host::group_limits() {
        say(&format!("rampack: this program is itself limited: {limit}\n"));
    }
    // The group is dropped before the daemon: pages that are read back at the end must have room.
    let mut daemon = Daemon::start(root, options)?;
    let group = Group::make(&controller, options.limit.bytes)?;
    let device = daemon.ready(&events)?;
    answer(format!(
        "{} ({}) is swapped to, {} of it; a program that needs {} may have {}\n",
        device.name,
        device.block_device,
        human(device.bytes),
        human(options.limit.bytes * TIMES),
        human(options.limit.bytes)
    ))?;
    let before = swapped();
    let began = Instant::now();
    let (outcome, seen) = starve(options, &daemon, &group, &events)?;
    let (after, took) = (swapped(), began.elapsed());
    drop(group);
    daemon.drain()?;
    let report = daemon.report()?;
    let (out, back) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    let mut wrong = problems(options, &outcome, &seen, (out, back));
    if !report.swaps.is_empty() {
        wrong.push("a swap device is left".into());
    }
    drop(daemon);
    answer(figures(&outcome, &seen, (out, back), took))?;
    match wrong.is_empty() {
        true => answer("PASS\n"),
        false => {
            answer("FAIL\n")?;
            Err(ControlError::new(Errno::EIO, wrong.join("; ")))
        }
    }
}

/// Runs the program in its group to its end.
fn starve(
    options: &SelftestSwap,
    daemon: &Daemon,
    group: &Group,
    events: &Events,
) -> Result<(hungry::Outcome, Seen), ControlError> {
    let pages = (options.limit.bytes * TIMES) as usize / PAGE_SIZE;
    let [a, b, c, d, e, f, g, h, ..] = header::new_uuid();
    let seed = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    let hungry = Hungry { pages, rounds: options.rounds, seed };
    let mut command = own_program(&daemon.root)?;
    command.args(["selftest", "hungry", "--pages", &hungry.pages.to_string()]);
    command.args(["--rounds", &hungry.rounds.to_string(), "--seed", &hungry.seed.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let what = |error: std::io::Error| failed("cannot run the program of the test", &error);
    let mut child = Ended(command.spawn().map_err(what)?);
    group.take(child.0.id())?;
    // The program waits for this word, so that all of its memory is charged to the group.
    if let Some(mut input) = child.0.stdin.take() {
        input.write_all(b"go\n").map_err(what)?;
    }
    let mut output = child.0.stdout.take();
    let mut seen = Seen::default();
    let status = loop {
        if let Some(status) = child.0.try_wait().map_err(what)? {
            break status;
        }
        seen.look(&daemon.report()?);
        seen.relieved += u64::from(group.relieve());
        check_interrupted(events, LOOK)?;
    };
    seen.look(&daemon.report()?);
    let mut text = String::new();
    if let Some(output) = &mut output {
        output.read_to_string(&mut text).map_err(what)?;
    }
    match serde_json::from_str(text.trim()) {
        Ok(outcome) => Ok((outcome, seen)),
        Err(_) => {
            let message = format!(
                "FAIL: the program in the group did not come to its end ({status}): a page could \
                 not be swapped out or read back; the kernel's log says more"
            );
            Err(ControlError::new(Errno::EIO, message))
        }
    }
}

/// Pages swapped out and in since the system started (proc_vmstat(5)).
fn swapped() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(' '));
        fields.find(|field| field.0 == name).and_then(|field| field.1.parse().ok()).unwrap_or(0)
    };
    (field("pswpout"), field("pswpin"))
}

/// The results that are wrong.
fn problems(
    options: &SelftestSwap,
    outcome: &hungry::Outcome,
    seen: &Seen,
    swapped: (u64, u64),
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |right: bool, what: &str| {
        if !right {
            wrong.push(what.to_string());
        }
    };
    must(outcome.wrong == 0, &format!("{} pages came back wrong", outcome.wrong));
    must(outcome.copies == u64::from(options.rounds), "a copy of the program failed");
    must(swapped.0 > 0 && seen.used > 0, "nothing was swapped out");
    must(swapped.1 > 0, "nothing was swapped in");
    must(seen.pool.stores > 0, "no page was stored in the cache");
    must(seen.pool.loads > 0, "no page was loaded from the cache");
    let faults = format!(
        "the threads that serve the device took {} page faults: under pressure each may wait for \
         memory that only they can free",
        seen.faults
    );
    must(seen.faults == 0, &faults);
    if options.backing.is_some() {
        must(seen.pool.written_back_pages > 0, "nothing was written back");
    }
    wrong
}

fn figures(
    outcome: &hungry::Outcome,
    seen: &Seen,
    (out, back): (u64, u64),
    took: Duration,
) -> String {
    let bytes = |pages: u64| human(pages * PAGE_SIZE as u64);
    let ratio = seen.pool.ratio().map(|ratio| format!(", ratio {ratio:.2}")).unwrap_or_default();
    format!(
        "  checked       {} pages, {} wrong, {} copies of the program\n  \
         swapped out   {} pages ({}), in {} pages ({})\n  \
         in the cache  {} at most, in {} of memory{ratio}, {}\n  \
         stored        {} pages in the cache, {} loaded from it\n  \
         written back  {} pages, {} past the cache, {} read back; {} there at most\n  \
         served        with {} page faults\n  \
         time          {:.1} s; {} times nothing could be reclaimed for a moment\n",
        outcome.verified,
        outcome.wrong,
        outcome.copies,
        out,
        bytes(out),
        back,
        bytes(back),
        bytes(seen.cached_pages),
        human(seen.pool.pool_bytes),
        seen.pool.compressor,
        seen.pool.stores,
        seen.pool.loads,
        seen.pool.written_back_pages,
        seen.pool.through_pages,
        seen.pool.read_back_pages,
        bytes(seen.disk_pages),
        seen.faults,
        took.as_secs_f64(),
        seen.relieved
    )
}
