//! What another process left and this one cannot recover. It stays as it is, for a third one.
//!
//! Nobody can say which frames such a disk has. So each frame with memory that is no other disk's
//! is allocated, until the last such disk is recovered by another process or removed.

use std::collections::BTreeMap;
use std::ops::Range;

use control::{ControlError, Errno};
use host::{KeptRegion, Memfds};
use pagealloc::{FrameSet, Frames};
use units::{Cpu, Frame, PAGE_SIZE};
use zram::SavedDisk;
use zswap::SavedSwap;

use crate::left::forget;

/// A disk that cannot be recovered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedDisk {
    /// What was saved of it.
    pub saved: SavedDisk,
    /// Why it cannot be recovered.
    pub why: ControlError,
}

/// What a machine holds and cannot use.
#[derive(Default)]
pub(crate) struct Refused {
    pub disks: BTreeMap<u32, RefusedDisk>,
    pub swap: Option<SavedSwap>,
    memory: Option<Memfds>,
    frames: Vec<Range<u32>>,
}

/// Whether a region has something of disk `id`.
pub(crate) fn is_of_disk(name: &str, id: u32) -> bool {
    name.strip_prefix(&format!("zram{id}")).is_some_and(|rest| rest.starts_with('.'))
}

impl Refused {
    /// Adds a disk that is refused. What there is of it stays in `memory`.
    pub fn add(&mut self, refused: RefusedDisk, memory: &Memfds) {
        self.memory = Some(memory.clone());
        self.disks.insert(refused.saved.id, refused);
    }

    /// Adds all frames of `region` that have memory and are not `live` to these, if a disk was
    /// refused: nobody can say which of them it has.
    ///
    /// # Errors
    /// The error of lseek(2).
    pub fn hold(&mut self, region: &KeptRegion, live: &FrameSet) -> Result<(), ControlError> {
        let mut from = 0;
        while !self.disks.is_empty() {
            let data = region.data(from).map_err(|error| {
                let errno = Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
                ControlError::new(errno, format!("{}: {error}", region.name))
            })?;
            let Some(data) = data else { break };
            let frame = |at: u64| (at / PAGE_SIZE as u64) as u32;
            for number in (frame(data.start)..frame(data.end)).filter(|it| live.insert(Frame(*it)))
            {
                match self.frames.last_mut() {
                    Some(run) if run.end == number => run.end += 1,
                    _ => self.frames.push(number..number + 1),
                }
            }
            from = data.end;
        }
        Ok(())
    }

    /// How many frames it has.
    pub fn frames(&self) -> u64 {
        self.frames.iter().map(|run| u64::from(run.end - run.start)).sum()
    }

    /// Gives up what is left of a disk. Returns whether there was such a disk.
    ///
    /// # Errors
    /// `EBUSY` if it has clones, whose pages are in its memory.
    pub fn give_up(&mut self, id: u32, zone: &dyn Frames) -> Result<bool, ControlError> {
        let clones = self.disks.values().filter(|it| it.saved.clone_of == Some(id));
        let clones: Vec<String> = clones.map(|it| format!("zram{}", it.saved.id)).collect();
        if !clones.is_empty() {
            let clones = clones.join(", ");
            let message = format!("zram{id} has clones: {clones}; remove them first");
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        if self.disks.remove(&id).is_none() {
            return Ok(false);
        }
        if let Some(memory) = &self.memory {
            forget(memory, |name| is_of_disk(name, id));
        }
        if self.disks.is_empty() {
            for frame in self.frames.drain(..).flatten() {
                zone.free(Cpu(0), Frame(frame));
            }
        }
        Ok(true)
    }
}
