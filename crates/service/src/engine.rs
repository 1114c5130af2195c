//! The machine of a daemon: the memory, codecs and clock of its devices and its swap cache. The
//! rest of this crate uses the engine through this file and through the crates of disks and of the
//! swap cache.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::{Bound, ControlError, Errno, Object};
use host::Role;
use machine::{DiskOutcome, HostSystem, MachineOptions, Progress};
use pagealloc::{Zone, ZoneStats};
use sync::Mutex;
use units::human;
use zram::{HostFiles, Recovered, SavedDisk};
use zswap::PARAMETERS;

use crate::failure::with_limits;
use crate::latency;
use crate::state::{State, backings};

pub use machine::Machine;
pub use zcomp::{ALGORITHMS, DEFAULT_ALGORITHM};

/// Makes a machine on real memory, with the cpus of the system.
///
/// # Errors
/// `ENOMEM` when no addresses are left.
pub fn new() -> Result<Arc<Machine>, ControlError> {
    let files = Arc::new(HostSystem);
    with_room(|| Machine::new(Arc::new(host::Mmap), options(files))).map(begin)
}

/// A machine that ages its pages and moves them, where that is on. The threads have the priority of
/// any other: they hold locks of pages for moments.
fn begin(machine: Machine) -> Arc<Machine> {
    let machine = Arc::new(machine);
    latency::begin();
    machine.set_clock(host::seconds_since_start());
    at_each_tick(&machine, "clock", "pages will not age", |machine| {
        machine.set_clock(host::seconds_since_start());
        machine.frames().maintain(MAINTAINED);
    });
    let turns = Arc::new(Turns::new(Instant::now()));
    for _ in 0..MOVERS {
        let turns = turns.clone();
        at_each_tick(&machine, "tiers", "pages will not move by themselves", move |machine| {
            let Some((turn, elapsed)) = turns.begin(Instant::now()) else { return };
            let moved = machine.move_pages(elapsed);
            let is_news = turns.end(turn, moved.is_err());
            if let (Err(error), true) = (moved, is_news) {
                tracing::warn!("pages do not move by themselves: {}", error.message);
            }
        });
    }
    machine
}

/// The turns of the threads that move pages. One has a turn at a time, and goes through all
/// devices. If a backing device keeps it too long, another one has the next turn, and leaves that
/// device out.
struct Turns(Mutex<Turn>);

/// The last turn.
struct Turn {
    number: u64,
    began: Instant,
    is_under_way: bool,
    /// It failed, or one before since the last that did not.
    has_failed: bool,
}

impl Turns {
    fn new(now: Instant) -> Turns {
        Turns(Mutex::new(Turn { number: 0, began: now, is_under_way: false, has_failed: false }))
    }

    /// Begins a turn if it is time for one. Returns its number, and the time since the last began.
    fn begin(&self, now: Instant) -> Option<(u64, Duration)> {
        let mut turn = self.0.lock();
        let elapsed = now.duration_since(turn.began);
        if elapsed < if turn.is_under_way { PATIENCE } else { TICK } {
            return None;
        }
        (turn.number, turn.began, turn.is_under_way) = (turn.number + 1, now, true);
        Some((turn.number, elapsed))
    }

    /// Ends a turn. Returns whether it is the first that failed.
    fn end(&self, number: u64, has_failed: bool) -> bool {
        let mut turn = self.0.lock();
        // Another one may have begun meanwhile.
        turn.is_under_way &= turn.number != number;
        !std::mem::replace(&mut turn.has_failed, has_failed) && has_failed
    }
}

/// Makes something of which a daemon has one, if there is room for the daemon before and after it.
/// The allocator ends a process that finds no memory for a small piece, and its mounts would stay.
fn with_room<T>(make: impl FnOnce() -> Result<T, ControlError>) -> Result<T, ControlError> {
    let made = check_room().and_then(|()| make().map_err(with_limits))?;
    check_room().map(|()| made)
}

/// Checks that there is room for what a daemon takes itself.
///
/// # Errors
/// `ENOMEM`, with what limits the memory of this process.
pub fn check_room() -> Result<(), ControlError> {
    let room = ROOM + ROOM_OF_CPU * host::online_cpus() as u64;
    let needed = match host::total_memory() {
        memory if (1..LEAST).contains(&memory) => LEAST,
        _ if !host::has_room_for(room) => room,
        _ => return Ok(()),
    };
    let message = format!("no room for the {} that a daemon takes itself", human(needed));
    Err(with_limits(ControlError::new(Errno::ENOMEM, message)))
}

/// Makes a machine whose devices outlive the process: with those that the daemon before left. Says
/// what was recovered of each, and with `tells` how far it is.
///
/// # Errors
/// Those of [`Machine::kept`] and [`Machine::recover`].
pub fn lasting(state: &State, tells: bool) -> Result<(Arc<Machine>, Vec<String>), ControlError> {
    let (provider, memory) = (Arc::new(host::Mmap), state.memory());
    let options = options(state.backings().clone());
    let is_new = memory.regions().is_empty() && state.left().is_empty();
    let (machine, recovered) = match is_new {
        true => (with_room(|| Machine::kept(memory, provider, options))?, Vec::new()),
        // Users wait for it: the room that there is has to do.
        false => Machine::recover(memory, provider, options, state.left(), &progress(tells))
            .map_err(with_limits)?,
    };
    state.backings().end_recovery();
    let machine = begin(machine);
    let mut told = Vec::new();
    for DiskOutcome { id, recovered } in recovered {
        let recovered = match recovered {
            Ok(recovered) => recovered,
            Err(why) => {
                told.push(format!("{}; what there is of it stays", why.message));
                continue;
            }
        };
        let Recovered { pages, lost, absent_backing, findings, .. } = recovered;
        if let Some(why) = absent_backing {
            told.push(format!("zram{id} has no backing device for now: {why}"));
        }
        told.push(format!("zram{id}: {pages} pages were recovered, {lost} are lost"));
        told.extend(findings.lines(&format!("zram{id}")));
    }
    Ok((machine, told))
}

