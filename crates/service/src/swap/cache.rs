//! The engine side of swap devices: the compressed cache that all swap devices of a daemon share.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use block::BlockDevice;
use control::{Bound, ControlError, Errno, Object};
use host::{Frees, Memfds, Watermark, Watermarks};
use units::PAGE_SIZE;
use zswap::{AreaOptions, AreaStats, Headroom, PARAMETERS, SwapDevice, SwapType, Zswap};

use super::name;
use super::protections;
use super::report::PoolReport;
use crate::engine::Machine;
use crate::latency::Timed;
use crate::plan::{Asked, Followed, of_device};
use crate::protocol::{Attribute, BackingLayout, SwapOn};
use crate::transport::Front;

/// Pages per writeback when memory is short, as many as a scan of Linux's shrinkers
/// (`SHRINK_BATCH`).
const BATCH: u64 = 128;

/// An area of the engine, from its swapon to its swapoff, with a memcg of its own.
pub struct Cache {
    zswap: Arc<Zswap>,
    swap: SwapType,
}

impl Cache {
    /// Opens area `number` of `pages`, with `device` below it.
    ///
    /// # Errors
    /// The error of the engine; nothing has changed then.
    pub fn open(
        machine: &Arc<Machine>,
        number: usize,
        pages: u64,
        device: Option<Arc<dyn BlockDevice>>,
    ) -> Result<Cache, ControlError> {
        let (zswap, swap) = (machine.swap()?, SwapType::new(number)?);
        let memcg = zswap.memcg(&name(number))?;
        if let Err(error) = zswap.swapon(swap, pages, AreaOptions { device, memcg }) {
            let _ = zswap.remove_memcg(&name(number));
            return Err(error);
        }
        Ok(Cache { zswap, swap })
    }

    /// Area `number` of a cache that was recovered.
    ///
    /// # Errors
    /// `EINVAL` for a number that no area can have.
    pub fn recovered(zswap: Arc<Zswap>, number: usize) -> Result<Cache, ControlError> {
        Ok(Cache { zswap, swap: SwapType::new(number)? })
    }

    /// Provides memory for the next pages, or as much as there is.
    pub fn provide(&self, want: Headroom) {
        if !self.zswap.provide(host::cpu(), want) {
            tracing::warn!("there is less memory for swap devices than there should be: {want}");
        }
    }

    /// Has its freed pages dropped. Nobody uses its device yet.
    ///
    /// # Errors
    /// Those of [`Zswap::hear_frees`].
    pub fn hear_frees(&self, frees: Arc<Frees>) -> Result<(), ControlError> {
        self.zswap.hear_frees(self.swap, frees)
    }

    /// The device that is served.
    #[must_use]
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        let device = SwapDevice::new(self.zswap.clone(), self.swap);
        Arc::new(Timed::new(&name(self.swap.number()), device))
    }

    /// Whether the area is on. One of a recovered cache is off if it was lost.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.zswap.is_on(self.swap)
    }

    /// The current counts of the area; zeroes after its end.
    #[must_use]
    pub fn stats(&self) -> AreaStats {
        self.zswap.area_stats(self.swap).unwrap_or_default()
    }

    /// Drops every page, and closes the area. A second call does nothing.
    ///
    /// # Errors
    /// `EBUSY` when pages are left.
    pub fn close(&self) -> Result<(), ControlError> {
        if !self.is_on() {
            return Ok(());
        }
        self.zswap.invalidate_area(host::cpu(), self.swap);
        self.zswap.swapoff(self.swap)?;
        // The limits of its memcg are no longer needed. If other pages belong to that name, they
        // stay.
        let _ = self.zswap.remove_memcg(&name(self.swap.number()));
        Ok(())
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!("{} is not empty: {error}", name(self.swap.number()));
        }
    }
}

/// The parameters of the cache.
///
/// # Errors
/// `ENOMEM` when the cache cannot be made.
pub fn parameters(machine: &Machine) -> Result<Bound<Zswap>, ControlError> {
    Ok(Bound::new(machine.swap()?, PARAMETERS))
}

/// Sets a parameter, and has in memory what that brought: no thread has touched the contexts of a
/// new codec yet, and those that serve must not wait for their pages.
///
/// # Errors
/// That of the parameter; nothing has changed then.
pub fn store(rows: &Bound<Zswap>, name: &str, value: &str) -> Result<(), ControlError> {
    rows.store(name, value)?;
    protections::make_resident();
    Ok(())
}

/// The percentage of memory for the pool without a backing device, by default. Pages that do not
/// fit in the pool stay in memory uncompressed, so a larger pool is better there.
const WITHOUT_DEVICE: &str = "75";
/// The percentage for the pool when none was set, as in Linux.
const USUAL_PERCENT: u32 = 20;

