//! Disks that outlive the process: their state is in [`Memfds`], which another process can have.
//!
//! A machine made by [`Machine::kept`] has its frames and the tables of its disks there. Whoever
//! has the descriptors and a [`SavedDisk`] of each disk makes the machine anew with
//! [`Machine::recover`], however the first process ended. Each disk then has each page as of its
//! last store that had ended, or of one that had begun.
//!
//! A drop of such a machine gives nothing up: it is like a death. A disk is given up by a reset.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use control::{ControlError, Errno};
use host::Memfds;
use pagealloc::{Frames, MemoryProvider};
use units::{PAGE_SIZE, PAGEBLOCK_SIZE};
use zram::{Census, Family, Persist, Recovered, Recovery, SavedDisk};

use crate::host_files::KeptFiles;
use crate::left::{InFiles, PATIENCE, is_of_swap, no_memory, region, settle};
use crate::machine::{Machine, MachineOptions, zone_over};
use crate::recovery::{Tell, recover};
use crate::refused::{RefusedDisk, is_of_disk};

/// The region of the frames.
const FRAMES: &str = "zram.frames";
/// What became of a disk that another process left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskOutcome {
    /// The number of the disk.
    pub id: u32,
    /// What was recovered, or why it was refused: see [`Machine::refused`].
    pub recovered: Result<Recovered, ControlError>,
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
        if memory.regions().iter().any(|region| region.name == FRAMES) {
            let message = "the memory has the frames of another machine";
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        let (machine, zone) = begin(memory, provider, options, Instant::now())?;
        drop(zone);
        Ok(machine)
    }

    /// Makes a machine with the disks that another process left in `memory`, and tells what became
    /// of each that had a size or was refused. Threads judge the pages, as many as there are CPUs,
    /// and call `progress`.
    ///
    /// A disk whose backing device cannot be opened comes back without it:
    /// [`Recovered::absent_backing`]. A disk that cannot be recovered is refused by name, and its
    /// clones with it; the others go on. What there is of it stays: see [`Machine::refused`].
    ///
    /// Regions that no disk asked for are given up. Those of a cache in front of swap areas stay:
    /// see [`Machine::recover_swap`] and [`Machine::forget_swap`].
    ///
    /// # Errors
    /// What concerns all disks: `EINVAL` if their frames are not there, `EEXIST` for two disks of a
    /// number, `ENOMEM` when memory is out. What was left is as it was, and this process or another
    /// one can try again.
    pub fn recover(
        memory: &Memfds,
        provider: Arc<dyn MemoryProvider>,
        mut options: MachineOptions,
        disks: &[SavedDisk],
        progress: Tell<'_>,
    ) -> Result<(Machine, Vec<DiskOutcome>), ControlError> {
        let frames = region(memory, FRAMES)?;
        options.memory = frames.bytes;
        let mut numbers = BTreeSet::new();
        if let Some(twice) = disks.iter().find(|saved| !numbers.insert(saved.id)) {
            let message = format!("there are two devices zram{}", twice.id);
            return Err(ControlError::new(Errno::EEXIST, message));
        }
        let (cpus, until) = (options.cpus, Instant::now() + PATIENCE);
        let (machine, zone) = begin(memory, provider.clone(), options, until)?;
        let census = Arc::new(Census::new(&*provider, zone.capacity()).map_err(no_memory)?);
        let (mut surveyed, mut outcomes) = (Vec::new(), Vec::new());
        let mut refuse = |saved: &SavedDisk, why: ControlError| {
            machine.refuse(saved, &why, memory);
            outcomes.push(DiskOutcome { id: saved.id, recovered: Err(why) });
        };
        for saved in disks.iter().filter(|saved| saved.clone_of.is_none()) {
            let clones = clones_of(disks, saved.id).map(|clone| clone.id).collect();
            match Recovery::survey((machine.add_at(saved.id)?, clones), saved, &census) {
                Ok(recovery) => surveyed.extend(recovery.map(|it| (saved.id, it))),
                Err(why) => {
                    refuse(saved, why);
                    clones_of(disks, saved.id).for_each(|clone| refuse(clone, no_origin(clone)));
                }
            }
        }
        let has_origin = |saved: &SavedDisk| {
            saved
                .clone_of
                .is_none_or(|id| disks.iter().any(|it| (it.id, it.clone_of) == (id, None)))
        };
        disks.iter().filter(|it| !has_origin(it)).for_each(|it| refuse(it, no_origin(it)));
        let (numbers, surveyed): (Vec<u32>, Vec<Recovery>) = surveyed.into_iter().unzip();
        let holds = |live: &_| machine.refused.lock().hold(&frames, live);
        let recovered = recover(surveyed, &zone, (&*provider, cpus), progress, holds)?;
        for (id, family) in numbers.into_iter().zip(recovered) {
            let (origin, clones) = match family {
                Ok(Family { origin, clones }) => (Ok(origin), clones),
                Err(why) => (Err(why), Vec::new()),
            };
            outcomes.push(DiskOutcome { id, recovered: origin });
            for (clone, recovered) in clones {
                outcomes.push(DiskOutcome { id: clone.id(), recovered: Ok(recovered) });
                machine.put(clone);
            }
        }
        // A clone that was being given up is a disk without a size.
        for clone in disks.iter().filter(|saved| saved.clone_of.is_some()) {
            if !outcomes.iter().any(|outcome| outcome.id == clone.id) {
                machine.add_at(clone.id)?;
            }
        }
        outcomes.sort_by_key(|outcome| outcome.id);
        let is_refused =
            |name: &str| machine.refused.lock().disks.keys().any(|id| is_of_disk(name, *id));
        settle(memory, |name| !is_of_swap(name) && !is_refused(name));
        Ok((machine, outcomes))
    }

    /// Lets what there is of a disk stay as it is.
    fn refuse(&self, saved: &SavedDisk, why: &ControlError, memory: &Memfds) {
        self.take_out(saved.id);
        let refused = RefusedDisk { saved: saved.clone(), why: why.clone() };
        self.refused.lock().add(refused, memory);
    }

    /// The disks that [`Machine::recover`] refused. Their numbers and memory are taken, they are
    /// among [`Machine::saved`], and another process may recover them. [`Machine::remove`] gives
    /// one up.
    #[must_use]
    pub fn refused(&self) -> Vec<RefusedDisk> {
        self.refused.lock().disks.values().cloned().collect()
    }

    /// What another process needs to know of the disks.
    #[must_use]
    pub fn saved(&self) -> Vec<SavedDisk> {
        let refused = self.refused().into_iter().map(|refused| refused.saved);
        self.disks().iter().map(|disk| Recovery::save(disk)).chain(refused).collect()
    }

    /// Contradictions between what the parts of the machine say of its disks; empty if there are
    /// none. Call it only while no thread uses them. Takes memory for each object.
    #[must_use]
    pub fn contradictions(&self) -> Vec<String> {
        let (mut found, mut frames) = (Vec::new(), self.refused.lock().frames());
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
}

