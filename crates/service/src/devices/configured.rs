//! What devices are asked to be by a configuration.

use std::sync::Arc;

use control::{ControlError, Errno};
use units::{PAGE_SIZE, pages_for, parse_size};
use zram::Disk;

use super::Devices;
use crate::plan::{Asked, of_device};

impl Devices {
    /// What the daemon was asked for, and follows.
    #[must_use]
    pub fn asked(&self) -> Asked {
        self.asked.lock().clone()
    }

    /// Sets what the daemon is asked for, also for the next one, from the next save on.
    pub fn set_asked(&self, asked: Asked) {
        self.change_asked(|it| *it = asked);
    }

    /// Forgets what `device`, which is gone, was asked to be: a later one of its name is another.
    pub(crate) fn forget_asked(&self, device: &str) {
        self.change_asked(|it| it.retain(|option, _| of_device(option).0 != Some(device)));
    }

    fn change_asked(&self, change: impl FnOnce(&mut Asked)) {
        let mut asked = self.asked.lock();
        change(&mut asked);
        if let Some(state) = &self.state {
            state.set_asked(asked.clone());
        }
    }

    /// Checks that [`Devices::resize`] could be done now. Nothing changes.
    ///
    /// # Errors
    /// As there.
    pub fn check_resize(&self, disk: &Arc<Disk>, size: &str) -> Result<(), ControlError> {
        let bytes = parse_size(size).map_err(|error| ControlError::invalid(error.to_string()))?;
        disk.check_resize(bytes)?;
        let (now, then) = (disk.bytes(), pages_for(bytes) * PAGE_SIZE as u64);
        if then != now {
            self.check_way_resizes(disk)?;
        }
        if then >= now {
            return Ok(());
        }
        // Who counts on the end of the disk loses by a smaller one, though nothing is stored there.
        self.check_one_unused(&disk.name())?;
        let name = disk.name();
        let left = self.state.as_ref().map(|state| state.file_systems()).unwrap_or_default();
        let is_asked = |option| self.asked.lock().contains_key(&format!("{name}/{option}"));
        if is_asked("mount") || is_asked("fs") || left.iter().any(|it| it.disk == name) {
            let message = format!(
                "{name} has a file system, which ends where the disk ends; it cannot become smaller"
            );
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        Ok(())
    }

    /// Gives a disk that may be in use another size. It becomes smaller only if nothing is lost by
    /// that: if it has no user and no file system, and nothing is stored beyond the new end.
    ///
    /// # Errors
    /// `EBUSY` for one that keeps its size; those of [`Disk::resize`]. Nothing has changed then.
    pub fn resize(&self, disk: &Arc<Disk>, size: &str) -> Result<(), ControlError> {
        self.check_resize(disk, size)?;
        self.set_on(disk, "resize", size)
    }
}
