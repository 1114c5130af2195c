//! Parses requests of the kernel's FUSE client (linux/fuse.h, version 7).
//!
//! Any bytes parse to a request or an error. The parser does not panic, does not allocate and keeps
//! no state. It knows only the requests for a single file. Numbers are in the byte order of the
//! machine.

/// Bytes of the header that every request begins with.
pub const HEADER: usize = 40;
/// Bytes before the data of a write: the header and the description of the write.
pub const BEFORE_DATA: usize = HEADER + WRITE;
/// Bytes that describe a write.
const WRITE: usize = 40;

/// Bytes of the header that every answer begins with.
pub(crate) const ANSWER: usize = 16;
/// Bytes of the header of an entry of a ring (`fuse_uring_req_header`): the header of a request or
/// an answer, the operands, and the description of the entry.
pub const ENTRY: usize = 288;
/// Where the operands begin.
const ENTRY_OPERANDS: usize = 128;
/// Where the number of the request is.
const ENTRY_ID: usize = 264;
/// Where the length of the data is.
const ENTRY_DATA: usize = 272;

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
        /// The length of the data, which is all that follows the description of the write.
        length: usize,
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
        let data = body.len().saturating_sub(WRITE);
        Some(Request { unique: unique?, call: call(word(bytes, 4)?, body, data)? })
    };
    request().ok_or(Malformed { unique })
}

/// Parses the request in the header of an entry of a ring: it has the operands at a fixed place,
/// and the length of the data, which is elsewhere.
///
/// # Errors
/// [`Malformed`] if the length of a write is not the length of the data.
pub fn parse_entry(header: &[u8; ENTRY]) -> Result<Request, Malformed> {
    let unique = long(header, 8).filter(|unique| *unique != 0);
    let request = || {
        let data = word(header, ENTRY_DATA)? as usize;
        let call = call(word(header, 4)?, &header[ENTRY_OPERANDS..ENTRY_ID - 8], data)?;
        Some(Request { unique: unique?, call })
    };
    request().ok_or(Malformed { unique })
}

/// By this number the kernel knows the request of an entry.
pub(crate) fn entry_id(header: &[u8; ENTRY]) -> u64 {
    long(header, ENTRY_ID).unwrap_or(0)
}

/// The length of the data of an entry: those to write in a request, those read in an answer.
pub(crate) fn entry_data(header: &[u8; ENTRY]) -> usize {
    word(header, ENTRY_DATA).unwrap_or(0) as usize
}

/// Writes the beginning of an answer, and the length of its data, which is elsewhere.
pub(crate) fn answer_entry(header: &mut [u8; ENTRY], answer: &[u8], data: usize) {
    header[..answer.len()].copy_from_slice(answer);
    header[ENTRY_DATA..ENTRY_DATA + 4].copy_from_slice(&(data as u32).to_ne_bytes());
}

/// The handle of an open file, which requests for data begin with.
pub(crate) fn handle(header: &[u8; ENTRY]) -> u64 {
    long(header, ENTRY_OPERANDS).unwrap_or(0)
}

/// The request of an entry as it would be read from /dev/fuse: its parts are put into `bytes`.
/// None if its lengths do not fit.
pub(crate) fn classic(header: &[u8; ENTRY], data: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    let data = data.get(..word(header, ENTRY_DATA)? as usize)?;
    let operands = (word(header, 0)? as usize).checked_sub(HEADER + data.len())?;
    bytes.clear();
    bytes.extend(&header[..HEADER]);
    bytes.extend(header[ENTRY_OPERANDS..ENTRY_ID - 8].get(..operands)?);
    bytes.extend(data);
    Some(())
}

/// `data` bytes follow the operands of a write.
fn call(operation: u32, body: &[u8], data: usize) -> Option<Call> {
    Some(match operation {
        // FORGET, INTERRUPT, NOTIFY_REPLY, BATCH_FORGET
        2 | 36 | 41 | 42 => Call::Silent,
        3 => Call::GetAttr,
        4 => Call::SetAttr { valid: word(body, 0)?, size: long(body, 16)? },
        14 => Call::Open { flags: word(body, 0)? as i32 },
        15 => Call::Read { offset: long(body, 8)?, length: word(body, 16)? },
        16 => {
            let (offset, length) = (long(body, 8)?, word(body, 16)? as usize);
            if body.len() < WRITE || data != length {
                return None;
            }
            Call::Write { offset, length }
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
