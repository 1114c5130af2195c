//! One swap device, from its making to its end.

use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockDevice, Operation};
use control::{ControlError, Errno};
use host::{Before, Caller, MmapAhead, swaps};
use pagelog::LogDevice;
use store::{Memory, NotOpened, Spec, Store};
use sync::Mutex;
use units::PAGE_SIZE;
use zswap::Headroom;

use super::backing::OpenedBacking;
use super::cache::Cache;
use super::frees::Hearing;
use super::left::Pages;
use super::recovery::TakenArea;
use super::report::{LogReport, SwapReport};
use super::served::{Served, Serving};
use super::{header, name, off, parts, protections};
use crate::devices::Devices;
use crate::engine::Machine;
use crate::loops::Loops;
use crate::protocol::BackingLayout;
use crate::state::State;
use crate::state::swaps::{SavedArea, SharedSwap};
use crate::transport::SwapTransport;
use crate::unfinished;

const PAGE: u64 = PAGE_SIZE as u64;

/// Frames for the header of a swap device: a zspage of the largest size class.
const FOR_HEADER: u64 = 8;

/// A swap device. If it is dropped while the kernel swaps to it, the kernel loses it and all pages
/// swapped out to it.
pub struct Area {
    number: usize,
    pages: u64,
    /// The pages of each part, and the priority that the kernel gives it while it swaps there.
    parts: Vec<Part>,
    /// Where a service manager keeps the state of the daemon: why the device ends with it, if it
    /// does.
    lasts: Option<Result<(), &'static str>>,
    loops: Arc<Loops>,
    // Dropped in this order: each field uses the next one.
    served: Served,
    hearing: Hearing,
    cache: Cache,
    log: Option<Arc<LogDevice>>,
    backing: Option<OpenedBacking>,
}

/// A swap space of its own for the kernel; see [`parts`].
struct Part {
    path: PathBuf,
    pages: Range<u64>,
    priority: Mutex<Option<u16>>,
}

/// What became of a swap device of the daemon before.
pub enum Adopted {
    /// This daemon's now.
    Area(Box<Area>),
    /// The kernel did not swap to it.
    Gone,
    /// It is not served, and all that is left of it stays: the kernel swaps to it.
    Left(Pages),
}

/// The options for making a swap device.
pub struct Making {
    /// Its number.
    pub number: usize,
    /// Its size in pages.
    pub pages: u64,
    /// The file or device below it.
    pub backing: Option<OpenedBacking>,
    /// How pages lie there.
    pub layout: BackingLayout,
    /// Whether what is written back is encrypted.
    pub seal: bool,
    /// How the kernel reaches it.
    pub by: SwapTransport,
    /// The memory that must be present before pages come, and what else all devices share.
    pub shared: SharedSwap,
}

/// Why a device ends with its daemon, although a service manager keeps the daemon's state.
const SWAPPED: &str = "this kernel has no memory that stays while no process has it (a tmpfs with \
                       noswap, Linux 6.4)";
const GONE: &str = "its service manager, such as `rampack keep`, is gone with what it kept";
const NO_KEY: &str = "its key ends with the daemon, because this kernel has no secret memory \
                      (memfd_secret); --plain-backing does without";
const NO_REPEAT: &str = "this kernel does not repeat requests (Linux 6.9); --transport ublk does";

impl Part {
    /// Those of a device of `pages`.
    fn all(served: &Served, pages: u64) -> Vec<Part> {
        let ranges = parts::cut(pages, served.parts().len() as u64);
        let part = |(path, pages): (&PathBuf, Range<u64>)| Part {
            path: path.clone(),
            pages,
            priority: Mutex::new(None),
        };
        served.parts().iter().zip(ranges).map(part).collect()
    }

    /// Has the kernel swap to it, with discards if its freed pages are not heard of otherwise.
    fn swap_on(&self, loops: &Loops, hearing: &Hearing) -> Result<(), ControlError> {
        let before = Before::now();
        let caller = self.swap_on_with(loops, hearing.needs_discards())?;
        let is_heard = hearing.swapped_on(caller, before, self.pages.clone());
        if !is_heard && off::swap_off(&self.path).is_ok() {
            self.swap_on_with(loops, true)?;
        }
        Ok(())
    }