/// The parameters that `options` set, in order. `untouched`: the size of the pool has not been set
/// yet. `is_first`: there is no swap device yet.
fn wanted(options: &SwapOn, has_device: bool, untouched: bool, is_first: bool) -> Vec<Attribute> {
    let attribute = Attribute::new;
    let mut wanted = Vec::new();
    match options.max_pool.as_deref().map(|text| (text, text.strip_suffix('%'))) {
        Some((_, Some(percent))) => {
            wanted.push(attribute("max_pool_percent", percent));
            wanted.push(attribute("max_pool_bytes", "0"));
        }
        Some((bytes, None)) => wanted.push(attribute("max_pool_bytes", bytes)),
        None if has_device || !untouched => {}
        None => wanted.push(attribute("max_pool_percent", WITHOUT_DEVICE)),
    }
    if let Some(name) = &options.compressor {
        wanted.push(attribute("compressor", name));
    }
    let auto = options.auto.or(is_first.then_some(true));
    wanted.extend(auto.map(|on| attribute("auto", if on { "Y" } else { "N" })));
    wanted.extend(options.auto_cpu.map(|it| attribute("auto_cpu_percent", &it.to_string())));
    wanted.extend(options.parameters.iter().cloned());
    wanted
}

/// What the first swap device of a daemon is asked to be: its own options, and the parameters of
/// the cache.
#[must_use]
pub fn asked(options: &SwapOn) -> Asked {
    let is_log = options.backing_layout == BackingLayout::Log;
    let layout = is_log.then(|| "log".to_owned());
    let own = [
        ("size", options.size.clone()),
        ("backing", options.backing.clone()),
        ("plain_backing", options.plain_backing.then(|| "true".to_owned())),
        ("backing_layout", layout),
        ("front", options.front.map(|Front::Zswap| "zswap".to_owned())),
        ("headroom", options.headroom.clone()),
        ("oom_after", options.oom_after.map(|it| it.to_string())),
        ("priority", options.priority.map(|it| it.to_string())),
    ];
    let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let parameters = wanted(options, options.backing.is_some(), true, true);
    own.chain(parameters.into_iter().map(|it| (it.name, it.value))).collect()
}

/// Sets the parameters that `changes` have new values for.
#[must_use]
pub fn follow(machine: &Machine, changes: &Asked) -> Followed {
    let mut followed = Followed::default();
    for (option, value) in changes {
        let (device, name) = of_device(option);
        if device.is_none_or(|device| device.starts_with("swap")) {
            let stored = parameters(machine).and_then(|rows| store(&rows, name, value));
            followed.note((option, value), "the swap cache", &stored);
        }
    }
    followed
}

/// Sets the parameters that `options` ask for; `is_first` if there is no swap device yet. Returns
/// their values before, for [`restore`].
///
/// # Errors
/// The error of a parameter; nothing has changed then.
pub fn set(
    machine: &Machine,
    options: &SwapOn,
    has_device: bool,
    is_first: bool,
) -> Result<Vec<Attribute>, ControlError> {
    let rows = parameters(machine)?;
    let mut before = Vec::new();
    let policy = machine.swap()?;
    let policy = policy.policy();
    let untouched = (policy.max_pool_percent(), policy.max_pool_bytes()) == (USUAL_PERCENT, 0);
    for Attribute { name, value } in wanted(options, has_device, untouched, is_first) {
        let was = rows.show(&name).and_then(|was| store(&rows, &name, &value).map(|()| was));
        match was {
            Ok(value) => before.push(Attribute { name, value }),
            Err(error) => {
                restore(machine, &before);
                return Err(match error.errno {
                    Errno::ENOENT if !PARAMETERS.iter().any(|row| row.name == name) => {
                        let known: Vec<&str> = PARAMETERS.iter().map(|row| row.name).collect();
                        let known = known.join(" ");
                        ControlError::invalid(format!("no parameter {name:?}; there are: {known}"))
                    }
                    _ => error,
                });
            }
        }
    }
    Ok(before)
}

/// Restores the values of parameters, the last changed first.
pub fn restore(machine: &Machine, before: &[Attribute]) {
    let Ok(rows) = parameters(machine) else { return };
    for Attribute { name, value } in before.iter().rev() {
        if let Err(error) = store(&rows, name, value) {
            tracing::error!("{name} is not what it was: {error}");
        }
    }
}

/// The time before the next try when memory could not be had.
const SOON: Duration = Duration::from_millis(5);
/// Frames per request: 256 KiB, as much as the zone requests.
const PIECE: u64 = 64;

