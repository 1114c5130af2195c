//! The swap devices of a daemon.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::{effective_user, errno, swaps};
use sync::Mutex;
use sync::atomic::{AtomicBool, Ordering};
use units::{PAGE_SIZE, human, parse_size};
use zswap::Headroom;

use super::area::{Adopted, Area, Making};
use super::backing::{self, OpenedBacking};
use super::cache;
use super::helpers::Helpers;
use super::in_front;
use super::left::{self, LeftArea, LeftAreas, Pages};
use super::protections::{self, Protections};
use super::recovery::Taken;
use super::report::{PoolReport, Protection, SwapReport};
use super::signals::HeldSignals;
use super::stuck::{self, Watcher};
use super::{MOST, header, kill_point, name, served};
use crate::devices::Devices;
use crate::loops::Loops;
use crate::plan::KeptArea;
use crate::protocol::SwapOn;
use crate::state::swaps::SharedSwap;
use crate::transport::{Front, SwapTransport};

const PAGE: u64 = PAGE_SIZE as u64;

/// The part of all memory that is kept ready for pages, and its bounds in bytes. Reclaim sends some
/// dozens of pages at a time from each cpu that is short of memory (`SWAP_CLUSTER_MAX` is 32), and
/// a hundred requests may be under way.
const HEADROOM_PART: u64 = 64;
const HEADROOM_LEAST: u64 = 4 << 20;
const HEADROOM_MOST: u64 = 64 << 20;

/// The state that exists as long as there is a swap device.
struct Guard {
    protections: Protections,
    helpers: Helpers,
    shared: SharedSwap,
    front: Option<in_front::Zswap>,
    _signals: HeldSignals,
}

/// The swap devices of a daemon. Any number of threads may call every method at once.
pub struct Swaps {
    devices: Arc<Devices>,
    /// Changes loop devices and swap space.
    loops: Mutex<Arc<Loops>>,
    /// Locked while a device comes, before `turn`. To fill its file may take minutes, for which
    /// nobody waits who takes down others.
    coming: Mutex<()>,
    /// Locked while devices change, which may take minutes, too.
    turn: Mutex<()>,
    /// No device may come any more.
    is_ending: AtomicBool,
    areas: Mutex<BTreeMap<usize, Arc<Area>>>,
    /// The devices of the daemon before that this daemon cannot take down.
    left: LeftAreas,
    guard: Mutex<Option<Guard>>,
}

impl Swaps {
    /// No swap device yet, on the machine of `devices`.
    #[must_use]
    pub fn new(devices: Arc<Devices>) -> Swaps {
        let (areas, guard) = (Mutex::new(BTreeMap::new()), Mutex::new(None));
        let loops = Mutex::new(Arc::new(Loops::here()));
        let left = LeftAreas::new();
        let (coming, turn, is_ending) = (Mutex::new(()), Mutex::new(()), AtomicBool::new(false));
        Swaps { devices, loops, coming, turn, is_ending, areas, left, guard }
    }

    /// Has `loops` change loop devices and swap space from now on.
    pub fn change_by(&self, loops: Arc<Loops>) {
        *self.loops.lock() = loops;
    }

    /// Takes the devices of the daemon before, which are served again. Those that the kernel does
    /// not swap to are gone then. Returns what the user should know.
    #[must_use]
    pub fn adopt(&self, taken: Taken) -> Vec<String> {
        let mut notes = Vec::new();
        let _turn = self.turn.lock();
        let Taken { zswap, helpers, watched, areas } = taken;
        let mut protections = Protections::take();
        protections.note_memory(zswap.is_ahead() && zswap.free_frames() != u64::MAX);
        protections.note(watched);
        drop(zswap);
        let shared = self.devices.state().map(|state| state.shared_swap()).unwrap_or_default();
        let front = shared.behind_zswap.then(in_front::Zswap::keep).transpose();
        let front = front.unwrap_or_else(|error| {
            notes.push(format!("the kernel's zswap may be off: {}", error.message));
            None
        });
        let signals = HeldSignals::begin();
        let guard = Guard { protections, helpers, shared, front, _signals: signals };
        *self.guard.lock() = Some(guard);
        kill_point("protected");
        let loops = self.loops.lock().clone();
        for area in areas {
            let number = area.saved.number;
            let kept = KeptArea { number, ublk: area.saved.ublk.as_ref().map(|id| id.number) };
            match Area::adopt(&self.devices, &loops, area) {
                Ok(Adopted::Area(area)) => {
                    notes.extend(area.lack());
                    self.areas.lock().insert(number, Arc::new(*area));
                }
                Ok(Adopted::Gone) => tracing::info!("{} was not in use and is gone", name(number)),
                Ok(Adopted::Left(pages)) => self.left.add([(kept, pages)]),
                Err(error) => {
                    // Its threads serve it on.
                    notes.push(format!(
                        "{} cannot be swapped off by this daemon: {}",
                        name(number),
                        error.message
                    ));
                    self.left.add([(kept, Pages::Served)]);
                }
            }
        }
        kill_point("adopted");
        protections::make_resident();
        self.end_guard();
        notes
    }