    fn swap_on_with(&self, loops: &Loops, discards: bool) -> Result<Caller, ControlError> {
        loops.swap_on(&self.path, *self.priority.lock(), discards).map_err(|error| match error.errno
        {
            Errno::EPERM => {
                let message = format!(
                    "cannot swap on {}: it needs CAP_SYS_ADMIN, and the kernel has at most some \
                     thirty swap areas",
                    self.path.display()
                );
                ControlError::new(Errno::EPERM, message)
            }
            _ => error,
        })
    }

    fn is_active(&self) -> bool {
        swaps::find(&self.path).is_some()
    }

    /// Discards all pages except the header: they will not be read again, but the kernel does not
    /// discard them at swapoff.
    fn forget(&self, device: &dyn BlockDevice) {
        let (start, end) = ((self.pages.start + 1) * PAGE, self.pages.end * PAGE);
        let discard = Operation::Discard { offset: start, length: end - start };
        if let Err(error) = device.submit(host::cpu(), discard) {
            tracing::warn!("{} keeps what was swapped to it: {error}", self.path.display());
        }
    }
}

/// Writes the header of a part.
fn write_header(
    device: &dyn BlockDevice,
    part: &Range<u64>,
    name: &str,
) -> Result<(), ControlError> {
    let label = format!("rampack-{name}");
    let header = header::header(part.end - part.start, header::new_uuid(), &label)?;
    let write = Operation::Write { offset: part.start * PAGE, from: &header };
    device.submit(host::cpu(), write).map_err(|error| {
        let message = format!("the swap header cannot be written: {error}");
        ControlError::new(Errno(error.errno()), message)
    })
}

/// Has the table of the daemon's state name a device that is about to be used by others.
fn keep(
    devices: &Devices,
    saved: SavedArea,
    (shared, serving, hearing): (SharedSwap, &Serving, &Hearing),
) -> Result<(), ControlError> {
    let Some(state) = devices.state() else { return Ok(()) };
    let number = saved.number;
    let descriptors = (&*serving.channels(), &*hearing.descriptors());
    let kept = state.keep_swap(saved, shared, descriptors);
    kept.and_then(|()| devices.save()).inspect_err(|_| give_up(devices, number))
}

/// Takes parts `off`, the last one first: it is used least. If one stays, those behind it come `on`
/// again in the order in which they first came: each gets the swap type that it had.
fn all_off<P, E>(
    parts: &[P],
    off: impl Fn(&P) -> Result<bool, E>,
    on: impl Fn(&P),
) -> Result<(), E> {
    let mut ended = Vec::new();
    for part in parts.iter().rev() {
        match off(part) {
            Ok(true) => ended.push(part),
            Ok(false) => {}
            Err(why) => {
                ended.into_iter().rev().for_each(on);
                return Err(why);
            }
        }
    }
    Ok(())
}

/// Takes a device out of the table, as [`keep`] put it there.
fn give_up(devices: &Devices, number: usize) {
    if let Some(state) = devices.state() {
        state.give_up_swap(number);
        devices.save_removal();
    }
}