/// Checks that this program takes the settings of disks that another one left. Opens no backing
/// device.
///
/// # Errors
/// The error of the first setting that it does not take; the message names it.
pub fn check(disks: &[SavedDisk]) -> Result<(), ControlError> {
    let files = Arc::new(HostSystem);
    let machine = Machine::new(Arc::new(host::Mmap), options(files))?;
    for saved in disks {
        let disk = machine.add()?;
        for (name, value) in saved.settings.iter().filter(|(name, _)| name != backings::OF_DISK) {
            zram::restore_setting(&disk, name, value).map_err(|error| {
                let message = format!("{name} of zram{}: {}", saved.id, error.message);
                ControlError::new(error.errno, message)
            })?;
        }
    }
    Ok(())
}

/// Checks that this program takes the settings of a swap cache that another one left.
///
/// # Errors
/// As [`check`].
pub fn check_swap(settings: &[(String, String)]) -> Result<(), ControlError> {
    let machine = Machine::new(Arc::new(host::Mmap), options(Arc::new(HostSystem)))?;
    let rows = Bound::new(machine.swap_to_look_at()?, PARAMETERS);
    for (name, value) in settings {
        rows.store(name, value).map_err(|error| {
            let message = format!("{name} of the swap cache: {}", error.message);
            ControlError::new(error.errno, message)
        })?;
    }
    Ok(())
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

fn options(files: Arc<dyn HostFiles>) -> MachineOptions {
    let swap_memory = Arc::new(host::MmapAhead);
    let system = MachineOptions::of_this_system();
    MachineOptions { files, swap_memory, track_access: true, ..system }
}

/// What a daemon takes of data and addresses beside its machine, in bytes: the heap, stacks of
/// threads, and for each cpu readers of two mounts with their buffers, which are 16 MiB each.
const ROOM: u64 = 64 << 20;
const ROOM_OF_CPU: u64 = 40 << 20;
/// The memory that a daemon takes in itself, in bytes, with some to store.
const LEAST: u64 = 64 << 20;

/// The resolution of page ages, and the period of maintenance.
const TICK: Duration = Duration::from_secs(1);
/// 2 MiB blocks for which a huge page is requested in each tick: some tens of milliseconds of work.
const MAINTAINED: u32 = 8;

/// Threads that move pages: so many backing devices but one may keep them.
const MOVERS: usize = 4;
/// How long a turn is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Calls `work` at each tick, on a thread of its own, as long as the machine exists. `without` says
/// what does not happen without the thread; all else works.
fn at_each_tick(
    machine: &Arc<Machine>,
    name: &str,
    without: &'static str,
    mut work: impl FnMut(&Machine) + Send + 'static,
) {
    let machine = Arc::downgrade(machine);
    let keep = move || {
        if let Err(error) = host::enter(Role::Clock) {
            tracing::warn!("{without}: {error}");
            return;
        }
        while let Some(machine) = machine.upgrade() {
            work(&machine);
            drop(machine);
            thread::sleep(TICK);
        }
    };
    // In a process that locks its memory, all of the stack is in memory.
    let thread = thread::Builder::new().name(name.into()).stack_size(host::SERVING_STACK);
    if let Err(error) = thread.spawn(keep) {
        tracing::warn!("{without}: no thread can be started: {error}");
    }
}

/// The page allocator of a machine: the name of its design, and its current counts.
#[must_use]
pub fn zone(machine: &Machine) -> (&'static str, ZoneStats) {
    (Zone::<()>::NAME, machine.frames().stats())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_lasts_too_long_is_not_waited_for() {
        let start = Instant::now();
        let turns = Turns::new(start);
        let begin = |seconds| turns.begin(start + Duration::from_secs(seconds));
        let after = |turn, seconds| Some((turn, Duration::from_secs(seconds)));
        assert_eq!([begin(0), begin(1), begin(2)], [None, after(1, 1), None]);
        assert!(!turns.end(1, false));
        assert_eq!([begin(2), begin(3), begin(11)], [after(2, 1), None, None]);
        // Its device does not answer.
        assert_eq!([begin(12), begin(13)], [after(3, 10), None]);
        assert!(!turns.end(2, false), "it ends while another one is under way");
        assert_eq!(begin(14), None);
        assert_eq!(
            [turns.end(3, true), turns.end(4, true), turns.end(5, false)],
            [true, false, false]
        );
        assert!(turns.end(6, true), "it failed anew");
        assert_eq!(begin(14), after(4, 2));
    }

    #[test]
    fn the_settings_of_a_swap_cache_are_taken_or_named() {
        let machine = new().unwrap();
        machine.swap().unwrap().set_auto(true).unwrap();
        let mut settings = machine.saved_swap().unwrap().settings;
        assert!(settings.iter().any(|(name, value)| name == "auto" && value == "Y"));
        check_swap(&settings).unwrap();
        settings.push(("of_a_later_program".into(), "1".into()));
        let error = check_swap(&settings).unwrap_err();
        assert_eq!(error.errno, Errno::ENOENT);
        assert!(error.message.starts_with("of_a_later_program of the swap cache: "), "{error}");
    }
}
