//! Numbers of the FUSE protocol, from linux/fuse.h. They are a second copy, so that an error in a
//! server's own table shows.

/// Bytes before the operands of a request.
pub(crate) const HEADER: usize = 40;

pub(crate) const GETATTR: u32 = 3;
pub(crate) const SETATTR: u32 = 4;
pub(crate) const OPEN: u32 = 14;
pub(crate) const READ: u32 = 15;
pub(crate) const WRITE: u32 = 16;
pub(crate) const RELEASE: u32 = 18;
pub(crate) const FALLOCATE: u32 = 43;
pub(crate) const LSEEK: u32 = 46;
