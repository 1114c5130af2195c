//! A change of the devices: it is saved before the next one can begin.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use control::{ControlError, Errno};
use sync::MutexGuard;

use super::attached::Files;
use super::by_vhost::Vhosts;
use crate::engine::Machine;
use crate::root::Made;
use crate::state::State;
use crate::transport::Transport;

/// Locked while a device is added or removed, or gets or loses its size.
#[derive(Default)]
pub(super) struct Lifecycle {
    /// How a device is reached that has no way yet.
    pub(super) transport: Transport,
    /// The FUSE frontend, where some device is reached so or may be.
    pub(super) files: Option<Files>,
    /// The record of links to block devices by ublk, where some device is reached so or may be.
    pub(super) driver: Option<Arc<Made>>,
    pub(super) stopping: bool,
}

/// The lock of a change. Whoever attaches or detaches a device needs it. When it is dropped, the
/// next daemon finds the devices as they are then, whatever became of the change, and so do virtual
/// machines. Where others can use the outcome before, or an answer depends on it,
/// [`super::Devices::save`] comes first.
pub(super) struct Change<'a> {
    pub(super) lifecycle: MutexGuard<'a, Lifecycle>,
    /// Where the devices outlive the daemon.
    pub(super) state: Option<&'a State>,
    pub(super) machine: &'a Machine,
    pub(super) vhosts: &'a Vhosts,
}

impl Lifecycle {
    /// # Errors
    /// `ENODEV` if the daemon is stopping.
    pub(super) fn check(&self) -> Result<(), ControlError> {
        match self.stopping {
            true => Err(ControlError::new(Errno::ENODEV, "the daemon is stopping")),
            false => Ok(()),
        }
    }

    /// The record of the links to block devices.
    pub(super) fn made(&self) -> Option<&Made> {
        self.files.as_ref().map(|files| &*files.made).or(self.driver.as_deref())
    }
}

impl Deref for Change<'_> {
    type Target = Lifecycle;

    fn deref(&self) -> &Lifecycle {
        &self.lifecycle
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Lifecycle {
        &mut self.lifecycle
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if !self.lifecycle.stopping
            && let Err(error) = self.vhosts.follow(self.machine)
        {
            tracing::warn!("{}", error.message);
        }
        // The state of a daemon that stops is given up as a whole.
        if let Some(state) = self.state.filter(|_| !self.lifecycle.stopping)
            && let Err(error) = state.save(self.machine)
        {
            tracing::warn!("{}", error.message);
        }
    }
}
