//! The layer that encrypts and authenticates.

use std::io;
use std::sync::Arc;

use block::BlockDevice;
use control::{ControlError, Errno};
use host::Memfds;
use pagealloc::MemoryProvider;
use seal::Sealed;

use crate::names::{key_of, left, next, seals_of};

/// Writes to a device that can be under way at once, as many as it has rings.
const WRITES: usize = 16;

/// Puts a layer above the device of `path` that encrypts and authenticates each page
/// ([`seal::Sealed`]). What is on the device cannot be read through it, and only its first `bytes`
/// are used. The layer takes 24 bytes of memory for each page, when the page is written or, if
/// `provider` provides memory ahead, now.
///
/// # Errors
/// `ENOMEM` when there is no memory, or the memory of the key cannot be locked (`ulimit -l`).
pub fn sealed(
    device: Arc<dyn BlockDevice>,
    provider: &dyn MemoryProvider,
    bytes: u64,
    path: &str,
) -> Result<Arc<dyn BlockDevice>, ControlError> {
    match Sealed::new(device, provider, bytes, WRITES) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) => Err(unsealed(path, &error)),
    }
}

/// As [`sealed`], with a key and seals that outlive the process in `memory`. It finds those that
/// another process left under `name`, or makes new ones, of the number `least` at least if that is
/// given. Memory for the seals of `bytes` comes now if `is_ahead`. `None` if nothing is left and
/// nothing may be made, or this kernel has no secret memory (memfd_secret(2)): the key would end
/// with the process.
pub(crate) fn sealed_kept(
    device: Arc<dyn BlockDevice>,
    (memory, name, is_ahead, least): (&Memfds, &str, bool, Option<u64>),
    bytes: u64,
    path: &str,
) -> Result<Option<Arc<dyn BlockDevice>>, ControlError> {
    let (keys, seals) = (key_of(name), seals_of(name));
    // Without its seals a key is not used again: nobody knows its last number.
    let has_seals = |number: &u64| bytes_left(memory, &format!("{seals}{number}")).is_some();
    let left_key = left(memory, &keys).find(has_seals);
    let new_key = || Some(next(memory, &keys).max(least?));
    let Some(number) = left_key.or_else(new_key) else { return Ok(None) };
    let key = match memory.secret(&format!("{keys}{number}"), seal::draw) {
        Ok(key) => key,
        Err(error) if error.raw_os_error() == Some(Errno::ENOSYS.0) => return Ok(None),
        Err(error) => return Err(unsealed(path, &error)),
    };
    let seals = format!("{seals}{number}");
    let left = bytes_left(memory, &seals);
    let provider = memory.provider(&seals);
    let sealed = match is_ahead {
        true => Sealed::kept(device, (&provider.ahead(), left), bytes, WRITES, key),
        false => Sealed::kept(device, (&provider, left), bytes, WRITES, key),
    };
    match sealed {
        Ok(device) => Ok(Some(Arc::new(device))),
        Err(error) => Err(unsealed(path, &error)),
    }
}

/// The bytes of a region that another process left.
fn bytes_left(memory: &Memfds, name: &str) -> Option<u64> {
    memory.regions().into_iter().find(|region| region.name == name).map(|region| region.bytes)
}

fn unsealed(path: &str, error: &io::Error) -> ControlError {
    let message = format!("what is written to {path} cannot be encrypted: {error}");
    ControlError::new(Errno::ENOMEM, message)
}
