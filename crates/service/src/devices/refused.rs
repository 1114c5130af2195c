//! Disks that could not be taken over. The daemon has their files and block devices on, so that a
//! later program can serve them again, and can take them away. Until then each request fails.

use std::thread;
use std::time::Instant;

use fuse::Hold;
use machine::RefusedDisk;

use super::Devices;
use super::change::Change;
use super::refusal::Refusal;
use super::way::By;
use crate::loops::{LOOKING, PAUSE};

impl Devices {
    /// The disk of this name, if it could not be taken over.
    pub(super) fn refused(&self, name: &str) -> Option<RefusedDisk> {
        let last = name.rsplit('/').next().unwrap_or(name);
        self.machine.refused().into_iter().find(|it| last == format!("zram{}", it.saved.id))
    }

    /// Gives up what there is of such a disk. Returns by what it was reached.
    pub(super) fn give_up(
        &self,
        lifecycle: &Change<'_>,
        id: u32,
        force: bool,
    ) -> Result<Option<By>, Refusal> {
        let before = self.detach(lifecycle, id, force)?;
        self.machine.remove(id)?;
        tracing::info!("what there was of zram{id} is given up");
        Ok(before)
    }

    /// Makes such a disk an empty one without a size.
    pub(super) fn reset_refused(
        &self,
        lifecycle: &Change<'_>,
        id: u32,
        force: bool,
    ) -> Result<(), Refusal> {
        let before = self.give_up(lifecycle, id, force)?;
        let disk = self.machine.add_at(id)?;
        if let Some(state) = &self.state {
            state.forget_file_system(&disk.name());
        }
        self.attach(lifecycle, &disk, before)?;
        Ok(self.save()?)
    }

    /// Takes away the ways to all such disks before the daemon ends. What is done stays done if a
    /// later step fails: nobody used them.
    pub(super) fn detach_all_refused(
        &self,
        lifecycle: &Change<'_>,
        force: bool,
    ) -> Result<(), Refusal> {
        let end = Instant::now() + LOOKING;
        for refused in self.machine.refused() {
            loop {
                match self.detach(lifecycle, refused.saved.id, force) {
                    Err(Refusal::InUse(.., Hold::Open)) if Instant::now() < end => {
                        thread::sleep(PAUSE);
                    }
                    detached => break detached.map(drop)?,
                }
            }
        }
        Ok(())
    }
}
