//! The file, block device and link of a device, by which programs reach it besides NBD. A device
//! has them for all its life, with or without a size, so its number in the system never changes
//! under a program that knows it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rampack::block::BlockDevice;
use rampack::control::tree::DeviceNode;
use rampack::control::{ControlError, Errno};
use rampack::fuse::Mount;
use rampack::zram::Disk;

use crate::failure::frontend_error;
use crate::loops::{BlockFile, Claim, Loops};
use crate::mounts::openers_of;
use crate::root::{Made, Root};

/// How long a program such as udev, which looks at a change, may have a device open.
const LOOKING: Duration = Duration::from_secs(1);

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
pub(super) struct Attached {
    pub(super) file: PathBuf,
    pub(super) block_device: Option<BlockFile>,
    pub(super) link: PathBuf,
    /// The mount point of the control tree, which names the device as well.
    tree: PathBuf,
    loops: Option<Arc<Loops>>,
}

impl Attached {
    /// Makes the file. It does not count as a user of the device: the system is asked for users.
    pub(super) fn make(
        files: &Files,
        root: &Root,
        disk: &Arc<Disk>,
    ) -> Result<Attached, ControlError> {
        let name = disk.name();
        let file = files.mount.add(&name, disk.clone()).map_err(|e| frontend_error(&e))?;
        let (link, tree, loops) = (root.device(&name), root.tree(), files.loops.clone());
        Ok(Attached { file, block_device: None, link, tree, loops })
    }

    /// As [`Attached::make`], for a file that the mount has.
    pub(super) fn made(files: &Files, root: &Root, name: &str) -> Attached {
        let (file, link) = (files.mount.path(name), root.device(name));
        let (tree, loops) = (root.tree(), files.loops.clone());
        Attached { file, block_device: None, link, tree, loops }
    }

    /// Makes the block device, or takes the one that is `there` from a daemon before, and the link.
    /// From now on others can use the device. On an error there is no block device.
    pub(super) fn open(
        &mut self,
        made: &Made,
        disk: &Disk,
        there: Option<BlockFile>,
    ) -> Result<(), ControlError> {
        if let Some(loops) = &self.loops {
            self.block_device = Some(match there {
                Some(device) => device,
                None => loops.attach(&self.file, disk.abilities().flush, None)?,
            });
        }
        made.link(&self.link, self.place()).inspect_err(|_| {
            let _ = self.detach(false);
        })
    }

    /// Removes the block device. On an error everything stays as it was.
    pub(super) fn detach(&mut self, force: bool) -> Result<(), ControlError> {
        let (Some(loops), Some(device)) = (&self.loops, &self.block_device) else { return Ok(()) };
        loops.detach(device, force)?;
        self.block_device = None;
        Ok(())
    }

    /// The path of the block device, or else of the file.
    pub(super) fn place(&self) -> &Path {
        self.block_device.as_ref().map_or(&*self.file, BlockFile::path)
    }

    /// The block device as a node of a directory.
    pub(super) fn node(&self) -> Option<DeviceNode> {
        let found = fs::metadata(self.block_device.as_ref()?.path()).ok()?;
        Some(DeviceNode {
            block: true,
            major: libc::major(found.rdev()),
            minor: libc::minor(found.rdev()),
            mode: found.mode() & 0o7777,
            owner: (found.uid(), found.gid()),
        })
    }

    /// The error that names the users of the block device or the file; `None` without users.
    pub(super) fn busy(&self, mount: &Mount, name: &str) -> Option<ControlError> {
        let mut users = match (&self.loops, &self.block_device) {
            (Some(loops), Some(device)) => match loops.users(device) {
                Ok(users) => users,
                Err(error) => return Some(error),
            },
            _ => Vec::new(),
        };
        let end = Instant::now() + LOOKING;
        while users.is_empty()
            && let Some(block_device) = &self.block_device
        {
            let openers = openers_of(block_device.path(), name, &self.tree);
            if openers.is_empty() {
                break;
            }
            if Instant::now() > end {
                users = openers.iter().map(|holder| format!("open in {holder}")).collect();
            }
            thread::sleep(Duration::from_millis(10));
        }
        let own = u64::from(self.block_device.is_some());
        if users.is_empty() && mount.open_count(name) > own {
            users.push(format!("{} is open", self.file.display()));
        }
        if users.is_empty() {
            return None;
        }
        let users = users.join(", ");
        let message = format!("{name} ({}) is in use: {users}", self.place().display());
        Some(ControlError::new(Errno::EBUSY, message))
    }

    /// Takes the block device, which no other program can begin to use then.
    pub(super) fn claim(&self) -> Result<Option<Claim>, ControlError> {
        let (Some(loops), Some(device)) = (&self.loops, &self.block_device) else {
            return Ok(None);
        };
        loops.claim(device).map(Some)
    }

    /// Tells the system that the device has another size.
    pub(super) fn resized(&self) -> Result<(), ControlError> {
        let (Some(loops), Some(device)) = (&self.loops, &self.block_device) else {
            return Ok(());
        };
        loops.resize(device)
    }
}
