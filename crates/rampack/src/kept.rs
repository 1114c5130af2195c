//! Disks that outlive the process: their state is in [`Memfds`], which another process can have.
//!
//! A machine made by [`Machine::kept`] has its frames and the tables of its disks there. Whoever
//! has the descriptors and a [`SavedDisk`] of each disk makes the machine anew with
//! [`Machine::recover`], however the first process ended. Each disk then has each page as of its
//! last store that had ended, or of one that had begun.
//!
//! A process that ends in an orderly way must not drop such a machine: that gives up its disks.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno, Object};
use host::Memfds;
use pagealloc::{FrameSet, KeptMemory, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use units::{Cpu, PAGE_SIZE, PAGEBLOCK_SIZE};
use zram::{Census, Disk, Recovered, Recovery, attributes, saved_settings};

use crate::machine::{Machine, MachineOptions, zone_over};

/// The region of the frames.
const FRAMES: &str = "zram.frames";
/// How long, and how often, a file that another process has locked is tried again.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);
/// The setting that is stored after all others.
const LAST: &str = "backing_dev";
/// Pages that a thread judges at a time.
const CHUNK: usize = 1 << 18;

/// What another process needs to know of a disk, besides its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedDisk {
    /// Its number.
    pub id: u32,
    /// Its size; 0 if it has none, and nothing but its settings is recovered. Otherwise the size is
    /// what the disk itself has kept.
    pub bytes: u64,
    /// How often it got its size: [`Disk::generation`].
    pub generation: u64,
    /// Its settings by the names of attributes, in any order.
    pub settings: Vec<(String, String)>,
}

/// How far a recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The number of the disk or of the swap area.
    pub id: u32,
    /// Pages that were judged.
    pub done: u64,
    /// Pages of the disk or area.
    pub all: u64,
}

/// Memory in files by name.
pub(crate) struct InFiles(Memfds);

impl KeptMemory for InFiles {
    fn provider(&self, name: &str) -> Arc<dyn MemoryProvider> {
        Arc::new(self.0.provider(name))
    }
}

