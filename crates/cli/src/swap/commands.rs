//! `rampack swap on` and `rampack swap off`.

use std::env;

use control::{ControlError, Errno, bytes_of};
use host::{self, effective_user};
use units::human;

use super::progress::Progress;
use crate::args::{FrontendOptions, SandboxOptions, SwapOff, SwapOn, Transport, absolute};
use crate::running::{Running, confine, handed_over, has_no_device, is_inherited};
use crate::terminal::{answer, lines, program};
use service::client::call;
use service::failure::say;
use service::protocol::{self, DaemonReport, Request, Status};
use service::root::Root;
use service::swap::Swaps;
use service::swap::cache::asked;
use service::swap::report::{PoolReport, SwapReport};

impl SwapOn {
    /// The request that these options make.
    #[must_use]
    pub fn request(&self) -> protocol::SwapOn {
        protocol::SwapOn {
            number: None,
            size: self.size.as_ref().map(|size| size.text.clone()),
            backing: self.backing.as_deref().map(absolute),
            plain_backing: self.plain_backing,
            backing_layout: self.backing_layout.unwrap_or_default(),
            max_pool: self.memory.clone(),
            transport: self.transport,
            front: self.front,
            headroom: self.headroom.as_ref().map(|size| size.text.clone()),
            oom_after: self.oom_after,
            auto: self.auto.or(self.no_auto.then_some(false)),
            auto_cpu: self.auto_cpu,
            compressor: self.algorithm.clone(),
            priority: u16::try_from(self.priority).ok(),
            parameters: self.set.clone(),
            force: self.force,
        }
    }
}

/// `rampack swap on`: asks the daemon at `root`. Without a daemon, this process becomes one.
///
/// # Errors
/// The error of the step that failed. Everything made before it is removed again.
pub fn on(root: Root, options: &SwapOn) -> Result<(), ControlError> {
    let request = options.request();
    if env::var_os("FDSTORE").is_some() {
        // This process is to be a daemon. The program that begins anew would have no descriptors
        // once they are taken over.
        host::mark_as_storage_daemon();
    }
    let (state, _) = handed_over()?;
    // What is below the root may be on the swap device that this process has to serve on.
    if !is_inherited(state.as_ref()) && root.has_daemon() {
        let report: SwapReport = call(&root, &Request::SwapOn(request))?;
        warn(&report);
        return answer(bytes_of(&format!("{}  {}\n", report.name, report.block_device)));
    }
    let frontends = become_daemon(options.sandbox)?;
    confine(&frontends)?;
    let running = Running::start(root, (&frontends, asked(&request)), state, Vec::new())?;
    // The daemon was started for a swap device, and ends with it.
    running.run(
        false,
        |daemon| daemon.swaps().end_if_empty(),
        |daemon, events| {
            if !has_no_device(daemon) {
                return Ok(String::new());
            }
            let report = match daemon.swaps().on(&request, &|| events.is_to_end()) {
                // Whoever asks for the end has the answer of an ordinary one.
                Err(_) if events.is_to_end() => return Ok(String::new()),
                made => made?,
            };
            warn(&report);
            let pool = daemon.swaps().pool().unwrap_or_default();
            Ok(welcome(&report, &pool, &program(daemon.root())))
        },
    )
}

/// Checks that this process may be a daemon of swap devices, and marks it as one. Returns how it
/// serves.
///
/// # Errors
/// `EPERM`.
pub(crate) fn become_daemon(sandbox: SandboxOptions) -> Result<FrontendOptions, ControlError> {
    if effective_user() != 0 {
        let message = "swap needs root: run it with sudo";
        return Err(ControlError::new(Errno::EPERM, message));
    }
    host::mark_as_storage_daemon();
    // Swap devices lock memory themselves, and go on without where they cannot.
    Ok(FrontendOptions { transport: Transport::Fuse, sandbox, ..FrontendOptions::default() })
}

pub(crate) fn warn(report: &SwapReport) {
    for warning in Swaps::warnings(report) {
        say(&format!("rampack: {warning}\n"));
    }
}

fn welcome(report: &SwapReport, pool: &PoolReport, program: &str) -> String {
    let below = match &report.backing {
        Some(path) if report.backing_created => format!("{path} (made for it)"),
        Some(path) => path.clone(),
        None => "none: everything stays in memory".into(),
    };
    let priority = report.priority.map_or("none".into(), |priority| priority.to_string());
    let text = format!(
        "{} is swapped to: {}, compressed with {}, in at most {} of memory.\n\n",
        report.name,
        human(report.bytes),
        pool.compressor,
        human(pool.limit_bytes)
    );
    text + &lines(&[
        ("block device", report.block_device.clone()),
        ("priority", priority),
        ("backing", below),
        ("watch it", format!("{program} status")),
        ("end it", format!("Ctrl-C, or {program} stop; everything is read back first")),
    ])
}

/// `rampack swap off`.
///
/// # Errors
/// As [`Swaps::off`].
pub fn off(root: &Root, options: &SwapOff) -> Result<(), ControlError> {
    let daemon: DaemonReport = call(root, &Request::Status(Status {}))?;
    // One that could not be taken over is not meant where there is another one.
    let served = || daemon.swaps.iter().filter(|swap| !swap.serving.by.is_empty());
    let name = match (&options.name, &daemon.swaps[..]) {
        _ if options.all => None,
        (Some(name), _) => Some(name.clone()),
        (None, [only]) => Some(only.name.clone()),
        (None, _) if served().count() == 1 => served().next().map(|swap| swap.name.clone()),
        (None, []) => {
            let message = "there is no swap device";
            return Err(ControlError::new(Errno::ENODEV, message));
        }
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|swap| &*swap.name).collect();
            let message = format!("which one? There are {}; --all is all", names.join(" "));
            return Err(ControlError::invalid(message));
        }
    };
    let is_meant = |swap: &&SwapReport| {
        name.as_ref().is_none_or(|name| swap.name == *name || swap.block_device == *name)
    };
    let meant = daemon.swaps.iter().filter(is_meant);
    let meant = meant.map(|swap| (swap.name.clone(), machine::path_of(&swap.block_device)));
    let _progress = Progress::begin(meant.collect());
    call(root, &Request::SwapOff(protocol::SwapOff { name }))
}