/// Provides memory ahead of its use until it is told to end, as [`work`] is. A notification of the
/// memory event of the cache wakes it.
///
/// It takes memory that the kernel has to spare, by `watermarks`. The larger the headroom is
/// already, the less it takes, so that the kernel code that serves pages finds memory too.
pub fn provide(zswap: &Zswap, want: Headroom, mut watermarks: Watermarks, ended: &Receiver<()>) {
    let is_ended = |time| ended.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
    loop {
        let ticket = zswap.memory_event().ticket();
        if is_ended(Duration::ZERO) {
            return;
        }
        let step = Provision::next(zswap.free_frames(), want.frames, zswap.room_frames());
        let piece = PIECE * PAGE_SIZE as u64;
        let spare = step.watermark.is_none_or(|watermark| {
            watermarks.look().is_none_or(|above| above.bytes(watermark) > piece)
        });
        let next = Headroom { frames: step.frames, ..want };
        if !spare || !zswap.provide(host::cpu(), next) {
            if is_ended(SOON) {
                return;
            }
        } else if step.is_last {
            zswap.memory_event().wait(ticket);
        }
    }
}

/// One request for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Provision {
    /// The number of frames that must be there after it.
    frames: u64,
    /// Memory is taken while free memory is above this; without one, to the last frame.
    watermark: Option<Watermark>,
    /// No more memory is needed after it.
    is_last: bool,
}

impl Provision {
    /// The next step when `there` of `want` frames are there. Frames beyond the `room` in the pool
    /// would be useless.
    fn next(there: u64, want: u64, room: u64) -> Provision {
        let want = want.min(room);
        let frames = want.min(there.saturating_add(PIECE));
        Provision { frames, watermark: watermark_for(there, want), is_last: frames == want }
    }
}

/// The watermark for a step when `there` of `want` frames are there. With few frames there is none:
/// each page that finds a frame frees memory. Nor is there one with enough: memory only goes back.
fn watermark_for(there: u64, want: u64) -> Option<Watermark> {
    match there {
        _ if there >= want => None,
        _ if there >= want - want / 4 => Some(Watermark::High),
        _ if there >= want / 2 => Some(Watermark::Low),
        _ => None,
    }
}

/// Makes the cache anew for swap devices: all of it is mapped from now on, and so is locked from
/// the start. Its parameters keep their values. It is in `memory` that outlives the process, if
/// that is given.
///
/// # Errors
/// `ENOMEM` when memory or addresses are out.
pub fn anew(machine: &Machine, memory: Option<&Memfds>) -> Result<Arc<Zswap>, ControlError> {
    let rows = parameters(machine)?;
    let writable = rows.attributes().into_iter().filter(|row| row.access.writable());
    let before =
        writable.filter_map(|row| Some(Attribute::new(row.name, &rows.show(row.name).ok()?)));
    let before: Vec<Attribute> = before.collect();
    let made = match memory {
        Some(memory) => machine.kept_swap_anew(memory),
        None => machine.swap_anew(),
    };
    restore(machine, &before);
    made
}

/// Writes some of the oldest pages back to the devices, if that is allowed. Called when memory is
/// short.
///
/// The pool may be the reason why there is any memory left. So fewer pages leave if pages take
/// little of it: of pages that take a tenth of their size a tenth of a batch, and none when less
/// than a page of memory would become free. Linux's shrinkers scale by the same ratio.
pub fn shrink(zswap: &Zswap) {
    let brought = zswap.relief(BATCH);
    let pages = zswap.shrinkable().min(brought);
    if pages > 0 {
        zswap.shrink(host::cpu(), pages);
    }
}