impl Area {
    /// Makes everything except the swapon. With a service manager that keeps the daemon's state,
    /// the device outlives the daemon from here on if it can.
    ///
    /// # Errors
    /// The error of the step that failed. Everything made before it is removed again.
    pub fn make(
        devices: &Arc<Devices>,
        machine: &Arc<Machine>,
        loops: &Arc<Loops>,
        making: Making,
    ) -> Result<Area, ControlError> {
        let Making { number, pages, backing, layout, seal, by, shared } = making;
        let name = name(number);
        let parts = match by {
            SwapTransport::Ublk => parts::of(pages, swaps::all().len() as u64),
            // A loop device has no partitions.
            _ => iter::once(0..pages).collect(),
        };
        let state = devices.state();
        let mut lasts = state.map(|state| state.keeps_swap().then_some(()).ok_or(SWAPPED));
        let mut store = None;
        if let Some(backing) = &backing {
            let spec = || backing.spec(pages, layout, seal);
            if let (Some(state), Some(Ok(()))) = (state, lasts) {
                match Store::open(spec().kept(state.memory(), &name)) {
                    Err(NotOpened::NoKey) => lasts = Some(Err(NO_KEY)),
                    opened => store = Some(opened?),
                }
            }
            if store.is_none() {
                // Only this run reads what it has written, so its own key is enough.
                let memory = Memory::OfProcess(&MmapAhead);
                store = Some(Store::open(Spec { memory, ..spec() })?);
            }
        }
        let (below, log) = store.map(|store| (store.device, store.log)).unzip();
        let log = log.flatten();
        let cache = Cache::open(machine, number, pages, below)?;
        // The header of the swap device needs a frame, however small the headroom is.
        let headroom = Headroom::of_frames(shared.headroom);
        cache.provide(headroom.at_least(FOR_HEADER * parts.len() as u64));
        let (hearing, device) = (Hearing::begin(&cache, pages), Arc::new(cache.device()));
        for part in &parts {
            write_header(&*device, part, &name)?;
        }
        let (made, root) = devices.place()?;
        if by != SwapTransport::Ublk {
            made.directory(&root.swap())?;
        }
        let at = root.swap().join(&name);
        let serving = Serving::begin(&at, device, &parts, by, lasts == Some(Ok(())), &made)?;
        if !serving.can_be_taken_over() {
            lasts = lasts.map(|lasts| lasts.and(Err(NO_REPEAT)));
        }
        if let (Some(state), Some(Ok(()))) = (state, lasts) {
            let saved = |backing: &OpenedBacking| backing.saved(state, seal, layout);
            let backing = backing.as_ref().map(saved).transpose()?;
            let saved = SavedArea { number, pages, ublk: serving.ublk(), backing };
            keep(devices, saved, (shared, &serving, &hearing))?;
        }
        let place = (root.device(&name), made);
        let served = Served::finish((serving, true), place, loops, None);
        let served = served.inspect_err(|_| give_up(devices, number))?;
        let (parts, loops) = (Part::all(&served, pages), loops.clone());
        Ok(Area { number, pages, parts, lasts, loops, served, hearing, cache, log, backing })
    }

    /// A device of the daemon before, which is served again. If the kernel does not swap to it,
    /// that daemon was making it or taking it down, and it is gone then.
    ///
    /// # Errors
    /// The error of the step that failed. Its threads serve it on, and nobody takes it down.
    pub fn adopt(
        devices: &Arc<Devices>,
        loops: &Arc<Loops>,
        taken: TakenArea,
    ) -> Result<Adopted, ControlError> {
        let file = taken.serving.as_ref().and_then(|serving| Some(serving.file()?.to_path_buf()));
        let is_file = file.is_some();
        let found = || -> Result<_, ControlError> {
            let there = match file {
                Some(file) => loops.adopt(vec![file])?.pop().transpose()?.flatten(),
                None => None,
            };
            Ok((devices.place()?, there))
        };
        let ((made, root), there) = match found() {
            Ok(found) if taken.stays.is_none() => found,
            found => {
                let stays = taken.stays;
                unfinished::leave(taken);
                return match stays {
                    Some(pages) => Ok(Adopted::Left(pages)),
                    None => found.map(|_| Adopted::Left(Pages::Served)),
                };
            }
        };
        let TakenArea {
            saved: SavedArea { number, pages, .. },
            serving,
            hearing,
            cache,
            log,
            backing,
            ..
        } = taken;
        let (Some(serving), true) = (serving, !is_file || there.is_some()) else {
            give_up(devices, number);
            drop((hearing, cache, log, backing));
            return Ok(Adopted::Gone);
        };
        if is_file && let Err(error) = made.directory(&root.swap()) {
            tracing::warn!("{}", error.message);
        }
        let place = (root.device(&name(number)), made);
        let served = Served::finish((serving, false), place, loops, there)?;
        let (parts, lasts, loops) = (Part::all(&served, pages), Some(Ok(())), loops.clone());
        let area =
            Area { number, pages, parts, lasts, loops, served, hearing, cache, log, backing };
        let current = swaps::all();
        for part in &area.parts {
            let found = current.iter().find(|active| active.path == part.path);
            *part.priority.lock() = found.and_then(|it| u16::try_from(it.priority).ok());
        }
        if !area.parts.iter().any(Part::is_active) {
            let taken_down = area.take_down(devices);
            return match taken_down {
                Ok(()) => Ok(Adopted::Gone),
                Err(error) => {
                    // The kernel says that somebody has it.
                    unfinished::leave(area);
                    Err(error)
                }
            };
        }
        area.served.count_faults();
        Ok(Adopted::Area(Box::new(area)))
    }

