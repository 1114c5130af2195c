//! The sockets of disks for virtual machines, in a program that has none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use control::{ControlError, Errno};

use crate::engine::Machine;
use crate::exports::DiskExports;
use crate::root::{Made, Root};
use crate::transport::VhostOptions;

/// No sockets.
pub(super) struct Vhosts;

#[allow(clippy::unused_self, reason = "as with sockets")]
impl Vhosts {
    pub(super) fn new() -> Vhosts {
        Vhosts
    }

    /// # Errors
    /// `ENOTSUP`.
    pub(super) fn begin(
        &self,
        _: VhostOptions,
        _: Root,
        _: Arc<Made>,
        _: DiskExports,
    ) -> Result<(), ControlError> {
        let message = "this program was built without vhost-user; build it with `--features vhost`";
        Err(ControlError::new(Errno::ENOTSUP, message))
    }

    /// # Errors
    /// None.
    pub(super) fn follow(&self, _: &Machine) -> Result<(), ControlError> {
        Ok(())
    }

    pub(super) fn socket(&self, _: u32) -> Option<PathBuf> {
        None
    }

    pub(super) fn resized(&self, _: u32) {}

    pub(super) fn disconnect(&self, _: u32) {}

    pub(super) fn settle(&self, _: Option<&str>, _: Duration) {}

    pub(super) fn end(&self) -> bool {
        true
    }
}