/// The report of the cache, if it exists.
#[must_use]
pub fn pool(machine: &Machine) -> Option<PoolReport> {
    let zswap = machine.swap_if_made()?;
    let stats = zswap.stats();
    let rejected = [
        stats.reject_disabled,
        stats.reject_reclaim_fail,
        stats.reject_alloc_fail,
        stats.reject_entry_fail,
        stats.reject_compress_fail,
        stats.reject_compress_poor,
    ];
    let answers = zswap.device_answers();
    Some(PoolReport {
        compressor: zswap.compressor().into(),
        stored_pages: stats.stored_pages,
        pool_bytes: stats.pool_bytes,
        limit_bytes: stats.max_pool_bytes,
        written_back_pages: stats.written_back_pages,
        through_pages: stats.through,
        stores: stats.stores,
        loads: stats.loads,
        read_back_pages: stats.read_back,
        rejected_pages: rejected.iter().sum(),
        freed_pages: stats.swept,
        warm_pages: stats.warm_pages,
        recompress_age: stats.recompress_age,
        late_pages: stats.reject_alloc_fail + stats.reject_entry_fail,
        headroom_bytes: match zswap.free_frames() {
            u64::MAX => None,
            frames => Some(frames * units::PAGE_SIZE as u64),
        },
        unread_pages: answers.reads,
        changed_pages: answers.changed,
        unwritten_pages: answers.writes,
        waiting_pages: answers.asked.saturating_sub(answers.answered),
        silent_seconds: 0,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The steps until nothing more is asked for, when each brings what it asks for.
    fn steps(mut there: u64, want: u64, room: u64) -> Vec<Provision> {
        let mut steps = Vec::new();
        loop {
            let step = Provision::next(there, want, room);
            steps.push(step);
            assert!(steps.len() < 1000, "it never ends: {there} of {want}, room for {room}");
            if step.is_last {
                return steps;
            }
            there = there.max(step.frames);
        }
    }

    #[test]
    fn memory_is_asked_for_piece_by_piece_and_there_is_an_end() {
        let all = steps(0, 1000, u64::MAX);
        assert_eq!(all.len() as u64, 1000u64.div_ceil(PIECE));
        assert_eq!(all.first().map(|step| step.watermark), Some(None));
        assert_eq!(all.last().map(|step| step.watermark), Some(Some(Watermark::High)));
        // More than enough goes back however short memory is.
        let back = Provision { frames: 1000, watermark: None, is_last: true };
        assert_eq!(steps(2000, 1000, u64::MAX), [back]);
        // A pool that is nearly as large as it may be.
        assert_eq!(steps(0, 1000, 100).last().map(|step| step.frames), Some(100));
        assert_eq!(steps(50, 1000, 0).last().map(|step| step.frames), Some(0));
        assert_eq!(steps(0, 0, 100).last().map(|step| step.frames), Some(0));
    }

    /// A cache of so many pages before a device, which may be shrunk if that is `allowed`.
    pub(in super::super) fn filled(
        allowed: bool,
        device: Arc<dyn BlockDevice>,
        pages: u64,
        page: impl Fn(u64) -> [u8; PAGE_SIZE],
    ) -> Arc<Zswap> {
        let options = machine::MachineOptions {
            cpus: 1,
            memory: 1 << 28,
            files: Arc::new(zram::NoHostFiles),
            swap_memory: Arc::new(host::Mmap),
            track_access: false,
        };
        let machine = machine::Machine::new(Arc::new(host::Mmap), options).unwrap();
        let zswap = machine.swap().unwrap();
        zswap.policy().set_shrinker_enabled(allowed);
        let (swap, memcg) = (SwapType::new(0).unwrap(), zswap.memcg("m").unwrap());
        let options = AreaOptions { device: Some(device), memcg: memcg.clone() };
        zswap.swapon(swap, pages, options).unwrap();
        let cpu = units::Cpu(0);
        for offset in 0..pages {
            let key = zswap::Key { swap, offset };
            zswap.store(cpu, key, &memcg, &page(offset)).unwrap();
        }
        zswap
    }

    /// Pages that were written back by a shrink of a cache of 2,000 pages, and the frames before it.
    fn shrunk(allowed: bool, page: impl Fn(u64) -> [u8; PAGE_SIZE]) -> (u64, u64) {
        const PAGES: u64 = 2000;
        let plain = block::Plain::new(PAGES as usize * PAGE_SIZE);
        let zswap = filled(allowed, Arc::new(plain), PAGES, page);
        let frames = zswap.stats().pool_bytes / PAGE_SIZE as u64;
        shrink(&zswap);
        (zswap.stats().written_back_pages, frames)
    }

    #[test]
    fn pages_leave_for_the_memory_that_they_take() {
        let noise = |number: u64| {
            let mut page = [0; PAGE_SIZE];
            testkit::Rng::new(number).fill(&mut page);
            page
        };
        // A page in some forty bytes: a batch of them would bring a frame or two.
        let small = |number: u64| {
            let mut page = [0; PAGE_SIZE];
            testkit::Rng::new(number).fill(&mut page[..24]);
            page
        };
        let same = |number: u64| [number as u8; PAGE_SIZE];
        assert_eq!(shrunk(false, noise).0, 0, "nobody has allowed it");
        assert_eq!(shrunk(true, noise).0, BATCH);
        let (left, frames) = shrunk(true, small);
        assert!((10..100).contains(&frames), "{frames} frames");
        assert!(left * 2000 <= BATCH * frames, "{left} pages left, and all take {frames} frames");
        assert_eq!(shrunk(true, same).0, 0, "they take no memory");
    }
}
