//! The file, block device and link of a device, by which programs reach it besides NBD. A device
//! has them for all its life, with or without a size, so its number in the system never changes
//! under a program that knows it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rampack::block::BlockDevice;
use rampack::control::tree::DeviceNode;
use rampack::control::{ControlError, Errno};
use rampack::fuse::{LoopDevice, LoopOptions, Mount};
use rampack::zram::Disk;

use crate::failure::{failed, frontend_error};
use crate::mounts::openers_of;
use crate::root::{Made, Root};
use crate::sys;

/// How long a program such as udev, which looks at a change, may have a device open.
const LOOKING: Duration = Duration::from_secs(1);

/// The FUSE frontend of a daemon.
pub struct Files {
    /// The mount of the files.
    pub mount: Mount,
    /// Are block devices made of the files?
    pub loops: bool,
    /// The record of the links to them.
    pub made: Arc<Made>,
}

/// The file, block device and link of a device.
pub(super) struct Attached {
    pub(super) file: PathBuf,
    pub(super) block_device: Option<LoopDevice>,
    pub(super) link: PathBuf,
    /// The mount point of the control tree, which names the device as well.
    tree: PathBuf,
}

impl Attached {
    /// Makes file, block device and link. The file does not count as a user of the device: the
    /// system is asked for users.
    pub(super) fn make(
        files: &Files,
        root: &Root,
        disk: &Arc<Disk>,
    ) -> Result<Attached, ControlError> {
        let name = disk.name();
        let device = disk.clone();
        let flush = device.abilities().flush;
        let file = files.mount.add(&name, device).map_err(|e| frontend_error(&e))?;
        let made = || -> Result<Attached, ControlError> {
            let mut block_device = None;
            if files.loops {
                let options = LoopOptions { flush, ..LoopOptions::default() };
                let made = LoopDevice::attach(&file, options).map_err(|e| frontend_error(&e))?;
                block_device = Some(made);
            }
            let link = root.device(&name);
            let target = block_device.as_ref().map_or(&*file, LoopDevice::path);
            files.made.link(&link, target)?;
            Ok(Attached { file: file.clone(), block_device, link, tree: root.tree() })
        };
        let made = made();
        if made.is_err() {
            files.mount.remove(&name);
        }
        made
    }

    /// Removes the block device. On an error everything stays as it was.
    pub(super) fn detach(&mut self, force: bool) -> Result<(), ControlError> {
        let Some(block_device) = &mut self.block_device else { return Ok(()) };
        let detached = match force {
            true => block_device.force_detach().map(drop),
            false => block_device.detach(),
        };
        detached.map_err(|error| frontend_error(&error))
    }

    /// The path of the block device, or else of the file.
    pub(super) fn place(&self) -> &Path {
        self.block_device.as_ref().map_or(&*self.file, LoopDevice::path)
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
        let mut users = match &self.block_device {
            Some(block_device) => block_device.in_use().iter().map(ToString::to_string).collect(),
            None => Vec::new(),
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

    /// Opens the block device exclusively, and drops what the system cached of its contents.
    pub(super) fn claim(&self) -> Result<Option<File>, ControlError> {
        let Some(block_device) = &self.block_device else { return Ok(None) };
        let path = block_device.path();
        let claim = || -> io::Result<File> {
            let claimed = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path)?;
            sys::flush_buffers(&claimed)?;
            Ok(claimed)
        };
        claim().map(Some).map_err(|e| failed(format!("cannot take {}", path.display()), &e))
    }

    /// Tells the system that the device has another size.
    pub(super) fn resized(&self) -> Result<(), ControlError> {
        let Some(block_device) = &self.block_device else { return Ok(()) };
        block_device.refresh_size().map_err(|e| frontend_error(&e))
    }
}