    /// Leaves these devices of the daemon before, whose cache this program cannot take over.
    pub fn leave(&self, areas: Vec<KeptArea>) {
        self.left.add(areas.into_iter().map(|area| (area, Pages::Awaited)));
    }

    /// Ends what exists as long as there is a swap device, if there is none.
    fn end_guard(&self) {
        if !self.is_empty() {
            return;
        }
        // The lock is released before the drop: the threads of the guard may need the areas.
        let guard = self.guard.lock().take();
        if guard.is_none() {
            return;
        }
        drop(guard);
        // The memory of the cache is given up; its parameters stay.
        if let Err(error) = cache::anew(self.devices.machine(), None) {
            tracing::warn!("{}", error.message);
        }
        self.devices.save_removal();
    }

    /// Checks that every swap device outlives this program.
    ///
    /// # Errors
    /// `EBUSY`; the message names the first that does not.
    pub fn check_handed_over(&self) -> Result<(), ControlError> {
        let areas = self.areas.lock();
        let ends = |area: &Arc<Area>| {
            let why = match area.lasts(self.devices.state()) {
                Some(Ok(())) => return None,
                Some(Err(why)) => why,
                None => "no service manager keeps the state of this daemon",
            };
            Some((name(area.number()), why))
        };
        let Some((name, why)) = areas.values().find_map(ends) else { return Ok(()) };
        let message = format!(
            "{name} ends with the program that serves it, and what is swapped out would be lost: \
             {why}; `rampack swap off` first"
        );
        Err(ControlError::new(Errno::EBUSY, message))
    }

    /// Leaves the requests to swap devices by ublk to the next program, as far as the driver can.
    ///
    /// # Errors
    /// If requests under way take until `end`; the error of the driver.
    pub fn quiesce(&self, end: Instant) -> Result<(), ControlError> {
        self.areas.lock().values().try_for_each(|area| area.quiesce(end))
    }

    /// Serves them on, where there is no next program. Does nothing for those that are served, and
    /// logs nothing: where the log goes may be swapped out.
    ///
    /// # Errors
    /// That of the first that cannot be served now; it is to be tried again.
    pub fn serve_on(&self, patience: Duration) -> Result<(), ControlError> {
        let areas = self.areas.lock();
        areas.values().map(|area| area.serve_on(patience)).fold(Ok(()), Result::and)
    }

    /// Makes a swap device and has the kernel swap to it. Once `is_over`, it is not waited for a
    /// file that is being filled.
    ///
    /// # Errors
    /// The error of the step that failed. Everything is as before then.
    pub fn on(
        &self,
        options: &SwapOn,
        is_over: &dyn Fn() -> bool,
    ) -> Result<SwapReport, ControlError> {
        let _coming = self.coming.lock();
        self.check_going()?;
        self.check(options)?;
        let headroom = headroom(options.headroom.as_deref())?;
        self.check_shared(options, headroom)?;
        let by = served::choose(options.transport, options.force)?;
        let number = self.free_number(options.number)?;
        let wanted = options.size.as_deref().map(pages_of).transpose()?;
        let size = wanted.map(|pages| pages * PAGE);
        let is_over = || is_over() || self.is_ending.load(Ordering::Relaxed);
        let open =
            |path: &str| OpenedBacking::open(&machine::path_of(path), size, options, &is_over);
        let backing = options.backing.as_deref().map(open).transpose()?;
        let _turn = self.turn.lock();
        self.check_going()?;
        let pages = match (wanted, &backing) {
            (Some(pages), _) => pages,
            (None, Some(backing)) => (backing.bytes() / PAGE).min(header::MOST_PAGES),
            (None, None) => {
                let message = "how large is it to be? Give --size, or a --backing that has one";
                return Err(ControlError::invalid(message));
            }
        };
        let is_first = self.protect(headroom, options.oom_after)?;
        let made = self.make(options, (number, pages, backing, by), is_first);
        if made.is_err() {
            // Without a device there is no more memory ready, either.
            self.end_guard();
        }
        made
    }

