//! Requests of the kernel's FUSE client, read from bytes (linux/fuse.h, version 7).
//!
//! Any bytes give a request or a fault; nothing here panics, allocates or has a state. Only what a
//! single file is asked is told apart. Numbers are in the byte order of the machine.

use std::ops::Range;

/// Bytes of the header that every request begins with.
pub const HEADER: usize = 40;
/// Bytes before the data of a write: the header and what describes the write.
pub const BEFORE_DATA: usize = HEADER + WRITE;
/// Bytes that describe a write.
const WRITE: usize = 40;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number, for the answer.
    pub unique: u64,
    /// What is asked.
    pub call: Call,
}

/// What is asked. Offsets, lengths and sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// The first request: what the kernel speaks and can do.
    Init {
        /// The version of the protocol.
        major: u32,
        /// Its revision.
        minor: u32,
        /// Bytes the kernel would read ahead.
        readahead: u32,
        /// What the kernel can do, a bit each.
        flags: u32,
    },
    /// The attributes of the file.
    GetAttr,
    /// A change of attributes.
    SetAttr {
        /// Which of them change, a bit each.
        valid: u32,
        /// The new size, if it is one of them.
        size: u64,
    },
    /// The file is opened.
    Open {
        /// As for open(2).
        flags: i32,
    },
    /// What was opened is closed for the last time.
    Release,
    /// Bytes are wanted.
    Read {
        /// From where.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Bytes are to be kept.
    Write {
        /// Where.
        offset: u64,
        /// Where they are in the bytes of the request.
        data: Range<usize>,
    },
    /// A descriptor is closed.
    Flush,
    /// What was written must be durable.
    Sync,
    /// As fallocate(2).
    Allocate {
        /// From where.
        offset: u64,
        /// How much.
        length: u64,
        /// How, as for the system call.
        mode: i32,
    },
    /// How large the file system is.
    StatFs,
    /// The file system is unmounted.
    Destroy,
    /// Something that is not answered: the kernel forgets, or somebody lost patience.
    Silent,
    /// Something that a single file need not know.
    Unknown,
}

/// A request that does not hold what it should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// Its number if it can be answered.
    pub unique: Option<u64>,
}

/// Of [`Call::SetAttr`]: the size is to change.
pub const SET_SIZE: u32 = 1 << 3;
/// Of [`Call::SetAttr`]: mode, owner or group are to change.
pub const SET_RIGHTS: u32 = 0b111;
/// Of [`Call::SetAttr`]: it is done through an open file.
pub const SET_OPEN: u32 = 1 << 6;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// Reads one request, which must be all of `bytes`.
///
/// # Errors
/// [`Malformed`] if it is cut off, or longer or shorter than it says.
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