impl Machine {
    /// Makes a machine without devices, whose disks outlive the process. What their slots say and
    /// the frames are in `memory`; what can be made anew is in memory of `provider`.
    ///
    /// # Errors
    /// `ENOMEM` when there are no addresses for the zone; `EBUSY` if another machine has its frames
    /// in `memory`.
    pub fn kept(
        memory: &Memfds,
        provider: Arc<dyn MemoryProvider>,
        options: MachineOptions,
    ) -> Result<Machine, ControlError> {
        if has_frames(memory).is_some() {
            let message = "the memory has the frames of another machine";
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        let (machine, zone) = begin(memory, provider, options)?;
        drop(zone);
        Ok(machine)
    }

    /// Makes a machine with the disks that another process left in `memory`, and tells what was
    /// recovered of each. A disk that had no size comes back without one. Threads judge the pages,
    /// as many as there are CPUs, and call `progress`.
    ///
    /// Regions that no disk asked for are given up. Those of a cache in front of swap areas stay:
    /// see [`Machine::recover_swap`] and [`Machine::forget_swap`].
    ///
    /// # Errors
    /// `EINVAL` for a state that is damaged, of another layout, or not of these disks; `ENOTSUP` if
    /// this program lacks a codec; `ENOMEM` when memory is out; the error of a setting that is
    /// refused. The message names the disk. What was left is as it was, and another process, or
    /// this one with new descriptors, can try again.
    pub fn recover(
        memory: &Memfds,
        provider: Arc<dyn MemoryProvider>,
        mut options: MachineOptions,
        disks: &[SavedDisk],
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(Machine, Vec<Recovered>), ControlError> {
        let Some(bytes) = has_frames(memory) else {
            return Err(ControlError::invalid(format!("there is no region {FRAMES:?}")));
        };
        options.memory = bytes;
        let cpus = options.cpus;
        let (machine, zone) = begin(memory, provider.clone(), options)?;
        let (capacity, no_memory) = (machine.frames().capacity(), |error: NoMemory| {
            ControlError::new(Errno::ENOMEM, error.to_string())
        });
        let census = Arc::new(Census::new(&*provider, capacity).map_err(no_memory)?);
        let mut recoveries = Vec::new();
        for saved in disks {
            let disk = machine.add_saved(saved)?;
            if saved.bytes != 0 {
                recoveries.extend(disk.recover(saved.generation, &census)?);
            }
        }
        for recovery in &recoveries {
            let pages = (recovery.disk().id(), recovery.pages());
            walk(pages, cpus, progress, &|cpu, range| recovery.walk(cpu, range));
        }
        let live = FrameSet::new(&*provider, capacity).map_err(no_memory)?;
        for recovery in &recoveries {
            recovery.settle(&live);
        }
        zone.adopt(&live).map_err(no_memory)?;
        let recovered = recoveries.into_iter().map(Recovery::finish).collect::<Result<_, _>>()?;
        forget(memory, |name| !is_of_swap(name));
        Ok((machine, recovered))
    }

    /// What another process needs to know of the disks.
    #[must_use]
    pub fn saved(&self) -> Vec<SavedDisk> {
        self.disks().iter().map(|disk| saved(disk)).collect()
    }

    /// Contradictions between what the parts of the machine say of its disks; empty if there are
    /// none. Call it only while no thread uses them. Takes memory for each object.
    #[must_use]
    pub fn contradictions(&self) -> Vec<String> {
        let (mut found, mut frames) = (Vec::new(), 0);
        for disk in self.disks() {
            let name = disk.name();
            found.extend(disk.contradictions().into_iter().map(|text| format!("{name}: {text}")));
            frames += disk.stats().pool_bytes / PAGE_SIZE as u64;
        }
        let allocated = self.frames().stats().allocated;
        if frames != allocated {
            found.push(format!("the disks have {frames} frames, and {allocated} are allocated"));
        }
        found
    }

    fn add_saved(&self, saved: &SavedDisk) -> Result<Arc<Disk>, ControlError> {
        let disk = self.add_numbered(saved.id)?;
        let attributes = attributes(disk.clone());
        // Whether it is sealed is known before the backing device.
        let (last, first) = saved.settings.iter().partition::<Vec<_>, _>(|it| it.0 == LAST);
        for (name, value) in first.into_iter().chain(last) {
            let stored = patiently(|| attributes.store(name, value));
            stored.map_err(|error| {
                let what = format!("{} of {}: {}", name, disk.name(), error.message);
                ControlError::new(error.errno, what)
            })?;
        }
        Ok(disk)
    }
}

/// Tries again for a while what is refused as busy: the kernel closes the files of a dead process
/// that used io_uring a moment after the process is gone, and unlocks them then.
pub(crate) fn patiently<T>(
    mut action: impl FnMut() -> Result<T, ControlError>,
) -> Result<T, ControlError> {
    let start = Instant::now();
    loop {
        match action() {
            Err(error) if error.errno == Errno::EBUSY && start.elapsed() < PATIENCE => {
                thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Whether a region is one of the cache in front of swap areas.
pub(crate) fn is_of_swap(name: &str) -> bool {
    name.starts_with("swap")
}

/// Gives up the adopted regions with such names that nobody asked for.
pub(crate) fn forget(memory: &Memfds, which: impl Fn(&str) -> bool) {
    for region in memory.regions().into_iter().filter(|region| which(&region.name)) {
        memory.forget(&region.name);
    }
}

fn saved(disk: &Disk) -> SavedDisk {
    let settings = saved_settings(disk);
    let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let (id, bytes, generation) = (disk.id(), disk.bytes(), disk.generation());
    SavedDisk { id, bytes, generation, settings }
}

/// The bytes of the frames that another machine left in the memory.
fn has_frames(memory: &Memfds) -> Option<u64> {
    memory.regions().iter().find(|region| region.name == FRAMES).map(|region| region.bytes)
}

fn begin(
    memory: &Memfds,
    provider: Arc<dyn MemoryProvider>,
    mut options: MachineOptions,
) -> Result<(Machine, Arc<pagealloc::Zone>), ControlError> {
    // The file has whole pageblocks. A later process takes the number of frames from its length.
    let bytes = options.memory.max(1).checked_next_multiple_of(PAGEBLOCK_SIZE as u64);
    options.memory = bytes.unwrap_or(options.memory);
    let frames = memory.provider(FRAMES);
    let zone = zone_over(&frames, &*provider, options.cpus, options.memory)?;
    let kept = Arc::new(InFiles(memory.clone()));
    Ok((Machine::of(provider, options, zone.clone(), Some(kept)), zone))
}

/// Judges all `pages` pages of disk or area `id`, on `cpus` threads, by calls of `judge`.
pub(crate) fn walk(
    (id, pages): (u32, usize),
    cpus: usize,
    progress: &(dyn Fn(Progress) + Sync),
    judge: &(dyn Fn(Cpu, Range<usize>) + Sync),
) {
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let take = || -> Option<Range<usize>> {
        let start = next.fetch_add(CHUNK, Ordering::Relaxed);
        (start < pages).then(|| start..(start + CHUNK).min(pages))
    };
    let work = |cpu: Cpu| {
        while let Some(range) = take() {
            let length = range.len() as u64;
            judge(cpu, range);
            let done = done.fetch_add(length, Ordering::Relaxed) + length;
            progress(Progress { id, done, all: pages as u64 });
        }
    };
    let threads = cpus.min(pages.div_ceil(CHUNK)).max(1) as u32;
    thread::scope(|scope| {
        for cpu in (1..threads).map(Cpu) {
            // Where no thread can be made, the others do its work.
            let _ = thread::Builder::new().spawn_scoped(scope, move || work(cpu));
        }
        work(Cpu(0));
    });
}
