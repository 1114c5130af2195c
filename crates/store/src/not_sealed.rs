//! What a build without encryption says when it is wanted.

use std::sync::Arc;

use block::BlockDevice;
use control::{ControlError, Errno};
use host::Memfds;
use pagealloc::MemoryProvider;

/// Refuses.
///
/// # Errors
/// `ENOTSUP`.
pub fn sealed(
    _: Arc<dyn BlockDevice>,
    _: &dyn MemoryProvider,
    _: u64,
    path: &str,
) -> Result<Arc<dyn BlockDevice>, ControlError> {
    let message = format!(
        "what is written to {path} cannot be encrypted: this program was built without the \
         feature `seal`"
    );
    Err(ControlError::new(Errno::ENOTSUP, message))
}

pub(crate) fn sealed_kept(
    device: Arc<dyn BlockDevice>,
    _: (&Memfds, &str, bool, Option<u64>),
    bytes: u64,
    path: &str,
) -> Result<Option<Arc<dyn BlockDevice>>, ControlError> {
    sealed(device, &host::Mmap, bytes, path).map(Some)
}
