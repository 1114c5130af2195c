//! The file, block device and link of a device, by which programs reach it besides NBD. A device
//! has them for all its life, with or without a size, so its number in the system never changes
//! under a program that knows it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::{ControlError, Errno};
use fuse::{Hold, LoopOptions, Mount, Opens, find_by_backing};
use zram::Disk;

use crate::failure::frontend_error;
use crate::latency::Timed;
use crate::loops::{Adopted, BlockFile, Loops};
use crate::mounts::used_by;
use crate::root::{Made, Root};

/// The FUSE frontend of a daemon.
pub struct Files {
    /// The mount of the files.
    pub mount: Mount,
    /// Makes block devices of the files; None if there are to be none.
    pub loops: Option<Arc<Loops>>,
    /// The record of the links to them.
    pub made: Arc<Made>,
}

/// The file, block device and link of a device.
#[derive(Clone, Default)]
pub(super) struct Attachment {
    pub(super) file: PathBuf,
    pub(super) block_device: Option<BlockFile>,
    /// It is not known whether a daemon before attached a block device, which may be in use.
    pub(super) is_unsure: bool,
    pub(super) link: PathBuf,
    opens: Opens,
    /// Opens of the file that are this process's: the block device has it open once, but one of a
    /// daemon before does not count here.
    own_opens: u64,
    loops: Option<Arc<Loops>>,
    loop_options: LoopOptions,
}

impl Attachment {
    /// Makes the file. It does not count as a user of the device: the system is asked for users.
    pub(super) fn make(
        files: &Files,
        root: &Root,
        disk: &Arc<Disk>,
    ) -> Result<Attachment, ControlError> {
        let name = disk.name();
        let device = Arc::new(Timed::new(&name, disk.clone()));
        files.mount.add(&name, device).map_err(|e| frontend_error(&e))?;
        Ok(Attachment::made(files, root, &name))
    }

    /// As [`Attachment::make`], for a file that the mount has.
    pub(super) fn made(files: &Files, root: &Root, name: &str) -> Attachment {
        let (file, link) = (files.mount.path(name), root.device(name));
        let (opens, loops) = (files.mount.opens(name), files.loops.clone());
        let (block_device, is_unsure, own_opens) = (None, false, 0);
        let loop_options = files.mount.loop_options();
        Attachment { file, block_device, is_unsure, link, opens, own_opens, loops, loop_options }
    }

    /// Takes the block device that is `there` from a daemon before, or makes one, with the `number`
    /// it had if that is free; with `flush` it passes flushes on. Makes the link. From now
    /// on others can use the device. On an error there is no block device, or none that is new.
    pub(super) fn open(
        &mut self,
        made: &Made,
        flush: bool,
        there: Option<BlockFile>,
        number: Option<u32>,
    ) -> Result<(), ControlError> {
        let is_new = there.is_none();
        if let Some(loops) = &self.loops {
            self.block_device = Some(match there {
                Some(device) => device,
                None => {
                    let options = LoopOptions { flush, number, ..self.loop_options };
                    let device = loops.attach(&self.file, options)?;
                    self.own_opens = 1;
                    device
                }
            });
        }
        made.link_for(&self.link, self.place(), is_new).inspect_err(|_| {
            if let (Some(loops), Some(device)) = (&self.loops, self.block_device.take()) {
                let _ = loops.detach_patiently(&device);
                self.own_opens = 0;
            }
        })
    }

    /// Removes the block device, unless others have it or the file: everything stays as it was
    /// then, as on an error.
    pub(super) fn detach(&self, force: bool) -> Result<Option<Hold>, ControlError> {
        if !force && self.is_open() {
            return Ok(Some(Hold::Open));
        }
        match self.device() {
            Ok(Some((loops, device))) => loops.detach(&device, force),
            Err(error) if !force => Err(error),
            _ => Ok(None),
        }
    }

    /// The block device, with what changes it. One that was not found before is looked for again.
    fn device(&self) -> Result<Option<(&Loops, BlockFile)>, ControlError> {
        let device = match (&self.loops, self.is_unsure) {
            (_, false) => self.block_device.clone(),
            (Some(loops), true) => {
                loops.adopt(vec![self.file.clone()])?.pop().transpose()?.flatten()
            }
            (None, true) => without_loops(&self.file)?,
        };
        Ok(self.loops.as_deref().zip(device))
    }

    /// The path of the block device, or else of the file.
    pub(super) fn place(&self) -> &Path {
        self.block_device.as_ref().map_or(&*self.file, BlockFile::path)
    }

    /// Do others have the file open? It waits for nothing, and does not know of those who opened it
    /// under a daemon before.
    pub(super) fn is_open(&self) -> bool {
        self.opens.count() > self.own_opens
    }

    /// Does a process have the file open that may have opened it under a daemon before? Looks at
    /// all processes if there was one.
    pub(super) fn is_held_since_before(&self) -> bool {
        self.opens.are_from_before()
    }

    /// Has a program the file open, whenever it opened it? Looks at all processes, as
    /// [`Attachment::is_held_since_before`].
    pub(super) fn has_users(&self) -> bool {
        self.is_open() || self.is_held_since_before()
    }

    /// What stands on the block device, and who has the file open; empty without such users.
    pub(super) fn users(&self) -> Result<Vec<String>, ControlError> {
        let mut users = match self.device()? {
            Some((loops, device)) => loops.users(&device)?,
            None => Vec::new(),
        };
        if users.is_empty() && self.has_users() {
            users = self.names();
        }
        Ok(users)
    }

    /// The names of those who have it, for a message.
    pub(super) fn names(&self) -> Vec<String> {
        if self.has_users() {
            return vec![format!("{} is open{}", self.file.display(), used_by(&self.file))];
        }
        match self.device() {
            Ok(Some((loops, device))) => loops.names(&device).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Tells the system that the device has another size.
    pub(super) fn resized(&self) -> Result<(), ControlError> {
        self.device()?.map_or(Ok(()), |(loops, device)| loops.resize(&device))
    }
}

/// The block device of a file, for a daemon that cannot change one.
pub(super) fn without_loops(file: &Path) -> Adopted {
    if find_by_backing(file).is_empty() {
        return Ok(None);
    }
    let message = "it has one of a daemon before, and this one cannot change block devices";
    Err(ControlError::new(Errno::ENODEV, message))
}
