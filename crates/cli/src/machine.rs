//! The machine that a daemon's devices and its swap cache belong to: their memory, their codecs and
//! their clock. Everything else in this crate knows the engine through this file and through the
//! crates of disks and of the swap cache.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rampack::control::ControlError;
use rampack::pagealloc::{Zone, ZoneStats};
use rampack::{HostSystem, MachineOptions};

pub use rampack::{ALGORITHMS, DEFAULT_ALGORITHM, Machine};

/// A machine on real memory, with the CPUs there are.
///
/// # Errors
/// `ENOMEM` when there are no addresses.
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

/// How exact the ages of pages are.
const TICK: Duration = Duration::from_secs(1);
/// 2 MiB blocks for which a huge page is asked for in that time: some tens of milliseconds' work.
const MAINTAINED: u32 = 8;

/// Tells a machine the time and tends its memory, as long as it is there.
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
    // Without it pages do not age, and memory is in small pages; nothing else is amiss.
    if let Err(error) = thread::Builder::new().name("clock".into()).spawn(keep) {
        tracing::warn!("pages will not age: no thread can be started: {error}");
    }
}

/// Seconds since the system started (proc_uptime(5)).
fn seconds_since_start() -> u32 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split('.').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
}

/// What there is to say of the page allocator of a machine: the name of its design, and its counts
/// of the moment.
#[must_use]
pub fn zone(machine: &Machine) -> (&'static str, ZoneStats) {
    (Zone::<()>::NAME, machine.frames().stats())
}
