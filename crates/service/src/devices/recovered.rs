//! The devices that the daemon before left, behind the frontends of this one.

use control::ControlError;
use zram::Disk;

use super::{Attachment, Devices};
use crate::failure::sentence;
use crate::plan::{Asked, DiskWay, Plan, of_device};

impl Devices {
    /// Puts the devices that the daemon before left behind the frontends. A device whose file the
    /// mount has already has been taken over with it, and keeps its block device.
    /// Returns what the user should know: a device that a frontend refuses keeps its contents, and
    /// the others go on.
    #[must_use]
    pub fn attach_recovered(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |disk: &Disk, error: &ControlError| {
            notes.push(format!(
                "{} keeps its contents and has no block device: {}",
                disk.name(),
                sentence(error)
            ));
        };
        let lifecycle = self.change();
        let taken = lifecycle.files.as_ref().map(|files| files.mount.names()).unwrap_or_default();
        let (taken, new): (Vec<_>, Vec<_>) =
            self.machine.disks().into_iter().partition(|disk| taken.contains(&disk.name()));
        if let Some(files) = lifecycle.files.as_ref().filter(|_| !taken.is_empty()) {
            let paths = taken.iter().map(|disk| files.mount.path(&disk.name())).collect();
            let there = match &files.loops {
                Some(loops) => loops.adopt(paths),
                None => Ok(vec![None; taken.len()]),
            };
            let there = there.unwrap_or_else(|error| {
                taken.iter().for_each(|disk| note(disk, &error));
                vec![None; taken.len()]
            });
            for (disk, there) in taken.iter().zip(there) {
                let mut attached = Attachment::made(files, &self.root, &disk.name());
                if let Err(error) = attached.open(&files.made, disk, there, None) {
                    note(disk, &error);
                }
                self.attached.lock().insert(disk.id(), attached);
            }
        }
        for disk in &new {
            if let Err(error) = self.attach(&lifecycle, disk, None) {
                note(disk, &error);
            }
        }
        notes
    }

    /// Closes the ways to devices that are not configured any more, and sets what a device follows
    /// while it is in use. Returns what the user should know.
    #[must_use]
    pub fn follow(&self, by: &Plan) -> Vec<String> {
        let mut notes = Vec::new();
        for (id, _) in by.disks.iter().filter(|(_, way)| **way == DiskWay::Close) {
            let Some(disk) = self.machine.disk(*id) else { continue };
            let closed =
                self.when_closed(|lifecycle| self.detach(lifecycle, &disk, false).map(drop));
            if let Err(error) = closed {
                notes.push(format!("--transport is not followed: {}", sentence(&error)));
            }
        }
        notes.extend(self.set_all(&by.changes));
        notes
    }

    /// Sets attributes, each of the device that it is of, or else of all. Returns what became of
    /// them.
    #[must_use]
    pub fn set_all(&self, changes: &Asked) -> Vec<String> {
        let mut notes = Vec::new();
        for disk in self.machine.disks() {
            for (name, value) in changes {
                let (device, name) = of_device(name);
                if device.is_some_and(|device| device != disk.name()) {
                    continue;
                }
                match self.set_on(&disk, name, value) {
                    Ok(()) => notes.push(format!("{}: {name} is {value} now", disk.name())),
                    Err(error) => {
                        notes.push(format!("{}: {name} stays: {}", disk.name(), sentence(&error)))
                    }
                }
            }
        }
        notes
    }
}