    /// Makes a swap device behind the protections.
    fn make(
        &self,
        options: &SwapOn,
        (number, pages, backing, by): (usize, u64, Option<OpenedBacking>, SwapTransport),
        is_first: bool,
    ) -> Result<SwapReport, ControlError> {
        let machine = self.devices.machine();
        let shared = self.guard.lock().as_ref().map(|guard| guard.shared).unwrap_or_default();
        let front = match options.front {
            Some(Front::Zswap) if !shared.behind_zswap => Some(in_front::Zswap::keep()?),
            _ => None,
        };
        let behind_zswap = shared.behind_zswap || front.is_some();
        let shared = SharedSwap { behind_zswap, ..shared };
        let before = cache::set(machine, options, backing.is_some(), is_first)?;
        let (layout, seal) = (options.backing_layout, !options.plain_backing);
        let making = Making { number, pages, backing, layout, seal, by, shared };
        let loops = self.loops.lock().clone();
        let on = |area: Area| {
            let on = area.swap_on(options.priority);
            on.inspect_err(|_| area.give_up(&self.devices)).map(|()| area)
        };
        let area = Area::make(&self.devices, machine, &loops, making).and_then(on);
        let area = area.inspect_err(|_| {
            cache::restore(machine, &before);
            self.devices.save_removal();
        })?;
        let area = Arc::new(area);
        self.areas.lock().insert(number, area.clone());
        if let Some(guard) = &mut *self.guard.lock() {
            guard.shared = shared;
            guard.front = front.or(guard.front.take());
        }
        tracing::info!("{} is swapped to", name(number));
        Ok(self.report(&area))
    }

    /// # Errors
    /// `ENODEV` if no device may come any more.
    fn check_going(&self) -> Result<(), ControlError> {
        if self.is_ending.load(Ordering::Relaxed) {
            return Err(ControlError::new(Errno::ENODEV, "the daemon is stopping"));
        }
        self.devices.check_going()
    }

    fn check(&self, options: &SwapOn) -> Result<(), ControlError> {
        if effective_user() != 0 {
            let message = "swap needs root: run the daemon as root";
            return Err(ControlError::new(Errno::EPERM, message));
        }
        if host::page_bytes() != PAGE {
            let message = "this machine's pages are not of 4096 bytes, as swap devices need them";
            return Err(ControlError::new(Errno::ENOTSUP, message));
        }
        if !self.devices.makes_block_devices() {
            let message = "the daemon makes no block devices to swap to: it said why when it \
                           started; /dev/fuse and /dev/loop-control are needed, and a start \
                           without --transport nbd";
            return Err(ControlError::new(Errno::ENODEV, message));
        }
        if let Some(priority) = options.priority
            && priority > host::HIGHEST_PRIORITY
        {
            let most = host::HIGHEST_PRIORITY;
            let message = format!("priority {priority} is too high: 0 to {most} are");
            return Err(ControlError::invalid(message));
        }
        let limits = host::group_limits();
        if let (Some(limit), false) = (limits.first(), options.force) {
            let message = format!(
                "the daemon is itself in a control group with a memory limit ({limit}): at that \
                 limit it would wait for memory that only it can free, for ever; start it outside \
                 (with systemd in a unit without MemoryMax=), or use --force to take the risk"
            );
            return Err(ControlError::new(Errno(errno::EDEADLK), message));
        }
        Ok(())
    }

    /// What all devices share stays as the first one was given it.
    fn check_shared(&self, options: &SwapOn, headroom: Headroom) -> Result<(), ControlError> {
        let guard = self.guard.lock();
        let Some(shared) = guard.as_ref().map(|guard| guard.shared) else { return Ok(()) };
        let oom_after = options.oom_after.map(u64::from);
        let (option, is) = match (&options.headroom, oom_after) {
            (Some(text), _) if headroom.frames != shared.headroom => {
                (format!("--headroom {text}"), human(shared.headroom * PAGE).to_string())
            }
            (_, Some(after)) if after != shared.oom_after => {
                (format!("--oom-after {after}"), shared.oom_after.to_string())
            }
            _ => return Ok(()),
        };
        let message = format!(
            "{option} differs from the {is} that the swap devices of this daemon share: leave it \
             out, or first swap off all of them"
        );
        Err(ControlError::invalid(message))
    }

