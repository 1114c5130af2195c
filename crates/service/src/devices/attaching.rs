//! How the ways to devices are made and taken away. The caller has the lock of a change.

use std::path::PathBuf;
use std::sync::Arc;

use block::BlockDevice;
use control::{ControlError, Errno};
use sync::atomic::Ordering;
use ublk::Id;
use zram::Disk;

use super::attached::Attachment;
use super::by_ublk::UblkDisk;
use super::change::Change;
use super::refusal::{Refusal, in_use};
use super::way::{By, Way, choose};
use super::{Devices, Files};
use crate::failure::ublk_error;
use crate::mounts::{places_of, stands_on};
use crate::root::{Made, Root};
use crate::transport::Transport;

impl Devices {
    /// Reaches all devices by `transport` from now on that have no way yet, as far as what it needs
    /// is there.
    pub fn reach_by(&self, transport: Transport) {
        self.lifecycle.lock().transport = transport;
    }

    /// Serves devices as files from now on.
    pub fn serve_files(&self, files: Files) {
        self.block.store(files.loops.is_some(), Ordering::Relaxed);
        self.by_ring.store(files.mount.is_by_ring(), Ordering::Relaxed);
        *self.cut_off.lock() = Some(files.mount.cut_off());
        self.lifecycle.lock().files = Some(files);
    }

    /// Serves devices by ublk from now on, which must be available. The links to them are recorded
    /// in `made`.
    pub fn serve_by_ublk(&self, made: Arc<Made>) {
        self.block.store(true, Ordering::Relaxed);
        self.lifecycle.lock().driver = Some(made);
    }

    /// The place where block devices can be made: the record of what the daemon makes, and its
    /// root.
    ///
    /// # Errors
    /// `ENODEV` when the daemon makes no block devices or is stopping.
    pub fn place(&self) -> Result<(Arc<Made>, &Root), ControlError> {
        let lifecycle = self.change();
        lifecycle.check()?;
        let none = || ControlError::new(Errno::ENODEV, "the daemon makes no block devices");
        let files = lifecycle.files.as_ref().filter(|files| files.loops.is_some());
        let made = files.map(|files| &files.made).or(lifecycle.driver.as_ref());
        Ok((made.cloned().ok_or_else(none)?, &self.root))
    }

    /// The way to device `id`.
    pub(super) fn way(&self, id: u32) -> Option<Way> {
        self.ways.lock().get(&id).cloned()
    }

    /// Saves a device and gives it its way, which it has none of: as it was reached `before`, if it
    /// was just detached. Before others can use it, the next daemon knows it.
    ///
    /// # Errors
    /// As [`Devices::save`]; the error of a frontend. What was made is there, or nothing.
    pub(super) fn attach(
        &self,
        lifecycle: &Change<'_>,
        disk: &Arc<Disk>,
        before: Option<By>,
    ) -> Result<(), ControlError> {
        let left = self.state.as_ref().and_then(|state| state.ublk(disk.id()));
        let by = choose(left.is_some(), before, lifecycle.transport);
        let way = match (by, &lifecycle.files, &lifecycle.driver) {
            (Some(By::File(number)), Some(files), _) => {
                Way::File(self.attach_file(files, disk, number)?)
            }
            (Some(By::Driver), _, Some(made)) if disk.bytes() != 0 => {
                self.save()?;
                let lasts = self.state.is_some();
                let served = UblkDisk::serve(disk, (left, lasts), (&self.root, made))?;
                if let Some(state) = &self.state {
                    state.set_ublk(disk.id(), Some(served.id));
                }
                Way::Driver(Arc::new(served))
            }
            (Some(By::Driver), _, None) if disk.bytes() != 0 => {
                let message = format!("{}: the driver ublk cannot be used", disk.name());
                return Err(ControlError::new(Errno::ENODEV, message));
            }
            _ => return self.save(),
        };
        let is_by_driver = matches!(way, Way::Driver(_));
        self.ways.lock().insert(disk.id(), way);
        if is_by_driver { self.save() } else { Ok(()) }
    }

