//! What this program would make of a daemon's devices that it does not have yet
//! ([`crate::rehearsal`]).

use control::{ControlError, Errno};
use store::key_of;

use super::start::planned;
use super::{DaemonOptions, tls};
use crate::failure::failed;
use crate::state::swaps::LeftSwap;
use crate::{engine, swap};

/// Checks that [`super::Daemon::start`] with these options could take over what this process was
/// given. Changes nothing.
///
/// # Errors
/// The first reason why it could not.
pub fn rehearse(options: &DaemonOptions) -> Result<(), ControlError> {
    tls(&options.nbd)?;
    let Some(state) = &options.state else {
        let message = "this program has no service manager that keeps devices";
        return Err(ControlError::new(Errno::ENOTSUP, message));
    };
    let (_, by) = planned(options)?;
    if let Some(number) = by.left.first() {
        let message = format!("nothing leads to {} any more", swap::name(*number));
        return Err(ControlError::new(Errno::ENODEV, message));
    }
    engine::check(state.left())?;
    let left =
        state.take_swap().map_err(|error| failed("cannot take over swap devices", &error))?;
    let LeftSwap { areas, cache, .. } = left.unwrap_or_default();
    if !areas.is_empty() {
        engine::check_swap(&cache.settings)?;
    }
    let regions = state.memory().regions();
    for (area, backing) in areas.iter().filter_map(|area| Some((area, area.backing.as_ref()?))) {
        let (name, path) = (swap::name(area.number), backing.path.display());
        let key = key_of(&name);
        if backing.is_sealed && !regions.iter().any(|region| region.name.starts_with(&key)) {
            let message = format!("the key of {path}, which is below {name}, was not kept");
            return Err(ControlError::new(Errno::ENOTSUP, message));
        }
    }
    state.backings().check()
}
