//! The devices that the daemon before left, behind the frontends of this one.

use block::BlockDevice;
use control::ControlError;

use super::Devices;
use super::attached::{Attachment, without_loops};
use super::way::Way;
use crate::failure::sentence;
use crate::plan::{Asked, Followed, Plan, SNAPSHOT, of_device};

impl Devices {
    /// Puts the devices that the daemon before left behind the frontends. A device whose file the
    /// mount has already has been taken over with it, and keeps its block device.
    /// Returns what the user should know: a device that a frontend refuses keeps its contents, and
    /// the others go on.
    #[must_use]
    pub fn attach_recovered(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |name: &str, error: &ControlError| {
            notes.push(format!(
                "{name} keeps its contents and gets no block device: {}",
                sentence(error)
            ));
        };
        let lifecycle = self.change();
        let taken = lifecycle.files.as_ref().map(|files| files.mount.names()).unwrap_or_default();
        let (kept, new): (Vec<_>, Vec<_>) =
            self.machine.disks().into_iter().partition(|disk| taken.contains(&disk.name()));
        let kept = kept.iter().map(|disk| (disk.id(), Some(disk.abilities().flush)));
        let refused = self.machine.refused().into_iter().map(|it| (it.saved.id, None));
        let is_taken = |it: &(u32, _)| taken.contains(&format!("zram{}", it.0));
        let taken: Vec<(u32, Option<bool>)> = kept.chain(refused.filter(is_taken)).collect();
        if let Some(files) = lifecycle.files.as_ref().filter(|_| !taken.is_empty()) {
            let name = |id: u32| format!("zram{id}");
            let paths = taken.iter().map(|(id, _)| files.mount.path(&name(*id)));
            let there = match &files.loops {
                Some(loops) => loops.adopt(paths.collect()),
                None => Ok(paths.map(|path| without_loops(&path)).collect()),
            };
            let there = there.unwrap_or_else(|error| vec![Err(error); taken.len()]);
            for ((id, flush), there) in taken.into_iter().zip(there) {
                let mut attached = Attachment::made(files, &self.root, &name(id));
                match there {
                    // One that could not be taken over gets no new block device.
                    Ok(None) if flush.is_none() => {}
                    Ok(there) => {
                        let flush = flush.unwrap_or(false);
                        if let Err(error) = attached.open(&files.made, flush, there, None) {
                            note(&name(id), &error);
                        }
                    }
                    // The one that it may have, and its users, stay.
                    Err(error) => {
                        attached.is_unsure = true;
                        note(&name(id), &error);
                    }
                }
                self.ways.lock().insert(id, Way::File(attached));
            }
        }
        for disk in &new {
            if let Err(error) = self.attach(&lifecycle, disk, None) {
                note(&disk.name(), &error);
            }
        }
        notes
    }

    /// Closes the ways to devices that are not configured any more, which get those that are, and
    /// sets what a device follows while it is in use. Returns what the user should know, and what
    /// became of these options.
    #[must_use]
    pub fn follow(&self, by: &Plan) -> (Vec<String>, Followed) {
        let mut notes = Vec::new();
        for id in &by.closed {
            let Some(disk) = self.machine.disk(*id) else { continue };
            let closed = self.refuse_held(|it| it == *id).and_then(|()| {
                self.when_closed(|lifecycle| {
                    let before = self.detach(lifecycle, *id, false)?;
                    Ok(self.attach(lifecycle, &disk, None).inspect_err(|_| {
                        self.attach_again(lifecycle, &disk, before);
                    })?)
                })
            });
            if let Err(error) = closed {
                notes.push(format!("--transport is not followed: {}", sentence(&error)));
            }
        }
        (notes, self.set_all(&by.changes))
    }

    /// Sets options, each of the disk that it is of, or else of all.
    #[must_use]
    pub fn set_all(&self, changes: &Asked) -> Followed {
        let mut followed = Followed::default();
        let all: Vec<_> = changes
            .iter()
            .flat_map(|(option, value)| {
                let disks = self.disks_of(option).into_iter();
                disks.map(move |disk| (option, value, disk))
            })
            .collect();
        let to = all.iter().filter(|(option, ..)| of_device(option).1 == SNAPSHOT);
        let to = to.filter_map(|(_, value, name)| {
            let path = (!value.is_empty()).then(|| machine::path_of(value));
            Some((self.disk(name).ok()?.id(), path))
        });
        let refused = self.save_to(to.collect());
        for (option, value, name) in all {
            let set = self.disk(&name).and_then(|disk| match of_device(option).1 {
                "disksize" => self.resize(&disk, value),
                SNAPSHOT => refused.get(&disk.id()).cloned().map_or(Ok(()), Err),
                own => self.set_on(&disk, own, value),
            });
            followed.note((option, value), &name, &set);
        }
        followed
    }

    /// The names of the disks that `option` is of.
    fn disks_of(&self, option: &str) -> Vec<String> {
        match of_device(option) {
            (Some(device), _) if device.starts_with("zram") => vec![device.to_owned()],
            (Some(_), _) => Vec::new(),
            (None, SNAPSHOT) => self.saved_by_option(),
            (None, _) => self.machine.disks().iter().map(|disk| disk.name()).collect(),
        }
    }
}
