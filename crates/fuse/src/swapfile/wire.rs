//! Parses requests of the kernel's FUSE client (linux/fuse.h, version 7).
//!
//! Any bytes parse to a request or an error. The parser does not panic, does not allocate and keeps
//! no state. It knows only the requests for a single file. Numbers are in the byte order of the
//! machine.

use std::ops::Range;

/// Bytes of the header that every request begins with.
pub const HEADER: usize = 40;
/// Bytes before the data of a write: the header and the description of the write.
pub const BEFORE_DATA: usize = HEADER + WRITE;
/// Bytes that describe a write.
const WRITE: usize = 40;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number, for the answer.
    pub unique: u64,
    /// The operation.
    pub call: Call,
}

/// The operation of a request. Offsets, lengths and sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// The first request: the kernel's version and features.
    Init {
        /// The version of the protocol.
        major: u32,
        /// Its revision.
        minor: u32,
        /// The kernel's readahead in bytes.
        readahead: u32,
        /// The kernel's features, one bit each.
        flags: u32,
        /// More of them; 0 before Linux 5.17.
        flags2: u32,
    },
    /// Get the attributes of the file.
    GetAttr,
    /// Change attributes.
    SetAttr {
        /// The attributes that change, one bit each.
        valid: u32,
        /// The new size, if `valid` has [`SET_SIZE`].
        size: u64,
    },
    /// Open the file.
    Open {
        /// The flags of open(2).
        flags: i32,
    },
    /// The last close of an open file.
    Release,
    /// Read bytes.
    Read {
        /// The offset.
        offset: u64,
        /// The length.
        length: u32,
    },
    /// Write bytes.
    Write {
        /// The offset.
        offset: u64,
        /// The place of the data within the request.
        data: Range<usize>,
    },
    /// The close of a descriptor.
    Flush,
    /// Make written data durable.
    Sync,
    /// As fallocate(2).
    Allocate {
        /// The offset.
        offset: u64,
        /// The length.
        length: u64,
        /// The mode of the system call.
        mode: i32,
    },
    /// Get the size of the file system.
    StatFs,
    /// The unmount of the file system.
    Destroy,
    /// A request without an answer: FORGET, INTERRUPT and the like.
    Silent,
    /// An operation that a single file does not support.
    Unknown,
}

/// A malformed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// The number of the request, if it can be answered.
    pub unique: Option<u64>,
}

/// In [`Call::SetAttr`]: the size changes.
pub const SET_SIZE: u32 = 1 << 3;
/// In [`Call::SetAttr`]: the mode, owner or group changes.
pub const SET_RIGHTS: u32 = 0b111;
/// In [`Call::SetAttr`]: the change comes through an open file.
pub const SET_OPEN: u32 = 1 << 6;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// Parses one request, which must be all of `bytes`.
///
/// # Errors
/// [`Malformed`] if the request is cut off, or its length is not the one in its header.
pub fn parse(bytes: &[u8]) -> Result<Request, Malformed> {
    let unique = long(bytes, 8).filter(|unique| *unique != 0);
    let request = || {
        let whole = word(bytes, 0)? as usize == bytes.len();
        let body = bytes.get(HEADER..).filter(|_| whole)?;
        Some(Request { unique: unique?, call: call(word(bytes, 4)?, body)? })
    };
    request().ok_or(Malformed { unique })
}

fn call(operation: u32, body: &[u8]) -> Option<Call> {
    Some(match operation {
        // FORGET, INTERRUPT, NOTIFY_REPLY, BATCH_FORGET
        2 | 36 | 41 | 42 => Call::Silent,
        3 => Call::GetAttr,
        4 => Call::SetAttr { valid: word(body, 0)?, size: long(body, 16)? },
        14 => Call::Open { flags: word(body, 0)? as i32 },
        15 => Call::Read { offset: long(body, 8)?, length: word(body, 16)? },
        16 => {
            let (offset, length) = (long(body, 8)?, word(body, 16)? as usize);
            if body.len().checked_sub(WRITE)? != length {
                return None;
            }
            Call::Write { offset, data: BEFORE_DATA..BEFORE_DATA + length }
        }
        17 => Call::StatFs,
        18 => Call::Release,
        20 => Call::Sync,
        25 => Call::Flush,
        26 => Call::Init {
            major: word(body, 0)?,
            minor: word(body, 4)?,
            readahead: word(body, 8)?,
            flags: word(body, 12)?,
            flags2: word(body, 16).unwrap_or(0),
        },
        38 => Call::Destroy,
        43 => Call::Allocate {
            offset: long(body, 8)?,
            length: long(body, 16)?,
            mode: word(body, 24)? as i32,
        },
        _ => Call::Unknown,
    })
}
