//! The machine of a daemon: the memory, codecs and clock of its devices and its swap cache. The
//! rest of this crate uses the engine through this file and through the crates of disks and of the
//! swap cache.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rampack::control::ControlError;
use rampack::pagealloc::{Zone, ZoneStats};
use rampack::{HostSystem, MachineOptions};

pub use rampack::{ALGORITHMS, DEFAULT_ALGORITHM, Machine};

/// Makes a machine on real memory, with the cpus of the system.
///
/// # Errors
/// `ENOMEM` when no addresses are left.
pub fn new() -> Result<Arc<Machine>, ControlError> {
    let memory = match rampack::host::total_memory() {
        0 => 1 << 40,
        memory => memory,
    };
    let options = MachineOptions {
        cpus: rampack::host::cpus(),
        memory,
        files: Arc::new(HostSystem),
        swap_scenario: Arc::new(rampack::host::MmapAhead),
        track_access: true,
    };
    let machine = Arc::new(Machine::new(Arc::new(rampack::host::Mmap), options)?);
    keep_time(&machine);
    Ok(machine)
}

/// The resolution of page ages, and the period of maintenance.
const TICK: Duration = Duration::from_secs(1);
/// 2 MiB blocks for which a huge page is requested in each tick: some tens of milliseconds of work.
const MAINTAINED: u32 = 8;

/// Sets the clock of a machine and maintains its memory at each tick, as long as the machine
/// exists.
fn keep_time(machine: &Arc<Machine>) {
    machine.set_clock(seconds_since_start());
    let machine = Arc::downgrade(machine);
    let keep = move || {
        while let Some(machine) = machine.upgrade() {
            machine.set_clock(seconds_since_start());
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

/// Seconds since the system started (proc_uptime(5)).
fn seconds_since_start() -> u32 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split('.').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
}

/// The page allocator of a machine: the name of its design, and its current counts.
#[must_use]
pub fn zone(machine: &Machine) -> (&'static str, ZoneStats) {
    (Zone::<()>::NAME, machine.frames().stats())
}
