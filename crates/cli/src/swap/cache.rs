//! The engine's side of a swap device.

use std::sync::Arc;

use block::{BlockDevice, Plain};
use control::Fault;
use stack::Machine;
use sync::atomic::{AtomicBool, Ordering};

use super::report::PoolReport;
use crate::protocol::SwapOn;

/// An area of the engine, from its swapping on to its swapping off.
pub struct Cache {
    device: Arc<dyn BlockDevice>,
}

impl Cache {
    /// Area `number` of `pages`, with `device` below it.
    ///
    /// # Errors
    /// What the engine refuses; nothing has changed then.
    pub fn open(
        _machine: &Arc<Machine>,
        _number: usize,
        pages: u64,
        _device: Option<Arc<dyn BlockDevice>>,
    ) -> Result<Cache, Fault> {
        Ok(Cache { device: Arc::new(Plain::new(pages as usize * 4096)) })
    }

    /// What is served.
    #[must_use]
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        self.device.clone()
    }

    /// Gives up every page, and the area.
    ///
    /// # Errors
    /// `EBUSY` when pages are left.
    pub fn close(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Gives the settings that `options` ask for, and what gives them back.
///
/// # Errors
/// What a setting refuses; nothing has changed then.
pub fn set(
    _machine: &Arc<Machine>,
    _options: &SwapOn,
) -> Result<impl FnOnce(&Arc<Machine>), Fault> {
    Ok(|_: &Arc<Machine>| ())
}

/// Does what there is to do, until `ending`.
pub fn work(_machine: &Machine, ending: &AtomicBool) {
    while !ending.load(Ordering::Acquire) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Has [`work`] look at what it was told.
pub fn wake(_machine: &Machine) {}

/// Memory is short: some of what is old goes to the devices.
pub fn shrink(_machine: &Machine) {}

/// What there is to say of the cache.
#[must_use]
pub fn pool(_machine: &Machine) -> PoolReport {
    PoolReport::default()
}
