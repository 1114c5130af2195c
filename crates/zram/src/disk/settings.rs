//! The settings of a device.

use alloc::{format, string::String, sync::Arc};

use block::AskRemote;
use control::ControlError;
use pagelog::Backing;
use tiers::Budgets;
use zcomp::{Chosen, PRIORITIES, Params};

use crate::resources::Resources;

/// The default number of pages under way to the backing device at a time (as Linux).
const BATCH: u32 = 32;

pub(crate) struct Settings {
    /// The codec of each priority; the first is always set.
    pub(crate) algorithms: [Option<&'static str>; PRIORITIES],
    pub(crate) params: [Params; PRIORITIES],
    pub(crate) mem_limit: u64,
    pub(crate) max_streams: Option<u32>,
    pub(crate) track_access: bool,
    pub(crate) backing: Option<Arc<dyn Backing>>,
    /// Why the backing device is absent, if it is.
    pub(crate) absent: Option<String>,
    /// Whether the backing device is to hold a log.
    pub(crate) backing_log: bool,
    pub(crate) sealed_backing: bool,
    pub(crate) remote: Option<RemoteStores>,
    /// Tells what the backing device has at them.
    pub(crate) ask_remote: Option<AskRemote>,
    pub(crate) compressed_writeback: bool,
    pub(crate) writeback_limit: u64,
    pub(crate) writeback_limited: bool,
    pub(crate) writeback_batch: u32,
    pub(crate) openers: u32,
    /// Whether pages move between tiers by themselves.
    pub(crate) auto: bool,
    pub(crate) budgets: Budgets,
}

impl Settings {
    pub(crate) fn new(resources: &Resources) -> Settings {
        let mut algorithms = [None; PRIORITIES];
        algorithms[0] = Some(resources.default_algorithm);
        Settings {
            algorithms,
            params: core::array::from_fn(|_| Params::default()),
            mem_limit: 0,
            max_streams: None,
            track_access: resources.track_access,
            backing: None,
            absent: None,
            backing_log: false,
            sealed_backing: true,
            remote: None,
            ask_remote: None,
            compressed_writeback: false,
            writeback_limit: 0,
            writeback_limited: false,
            writeback_batch: BATCH,
            openers: 0,
            auto: false,
            budgets: Budgets::default(),
        }
    }

    /// Opens every chosen codec.
    pub(crate) fn codecs(
        &self,
        resources: &Resources,
    ) -> Result<[Option<Chosen>; PRIORITIES], ControlError> {
        let mut codecs = [const { None }; PRIORITIES];
        for ((codec, name), params) in codecs.iter_mut().zip(self.algorithms).zip(&self.params) {
            if let Some(name) = name {
                let compressor = resources.codec(name, params)?;
                *codec = Some(Chosen { compressor, params: params.clone() });
            }
        }
        Ok(codecs)
    }
}

/// Remote stores for cold parts of a backing device.
pub(crate) struct RemoteStores {
    /// As the administrator described them.
    pub(crate) text: String,
    /// The same without secrets.
    pub(crate) shown: String,
}

/// Selects a codec of a device: by priority, by name, or by both.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Which {
    /// 0 for the primary codec, 1 to 3 for the codecs of recompression.
    pub priority: Option<u8>,
    /// The name of the codec.
    pub algorithm: Option<String>,
}

/// The index of a priority.
///
/// # Errors
/// `EINVAL` above 3.
pub(crate) fn place(priority: u8) -> Result<usize, ControlError> {
    match usize::from(priority) {
        at @ 0..PRIORITIES => Ok(at),
        _ => Err(ControlError::invalid(format!(
            "a priority is 0 to {}, not {priority}",
            PRIORITIES - 1
        ))),
    }
}

/// The index of a codec of the device. A name is searched from priority `from` on. With neither
/// name nor priority, the codec is that of priority `from`.
///
/// # Errors
/// `EINVAL` if there is no such codec, or if name and priority select different ones.
pub(crate) fn find(settings: &Settings, which: &Which, from: u8) -> Result<usize, ControlError> {
    let named = which.algorithm.as_deref();
    let at = match (which.priority, named) {
        (Some(priority), _) => place(priority)?,
        (None, None) => place(from)?,
        (None, Some(name)) => {
            let mut places = usize::from(from)..PRIORITIES;
            places.find(|at| settings.algorithms[*at] == Some(name)).ok_or_else(|| {
                ControlError::invalid(format!("{name:?} is not an algorithm of this device"))
            })?
        }
    };
    match (settings.algorithms[at], named) {
        (None, _) => Err(ControlError::invalid(format!("no algorithm has priority {at}"))),
        (Some(chosen), Some(name)) if chosen != name => Err(ControlError::invalid(format!(
            "the algorithm of priority {at} is {chosen}, not {name:?}"
        ))),
        _ => Ok(at),
    }
}
