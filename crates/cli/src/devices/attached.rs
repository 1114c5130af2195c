//! Where a device can be reached besides NBD: its file, its block device, its link. It has them
//! from its beginning to its end, whether it has a size or not, so that its number in the system
//! never changes under a program that knows it.

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

/// Programs that look at what changed (udev) have a device open for moments.
const LOOKING: Duration = Duration::from_secs(1);

/// What a daemon with files has of them.
pub struct Files {
    /// Where they are served.
    pub mount: Mount,
    /// Are block devices made of them?
    pub loops: bool,
    /// Where the links to them are written down.
    pub made: Arc<Made>,
}

/// Where a device can be reached.
pub(super) struct Attached {
    pub(super) file: PathBuf,
    pub(super) block_device: Option<LoopDevice>,
    pub(super) link: PathBuf,
    /// Where the control tree is, which names the device as well.
    tree: PathBuf,
}

impl Attached {
    /// Makes file, block device and link. The file is no user of the device: what users there are
    /// is asked of the system.
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

    /// Takes the block device away, or leaves everything as it was.
    pub(super) fn detach(&mut self, force: bool) -> Result<(), ControlError> {
        let Some(block_device) = &mut self.block_device else { return Ok(()) };
        let detached = match force {
            true => block_device.force_detach().map(drop),
            false => block_device.detach(),
        };
        detached.map_err(|error| frontend_error(&error))
    }

    /// The block device, else the file.
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

    /// Who uses the block device or the file; `None` when nobody does.
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

    /// Takes the block device for us alone, and what the system kept of its contents from it.
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
        // The kernel asks the file system's memory of the file, which this refreshes.
        let file = &self.file;
        fs::metadata(file).map_err(|e| failed(format!("cannot ask {}", file.display()), &e))?;
        block_device.refresh_size().map_err(|e| frontend_error(&e))
    }
}
