//! The machine of a daemon: the memory, codecs and clock of its devices and its swap cache. The
//! rest of this crate uses the engine through this file and through the crates of disks and of the
//! swap cache.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rampack::control::ControlError;
use rampack::host::Role;
use rampack::pagealloc::{Zone, ZoneStats};
use rampack::sync::Mutex;
use rampack::zram::Recovered;
use rampack::{HostSystem, MachineOptions, Progress};

use crate::state::State;

pub use rampack::{ALGORITHMS, DEFAULT_ALGORITHM, Machine};

/// Makes a machine on real memory, with the cpus of the system.
///
/// # Errors
/// `ENOMEM` when no addresses are left.
pub fn new() -> Result<Arc<Machine>, ControlError> {
    let machine = Arc::new(Machine::new(Arc::new(rampack::host::Mmap), options())?);
    keep_time(&machine);
    keep_tiers(&machine);
    Ok(machine)
}

/// Makes a machine whose devices outlive the process: with those that the daemon before left. Says
/// what was recovered of each, and with `tells` how far it is.
///
/// # Errors
/// Those of [`Machine::kept`] and [`Machine::recover`].
pub fn lasting(state: &State, tells: bool) -> Result<(Arc<Machine>, Vec<String>), ControlError> {
    let (provider, memory) = (Arc::new(rampack::host::Mmap), state.memory());
    let (machine, recovered) = match memory.regions().is_empty() {
        true => (Machine::kept(memory, provider, options())?, Vec::new()),
        false => Machine::recover(memory, provider, options(), state.left(), &progress(tells))?,
    };
    let machine = Arc::new(machine);
    keep_time(&machine);
    keep_tiers(&machine);
    let mut told = Vec::new();
    for Recovered { id, pages, lost, findings, all_findings, .. } in recovered {
        told.push(format!("zram{id}: {pages} pages were recovered, {lost} are lost"));
        told.extend(findings.iter().cloned());
        let more = all_findings - findings.len() as u64;
        if more > 0 {
            told.push(format!("zram{id}: there are {more} more findings"));
        }
    }
    Ok((machine, told))
}

/// Tells how far a long recovery is, each second.
fn progress(tells: bool) -> impl Fn(Progress) + Sync {
    let last = Mutex::new(Instant::now());
    move |Progress { id, done, all }| {
        let mut last = last.lock();
        if tells && last.elapsed() >= TICK {
            *last = Instant::now();
            tracing::warn!("recovering zram{id}: {}%", done * 100 / all.max(1));
        }
    }
}

fn options() -> MachineOptions {
    let memory = match rampack::host::total_memory() {
        0 => 1 << 40,
        memory => memory,
    };
    MachineOptions {
        cpus: rampack::host::cpus(),
        memory,
        files: Arc::new(HostSystem),
        swap_scenario: Arc::new(rampack::host::MmapAhead),
        track_access: true,
    }
}

/// The resolution of page ages, and the period of maintenance.
const TICK: Duration = Duration::from_secs(1);
/// 2 MiB blocks for which a huge page is requested in each tick: some tens of milliseconds of work.
const MAINTAINED: u32 = 8;

/// Sets the clock of a machine and maintains its memory at each tick, as long as the machine
/// exists.
fn keep_time(machine: &Arc<Machine>) {
    machine.set_clock(rampack::host::seconds_since_start());
    let machine = Arc::downgrade(machine);
    let keep = move || {
        if let Err(error) = rampack::host::enter(Role::Clock) {
            tracing::warn!("pages will not age: {error}");
            return;
        }
        while let Some(machine) = machine.upgrade() {
            machine.set_clock(rampack::host::seconds_since_start());
            machine.frames().maintain(MAINTAINED);
            drop(machine);
            thread::sleep(TICK);
        }
    };
    // Without this thread pages do not age and memory is in small pages. All else works.
    if let Err(error) = thread::Builder::new().name("clock".into()).spawn(keep) {
        tracing::warn!("pages will not age: no thread can be started: {error}");
    }
}

/// Lets pages move by themselves at each tick, where that is on, as long as the machine exists. The
/// thread has the priority of any other: it holds locks of pages for moments.
fn keep_tiers(machine: &Arc<Machine>) {
    let machine = Arc::downgrade(machine);
    let keep = move || {
        if let Err(error) = rampack::host::enter(Role::Clock) {
            tracing::warn!("pages will not move by themselves: {error}");
            return;
        }
        let (mut last, mut is_told) = (Instant::now(), false);
        while let Some(machine) = machine.upgrade() {
            let elapsed = last.elapsed();
            last += elapsed;
            match machine.move_pages(elapsed) {
                Ok(_) => is_told = false,
                Err(error) if !is_told => {
                    tracing::warn!("pages do not move by themselves: {}", error.message);
                    is_told = true;
                }
                Err(_) => {}
            }
            drop(machine);
            thread::sleep(TICK);
        }
    };
    if let Err(error) = thread::Builder::new().name("tiers".into()).spawn(keep) {
        tracing::warn!("pages will not move by themselves: no thread can be started: {error}");
    }
}

/// The page allocator of a machine: the name of its design, and its current counts.
#[must_use]
pub fn zone(machine: &Machine) -> (&'static str, ZoneStats) {
    (Zone::<()>::NAME, machine.frames().stats())
}