    fn free_number(&self, wanted: Option<u32>) -> Result<usize, ControlError> {
        let there = self.numbers();
        let is_free = |number: &usize| !there.contains(number);
        if let Some(number) = wanted.map(|number| number as usize) {
            return match number {
                MOST.. => Err(ControlError::invalid(format!(
                    "there is no {}: numbers are 0 to {}",
                    name(number),
                    MOST - 1
                ))),
                number if is_free(&number) => Ok(number),
                number => Err(ControlError::new(
                    Errno::EEXIST,
                    format!("there is a {} already", name(number)),
                )),
            };
        }
        (0..MOST).find(is_free).ok_or_else(|| {
            ControlError::new(
                Errno::ENOSPC,
                format!("there are {MOST} swap devices, which are all"),
            )
        })
    }

    /// Makes the state that the first swap device needs; false when it exists.
    fn protect(&self, headroom: Headroom, oom_after: Option<u32>) -> Result<bool, ControlError> {
        if self.guard.lock().is_some() {
            return Ok(false);
        }
        super::end_left();
        // Memory that is mapped after this is locked from the start.
        let mut protections = Protections::take();
        let state = self.devices.state().filter(|state| state.keeps_swap());
        let memory = state.map(|state| state.memory());
        let zswap = cache::anew(self.devices.machine(), memory)?;
        protections.note_memory(zswap.is_ahead() && zswap.free_frames() != u64::MAX);
        let oom_after = oom_after.map_or(stuck::USUAL.as_secs(), u64::from);
        let (watcher, said) = Watcher::new(Duration::from_secs(oom_after));
        protections.note(said);
        let helpers = Helpers::start(&zswap, headroom, watcher)?;
        let shared = SharedSwap { headroom: headroom.frames, oom_after, behind_zswap: false };
        let signals = HeldSignals::begin();
        let guard = Guard { protections, helpers, shared, front: None, _signals: signals };
        *self.guard.lock() = Some(guard);
        Ok(true)
    }

    /// Swaps a device off and removes it. `wanted` is its name, its block device or a partition of
    /// that. Waits until everything is read back.
    ///
    /// # Errors
    /// `ENODEV`, with the names of the swap devices; or the error that kept the device: it stays in
    /// use then.
    pub fn off(&self, wanted: &str) -> Result<(), ControlError> {
        let _turn = self.turn.lock();
        let last = wanted.rsplit('/').next().unwrap_or(wanted);
        let areas: Vec<Arc<Area>> = self.areas.lock().values().cloned().collect();
        let is_it = |area: &&Arc<Area>| {
            name(area.number()) == last || swaps::is_part(area.path(), Path::new(wanted))
        };
        let area = areas.iter().find(is_it).cloned().ok_or_else(|| {
            let left = self.left().into_iter().find(|(area, _)| name(area.number) == last);
            left.map_or_else(|| none(wanted, &areas), |left| left::refusal(&left))
        })?;
        drop(areas);
        self.off_it(area)
    }

    /// Swaps off all devices that can be swapped off.
    ///
    /// # Errors
    /// The error that kept any of them.
    pub fn off_all(&self) -> Result<(), ControlError> {
        let _turn = self.turn.lock();
        self.off_these()
    }

    /// Swaps off all devices. No device may come any more; one whose file is being filled is given
    /// up.
    ///
    /// # Errors
    /// The error that kept any of them. Devices may come again then.
    pub fn stop(&self) -> Result<(), ControlError> {
        // Relaxed: whoever may still make a device has one of the locks.
        self.is_ending.store(true, Ordering::Relaxed);
        let (_coming, _turn) = (self.coming.lock(), self.turn.lock());
        self.off_these().inspect_err(|_| self.start_again())
    }

    /// Is there neither a disk nor a swap device, and none on its way? One that could not be taken
    /// over is one: the end of the daemon would be the end of what it has. No device may come any
    /// more then, unless a stop fails that follows.
    #[must_use]
    pub fn end_if_empty(&self) -> bool {
        // While one is locked, a device comes or goes.
        let Some(_coming) = self.coming.try_lock() else { return false };
        let Some(_turn) = self.turn.try_lock() else { return false };
        self.is_empty() && self.devices.end_if_empty()
    }

    /// Allows new devices again, when the step after [`Swaps::stop`] failed.
    pub fn start_again(&self) {
        self.is_ending.store(false, Ordering::Relaxed);
    }

    fn off_these(&self) -> Result<(), ControlError> {
        let areas: Vec<Arc<Area>> = self.areas.lock().values().cloned().collect();
        let mut faults: Vec<ControlError> =
            areas.into_iter().filter_map(|area| self.off_it(area).err()).collect();
        faults.extend(self.left().iter().map(left::refusal));
        let Some(first) = faults.first() else { return Ok(()) };
        let messages: Vec<&str> = faults.iter().map(|error| &*error.message).collect();
        Err(ControlError::new(first.errno, messages.join("; ")))
    }