/// The clones of disk `id`.
fn clones_of(disks: &[SavedDisk], id: u32) -> impl Iterator<Item = &SavedDisk> {
    disks.iter().filter(move |saved| saved.clone_of == Some(id))
}

fn no_origin(clone: &SavedDisk) -> ControlError {
    let (id, origin) = (clone.id, clone.clone_of.unwrap_or_default());
    ControlError::invalid(format!(
        "zram{id} cannot be recovered: it is a clone of zram{origin}, which cannot be recovered"
    ))
}

fn begin(
    memory: &Memfds,
    provider: Arc<dyn MemoryProvider>,
    mut options: MachineOptions,
    until: Instant,
) -> Result<(Machine, Arc<pagealloc::Zone>), ControlError> {
    // The file has whole pageblocks. A later process takes the number of frames from its length.
    let bytes = options.memory.max(1).checked_next_multiple_of(PAGEBLOCK_SIZE as u64);
    options.memory = bytes.unwrap_or(options.memory);
    let frames = memory.provider(FRAMES);
    let zone = zone_over(&frames, &*provider, options.cpus, options.memory)?;
    // Who only looks has no key.
    if !memory.are_copies() {
        options.files = Arc::new(KeptFiles::new(options.files, memory.clone(), until));
    }
    let kept = Arc::new(InFiles { memory: memory.clone(), is_ahead: false });
    Ok((Machine::of(provider, options, zone.clone(), Some(kept)), zone))
}
