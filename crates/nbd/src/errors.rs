//! Error numbers on the wire.

use block::IoError;

use crate::wire::cmd;

pub(crate) const EPERM: u32 = 1;
pub(crate) const EIO: u32 = 5;
pub(crate) const ENOMEM: u32 = 12;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOSPC: u32 = 28;
pub(crate) const EOVERFLOW: u32 = 75;
pub(crate) const ENOTSUP: u32 = 95;

/// Converts a device's error to an error number of the protocol. The document allows a few numbers;
/// any other becomes EIO. Past the end, a request that adds data gets ENOSPC, as the document says.
pub(crate) const fn on_the_wire(command: u16, error: IoError) -> u32 {
    if matches!((error, command), (IoError::OutOfRange, cmd::WRITE | cmd::WRITE_ZEROES)) {
        return ENOSPC;
    }
    match error.errno() as u32 {
        known @ (EPERM | ENOMEM | EINVAL | ENOSPC | EOVERFLOW | ENOTSUP) => known,
        _ => EIO,
    }
}