    fn off_it(&self, area: Arc<Area>) -> Result<(), ControlError> {
        area.swap_off()?;
        area.take_down(&self.devices)?;
        let number = area.number();
        self.areas.lock().remove(&number);
        drop(area);
        tracing::info!("{} is gone", name(number));
        // What it had is given up only now.
        self.devices.save_removal();
        self.end_guard();
        Ok(())
    }

    /// Is there no swap device?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers().is_empty()
    }

    /// The devices that the daemon cannot take down and the kernel swaps to.
    fn left(&self) -> Vec<LeftArea> {
        self.left.used(self.devices.root())
    }

    /// The numbers of all swap devices, those included that the daemon cannot take down.
    #[must_use]
    pub fn numbers(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> = self.left().iter().map(|(area, _)| area.number).collect();
        numbers.extend(self.areas.lock().keys());
        numbers
    }

    /// The names and block devices of all swap devices.
    #[must_use]
    pub fn devices(&self) -> Vec<(String, std::path::PathBuf)> {
        let areas = self.areas.lock();
        areas.values().map(|area| (name(area.number()), area.path().to_path_buf())).collect()
    }

    /// The reports of all swap devices, those included that the daemon cannot take down.
    #[must_use]
    pub fn reports(&self) -> Vec<SwapReport> {
        let areas: Vec<Arc<Area>> = self.areas.lock().values().cloned().collect();
        let left = self.left();
        let left = left.iter().map(|left| left::report(left, self.devices.root()));
        areas.iter().map(|area| self.report(area)).chain(left).collect()
    }

    fn report(&self, area: &Area) -> SwapReport {
        let guard = self.guard.lock();
        let protections = guard.as_ref().map(|guard| guard.protections.list());
        let mut protections = protections.unwrap_or_default();
        protections.extend(area.lasts(self.devices.state()).map(|lasts| {
            let had = lasts.is_ok();
            let text = lasts.map_or_else(
                |why| format!("what is swapped out is lost if the daemon is killed: {why}"),
                |()| "the next daemon serves it on if this one is killed".into(),
            );
            Protection { name: "outlives the daemon".into(), had, text }
        }));
        let front = guard.as_ref().and_then(|guard| guard.front.as_ref());
        let front = front.map(in_front::Zswap::report);
        let mut report = area.report();
        if front.is_none() {
            report.notes.extend(in_front::kernel_zswap());
        }
        SwapReport { protections, front, ..report }
    }

    /// The report of the cache that they share; `None` without a swap device.
    #[must_use]
    pub fn pool(&self) -> Option<PoolReport> {
        if self.is_empty() {
            return None;
        }
        let guard = self.guard.lock();
        let silent_seconds = guard.as_ref().map_or(0, |guard| guard.helpers.silent_seconds());
        Some(PoolReport { silent_seconds, ..cache::pool(self.devices.machine())? })
    }

    /// Warnings in `report` for the user who made the device, in sentences.
    #[must_use]
    pub fn warnings(report: &SwapReport) -> Vec<String> {
        let mut said: Vec<String> = report.missing().chain(report.notes.iter().cloned()).collect();
        let short = report.backing.as_deref().map(machine::path_of);
        let short = short.as_deref().and_then(backing::missing_space);
        if let (Some(short), Some(path)) = (short, &report.backing) {
            said.push(format!(
                "the file system of {path} is {} short of what that file may come to need; pages \
                 that cannot be written back stay in memory, and then swapping out fails",
                human(short)
            ));
        }
        said
    }
}

/// The memory that is kept ready: as much as `text` says, or a part of all memory.
fn headroom(text: Option<&str>) -> Result<Headroom, ControlError> {
    let bytes = match text {
        Some(text) => {
            parse_size(text).map_err(|error| ControlError::invalid(format!("{error}")))?
        }
        None => (host::total_memory() / HEADROOM_PART).clamp(HEADROOM_LEAST, HEADROOM_MOST),
    };
    Ok(Headroom::of_frames(bytes / PAGE))
}

fn none(wanted: &str, areas: &[Arc<Area>]) -> ControlError {
    let known: Vec<String> = areas.iter().map(|area| name(area.number())).collect();
    let known = match known.is_empty() {
        true => "there are none; make one with `rampack swap on`".to_string(),
        false => format!("there are: {}", known.join(" ")),
    };
    ControlError::new(Errno::ENODEV, format!("no swap device {wanted:?}; {known}"))
}

fn pages_of(text: &str) -> Result<u64, ControlError> {
    let bytes = parse_size(text).map_err(|error| ControlError::invalid(format!("{error}")))?;
    Ok(bytes / PAGE)
}
