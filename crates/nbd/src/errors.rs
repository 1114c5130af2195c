//! Error numbers on the wire.

use block::IoError;

pub(crate) const EPERM: u32 = 1;
pub(crate) const EIO: u32 = 5;
pub(crate) const ENOMEM: u32 = 12;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOSPC: u32 = 28;
pub(crate) const EOVERFLOW: u32 = 75;
pub(crate) const ENOTSUP: u32 = 95;

/// The error the protocol has for what a device answered. The document allows only a few numbers;
/// any other becomes EIO.
pub(crate) const fn on_the_wire(error: IoError) -> u32 {
    match error.errno() as u32 {
        known @ (EPERM | ENOMEM | EINVAL | ENOSPC | EOVERFLOW | ENOTSUP) => known,
        _ => EIO,
    }
}

/// The same for a request that adds data: beyond the end there is no space, says the document.
pub(crate) const fn on_the_wire_for_write(error: IoError) -> u32 {
    match error {
        IoError::OutOfRange => ENOSPC,
        other => on_the_wire(other),
    }
}
