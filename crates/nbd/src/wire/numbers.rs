//! The numbers of the protocol document, under its own names without the `NBD_` prefix.

/// The longest payload of one READ or WRITE, in bytes, which `NBD_INFO_BLOCK_SIZE` reports. The
/// protocol document asks every server to accept this length.
pub const MAX_PAYLOAD: u32 = 32 << 20;
/// Bytes in the header of an option.
pub const OPTION_HEADER: usize = 16;
/// Bytes in the header of a request.
pub const REQUEST_HEADER: usize = 28;

pub(crate) const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_MAGIC: u32 = 0x6744_6698;
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

pub(crate) const OPTION_REPLY_HEADER: usize = 20;
pub(crate) const SIMPLE_HEADER: usize = 16;
pub(crate) const CHUNK_HEADER: usize = 20;
/// The longest string the protocol allows, in bytes.
pub(crate) const MAX_STRING: usize = 4096;
/// The number of `base:allocation`, the only metadata context, on every connection.
pub(crate) const ALLOCATION_ID: u32 = 1;

/// Handshake flags; the client answers with the same bits.
pub(crate) const FLAG_FIXED_NEWSTYLE: u16 = 1;
pub(crate) const FLAG_NO_ZEROES: u16 = 2;

pub(crate) mod opt {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

pub(crate) mod rep {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = (1 << 31) + 1;
    pub(crate) const ERR_POLICY: u32 = (1 << 31) + 2;
    pub(crate) const ERR_INVALID: u32 = (1 << 31) + 3;
    pub(crate) const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    pub(crate) const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    pub(crate) const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
    pub(crate) const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const PAGEBLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
pub(crate) mod export {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

pub(crate) mod cmd {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;

    pub(crate) const FLAG_FUA: u16 = 1 << 0;
    pub(crate) const FLAG_NO_HOLE: u16 = 1 << 1;
    pub(crate) const FLAG_DF: u16 = 1 << 2;
    pub(crate) const FLAG_REQ_ONE: u16 = 1 << 3;
    pub(crate) const FLAG_FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply chunks.
pub(crate) mod chunk {
    pub(crate) const FLAG_DONE: u16 = 1;
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
    pub(crate) const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// Flags of a `base:allocation` extent.
pub(crate) const STATE_HOLE: u32 = 1;
pub(crate) const STATE_ZERO: u32 = 2;