    /// Has the next daemon not serve it on: it is about to go because it could not be made.
    pub fn give_up(&self, devices: &Devices) {
        give_up(devices, self.number);
    }

    /// Where a service manager keeps `state`: whether the device outlives the daemon, or why not.
    #[must_use]
    pub fn lasts(&self, state: Option<&Arc<State>>) -> Option<Result<(), &'static str>> {
        let is_kept = state.is_some_and(|state| state.has_manager());
        self.lasts.map(|lasts| if is_kept { lasts } else { Err(GONE) })
    }

    /// As [`Served::quiesce`].
    ///
    /// # Errors
    /// Its.
    pub fn quiesce(&self, end: Instant) -> Result<(), ControlError> {
        self.served.quiesce(end)
    }

    /// As [`Served::serve_on`].
    ///
    /// # Errors
    /// Its.
    pub fn serve_on(&self, patience: Duration) -> Result<(), ControlError> {
        self.served.serve_on(patience)
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The path of the block device.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.served.path()
    }

    /// The file or device below it.
    #[must_use]
    pub fn backing(&self) -> Option<&OpenedBacking> {
        self.backing.as_ref()
    }

    /// Has the kernel swap to it. Everything that serves it is in memory before that.
    ///
    /// # Errors
    /// The error of swapon(2); the kernel swaps to no part of it then.
    pub fn swap_on(&self, priority: Option<u16>) -> Result<(), ControlError> {
        protections::make_resident();
        self.served.count_faults();
        let (count, dead) = (self.parts.len(), swaps::above_dead());
        if let (None, Some(dead)) = (priority, dead) {
            tracing::warn!(
                "{} is used before other swap space, although no priority was asked for: the \
                 kernel would swap to it after space whose device is gone, below priority {dead}",
                name(self.number)
            );
        }
        for (number, part) in self.parts.iter().enumerate() {
            *part.priority.lock() = parts::priority(priority, number, count, dead);
            if let Err(error) = part.swap_on(&self.loops, &self.hearing) {
                let stays = |part: &&Part| off::swap_off(&part.path).is_err();
                if self.parts[..number].iter().filter(stays).count() == 0 {
                    return Err(error);
                }
                // Pages were swapped out meanwhile and cannot be read back: they are kept.
                tracing::error!("{} is smaller than it should be: {error}", name(self.number));
                break;
            }
        }
        self.hearing.say(&name(self.number));
        Ok(())
    }

    /// Has the kernel read everything back and release it. Does nothing if the kernel does not swap
    /// to it any more.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory for its pages: everything stays as it was then.
    pub fn swap_off(&self) -> Result<(), ControlError> {
        let path = self.path();
        let Some(before) = swaps::find(path) else { return Ok(()) };
        let device = self.cache.device();
        let off = |part: &Part| {
            if !part.is_active() {
                return Ok(false);
            }
            let used = || swaps::find(&part.path).map(|active| active.used);
            match off::swap_off_in_turn(&part.path, used) {
                Ok(()) => {
                    self.hearing.swapped_off(&part.pages);
                    part.forget(&*device);
                    Ok(true)
                }
                // Another process may have swapped it off first.
                Err(_) if !part.is_active() => Ok(false),
                Err(why) => Err(why),
            }
        };
        let on = |part: &Part| {
            if let Err(error) = part.swap_on(&self.loops, &self.hearing) {
                tracing::error!("{} is smaller than before: {error}", name(self.number));
            }
        };
        all_off(&self.parts, off, on).map_err(|why| {
            let name = name(self.number);
            let used = swaps::find(path).map_or(0, |now| now.used);
            let (used, before) = (units::human(used), units::human(before.used));
            let message = format!(
                "{name} ({}) stays in use with {used} of {before} swapped out: {why}; free memory \
                 or add other swap space, and try again",
                path.display()
            );
            ControlError::new(why.errno(), message)
        })
    }

    /// Takes everything down, after [`Area::swap_off`]. It can be tried again.
    ///
    /// # Errors
    /// `EBUSY` while the kernel swaps to it, another program has it open, or pages are left.
    pub fn take_down(&self, devices: &Devices) -> Result<(), ControlError> {
        let path = self.path();
        if swaps::find(path).is_some() {
            let message = format!("{} is swapped to", path.display());
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        self.served.take_down()?;
        devices.forget_asked(&name(self.number));
        if let Some(state) = devices.state() {
            state.give_up_swap(self.number);
            devices.save()?;
        }
        self.cache.close()
    }

    /// A note if the kernel does not swap to all of it.
    #[must_use]
    pub fn lack(&self) -> Option<String> {
        let is_ours = |active: &swaps::Active| self.parts.iter().any(|it| it.path == active.path);
        let active: Vec<_> = swaps::all().into_iter().filter(is_ours).collect();
        let bytes = active.iter().map(|active| active.bytes).sum();
        let counts = (active.len(), self.parts.len());
        parts::lack(&name(self.number), counts, (bytes, self.pages * PAGE))
    }

    /// The report of it, without the protections of the daemon.
    #[must_use]
    pub fn report(&self) -> SwapReport {
        let active = swaps::find(self.path());
        let stats = self.cache.stats();
        let mut report = SwapReport {
            name: name(self.number),
            block_device: machine::text_of(self.path()),
            bytes: self.pages * PAGE,
            active: active.is_some(),
            used: active.as_ref().map_or(0, |active| active.used),
            priority: active.map(|active| active.priority),
            backing: self.backing.as_ref().map(|it| machine::text_of(it.path())),
            backing_created: self.backing.as_ref().is_some_and(OpenedBacking::is_created),
            cached_pages: stats.cached,
            disk_pages: stats.on_device,
            log: self.log.as_ref().map(|log| LogReport::of(&log.stats())),
            serving: self.served.report(),
            notes: self.lack().into_iter().collect(),
            ..SwapReport::default()
        };
        self.hearing.report(&mut report);
        report
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::all_off;

    /// The kernel gives swap space the lowest type that is free.
    #[test]
    fn parts_that_come_on_again_get_their_types_again() {
        for (gone, expected) in [(0, [4, 5, 6, 7].as_slice()), (6, &[4, 5, 7])] {
            let (seen, types) = (RefCell::new(Vec::new()), RefCell::new([true; 8]));
            let off = |part: &usize| {
                types.borrow_mut()[*part] &= *part == 3;
                if *part == 3 { Err("no memory") } else { Ok(*part != gone) }
            };
            let on = |part: &usize| {
                let mut types = types.borrow_mut();
                let free = (0..8).find(|it| !types[*it] && *it != gone).unwrap();
                types[free] = true;
                assert_eq!(free, *part, "it has the type of another part");
                seen.borrow_mut().push(*part);
            };
            assert_eq!(all_off(&[0, 1, 2, 3, 4, 5, 6, 7], off, on), Err("no memory"));
            assert_eq!(*seen.borrow(), expected);
        }
        let off = |_: &usize| Ok::<_, ()>(true);
        assert_eq!(all_off(&[0, 1, 2], off, |_| panic!("all are off")), Ok(()));
    }
}
