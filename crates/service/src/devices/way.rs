//! The one way to each device, besides NBD and vhost-user: a file with its loop device, or a block
//! device by the driver ublk. Two would lead to the same bytes past each other.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use control::tree::DeviceNode;
use control::{ControlError, Errno};
use fuse::Hold;

use super::attached::Attachment;
use super::by_ublk::UblkDisk;
use crate::mounts::node_of;
use crate::transport::Transport;

/// By what a device is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// A file, whose loop device has this number if that is free.
    File(Option<u32>),
    /// The driver ublk.
    Driver,
}

/// By what a device without a way is to be reached: the block device that the driver keeps for it,
/// what it was `before` a step that failed, or what is configured.
pub(super) fn choose(
    is_kept_by_driver: bool,
    before: Option<By>,
    transport: Transport,
) -> Option<By> {
    let configured = match transport {
        Transport::Nbd => None,
        Transport::Ublk => Some(By::Driver),
        Transport::Auto | Transport::Fuse | Transport::FuseClassic | Transport::FuseRing => {
            Some(By::File(None))
        }
    };
    is_kept_by_driver.then_some(By::Driver).or(before).or(configured)
}

/// The way to a device.
#[derive(Clone)]
pub(super) enum Way {
    File(Attachment),
    Driver(Arc<UblkDisk>),
}

impl Way {
    /// Removes the block device, unless others have it or the file: everything stays as it was
    /// then, as on an error.
    pub(super) fn detach(&self, force: bool) -> Result<Option<Hold>, ControlError> {
        match self {
            Way::File(attached) => attached.detach(force),
            Way::Driver(served) => served.take_down(force),
        }
    }

    /// By what it was, for another one in its place.
    pub(super) fn by(&self) -> By {
        match self {
            Way::File(it) => By::File(it.block_device.as_ref().map(|device| device.number())),
            Way::Driver(_) => By::Driver,
        }
    }

    /// The file and the rest of that way, if it is that.
    pub(super) fn file(self) -> Option<Attachment> {
        match self {
            Way::File(attached) => Some(attached),
            Way::Driver(_) => None,
        }
    }

    /// The block device by ublk, if it is that.
    pub(super) fn driver(self) -> Option<Arc<UblkDisk>> {
        match self {
            Way::File(_) => None,
            Way::Driver(served) => Some(served),
        }
    }

    /// The path of the block device.
    pub(super) fn block_device(&self) -> Option<&Path> {
        match self {
            Way::File(attached) => attached.block_device.as_ref().map(|device| device.path()),
            Way::Driver(served) => Some(&served.path),
        }
    }

    /// The path of the block device, or else of the file.
    pub(super) fn place(&self) -> &Path {
        match self {
            Way::File(attached) => attached.place(),
            Way::Driver(served) => &served.path,
        }
    }

    /// The link to that.
    pub(super) fn link(&self) -> &Path {
        match self {
            Way::File(attached) => &attached.link,
            Way::Driver(served) => &served.link,
        }
    }

    /// The block device as a node of a directory.
    pub(super) fn node(&self) -> Option<DeviceNode> {
        let found = fs::metadata(self.block_device()?).ok()?;
        Some(node_of(&found))
    }

    /// Do others have the file open? As [`Attachment::is_open`].
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Way::File(attached) if attached.is_open())
    }

    /// What stands on the block device, and who has the file open; empty without such users.
    pub(super) fn users(&self) -> Result<Vec<String>, ControlError> {
        match self {
            Way::File(attached) => attached.users(),
            Way::Driver(served) if served.is_in_use() => Ok(served.names()),
            Way::Driver(_) => Ok(Vec::new()),
        }
    }

    /// The names of those who have it, for a message.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Way::File(attached) => attached.names(),
            Way::Driver(served) => served.names(),
        }
    }

    /// Checks that the device `name` can have another size.
    ///
    /// # Errors
    /// `EBUSY` for a block device whose size cannot change.
    pub(super) fn check_resize(&self, name: &str) -> Result<(), ControlError> {
        if !matches!(self, Way::Driver(served) if !served.is_resizable) {
            return Ok(());
        }
        let message = format!(
            "{name} ({}) keeps its size: the driver ublk changes none before Linux 6.16",
            self.place().display()
        );
        Err(ControlError::new(Errno::EBUSY, message))
    }

    /// Tells the system that the device has `bytes` bytes now.
    pub(super) fn resized(&self, bytes: u64) -> Result<(), ControlError> {
        match self {
            Way::File(attached) => attached.resized(),
            Way::Driver(served) => served.resized(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_its_way_and_a_new_one_is_reached_as_configured() {
        let files = Some(By::File(None));
        for (transport, configured) in [
            (Transport::Auto, files),
            (Transport::Fuse, files),
            (Transport::FuseClassic, files),
            (Transport::FuseRing, files),
            (Transport::Ublk, Some(By::Driver)),
            (Transport::Nbd, None),
        ] {
            assert_eq!(choose(false, None, transport), configured, "{transport:?}");
            for before in [By::File(Some(7)), By::Driver] {
                assert_eq!(choose(false, Some(before), transport), Some(before), "{transport:?}");
                // No other way leads past the block device that waits.
                let chosen = choose(true, Some(before), transport);
                assert_eq!(chosen, Some(By::Driver), "{transport:?}");
            }
            assert_eq!(choose(true, None, transport), Some(By::Driver), "{transport:?}");
        }
    }
}