    fn attach_file(
        &self,
        files: &Files,
        disk: &Arc<Disk>,
        number: Option<u32>,
    ) -> Result<Attachment, ControlError> {
        let mut attached = Attachment::make(files, &self.root, disk)?;
        self.note_files(files);
        let opened = self
            .save()
            .and_then(|()| attached.open(&files.made, disk.abilities().flush, None, number));
        if let Err(error) = opened {
            files.mount.remove(&disk.name());
            self.note_files(files);
            return Err(error);
        }
        Ok(attached)
    }

    /// Has the next save tell the next daemon of the files of the mount.
    fn note_files(&self, files: &Files) {
        if let Some(state) = &self.state {
            state.set_files(files.mount.numbers());
        }
    }

    /// Attaches a device again, after a detachment whose next step may have failed.
    pub(super) fn attach_again(
        &self,
        lifecycle: &Change<'_>,
        disk: &Arc<Disk>,
        before: Option<By>,
    ) {
        if let Err(error) = self.attach(lifecycle, disk, before) {
            tracing::error!("{} keeps its contents but is not attached: {error}", disk.name());
        }
    }

    /// Takes away the way to device `id`: the reverse of `attach`. Returns by what it was reached.
    /// When it is in use, everything stays as it was.
    pub(super) fn detach(
        &self,
        lifecycle: &Change<'_>,
        id: u32,
        force: bool,
    ) -> Result<Option<By>, Refusal> {
        let (name, way) = (format!("zram{id}"), self.way(id));
        self.note_flushed(id);
        self.give_up_left(id, force)?;
        let Some(way) = way else {
            if let Some(made) = lifecycle.made() {
                made.remove(&self.root.device(&name));
            }
            return Ok(None);
        };
        if let Some(hold) = way.detach(force)? {
            return Err(Refusal::InUse(name, Box::new(way), hold));
        }
        self.ways.lock().remove(&id);
        match (&way, &lifecycle.files, &self.state) {
            (Way::File(_), Some(files), _) => {
                drop(files.mount.remove(&name));
                self.note_files(files);
            }
            (Way::Driver(_), _, Some(state)) => state.set_ublk(id, None),
            _ => {}
        }
        if let Some(made) = lifecycle.made() {
            made.remove(way.link());
        }
        Ok(Some(way.by()))
    }

    /// The block device that the driver keeps for device `id` from a daemon before, and that nobody
    /// serves.
    pub(super) fn left(&self, id: u32) -> Option<(Id, PathBuf)> {
        let is_served = self.way(id).and_then(Way::driver).is_some();
        let left = self.state.as_ref().filter(|_| !is_served)?.ublk(id)?;
        Some((left, PathBuf::from(format!("/dev/ublkb{}", left.number))))
    }

    /// The error that names the users of that; `None` without users.
    pub(super) fn left_busy(&self, id: u32) -> Option<ControlError> {
        let (_, path) = self.left(id)?;
        stands_on(&path).then(|| in_use(&format!("zram{id}"), &path, &places_of(&path)))
    }

    /// Removes that. With `force` its users get errors, and what the driver refuses stays.
    fn give_up_left(&self, id: u32, force: bool) -> Result<(), ControlError> {
        let (Some((left, path)), Some(state)) = (self.left(id), &self.state) else { return Ok(()) };
        if !force && let Some(busy) = self.left_busy(id) {
            return Err(busy);
        }
        match ublk::clear(left.number, left.maker) {
            Err(error) if !force => return Err(ublk_error(&error)),
            Err(error) => tracing::error!("{} stays: {error}", path.display()),
            Ok(()) => {}
        }
        state.set_ublk(id, None);
        Ok(())
    }

    /// Checks that the way to a device can follow another size.
    ///
    /// # Errors
    /// `EBUSY` if that keeps its size.
    pub(super) fn check_way_resizes(&self, disk: &Disk) -> Result<(), ControlError> {
        match (self.way(disk.id()), self.left(disk.id())) {
            (_, Some((_, path))) => {
                let message = format!("{} waits for its server: its size stays", path.display());
                Err(ControlError::new(Errno::EBUSY, message))
            }
            (Some(way), None) => way.check_resize(&disk.name()),
            (None, None) => Ok(()),
        }
    }
}
