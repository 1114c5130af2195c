//! Encodes answers to the kernel's FUSE client (linux/fuse.h, version 7).
//!
//! An answer is a few numbers at fixed offsets. The data of a read follows from another buffer.

use super::wire::{self, ANSWER as HEADER, ENTRY};

/// Bytes of the longest answer without data: a header, and 104 bytes of attributes.
const LONGEST: usize = HEADER + 104;

/// The version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The latest revision in use.
const MINOR: u32 = 40;
/// The oldest supported revision: that of Linux 3.0. Earlier requests are shorter.
pub(crate) const OLDEST: u32 = 16;
/// The first revision whose answer to INIT has 64 bytes.
const LONG_INIT: u32 = 23;

/// The kernel caches no attributes: a request for them shows whether the file is still served.
/// Reads and writes do not ask for them.
const KEPT_SECONDS: u64 = 0;
/// The most requests under way for clients that do not wait.
const BACKGROUND: u16 = 256;

/// The features that are requested if the kernel offers them.
const WANTED: u32 = ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES;
const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;
/// There is a second word of features.
const SECOND_WORD: u32 = 1 << 30;
/// In the second word: requests can be asked for again.
const RESEND: u32 = 1 << 7;
/// In the second word: requests go through rings of io_uring.
const OVER_RING: u32 = 1 << 9;

/// Flags of an opened file: no page cache, parallel writes, no flush at a close.
const DIRECT: u32 = 1 | PARALLEL_WRITES | NO_FLUSH;
const PARALLEL_WRITES: u32 = 1 << 6;
const NO_FLUSH: u32 = 1 << 5;

/// An answer without the data that may follow it.
pub(crate) struct Reply {
    bytes: [u8; LONGEST],
    length: usize,
}

/// The attributes of the file.
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Its type and permissions, as in stat(2).
    pub(crate) mode: u32,
    /// The user and the group it belongs to.
    pub(crate) owner: (u32, u32),
    /// Its start time, in seconds since 1970.
    pub(crate) since: u64,
    /// The best size of a read or a write, in bytes.
    pub(crate) block: u32,
}

/// The kernel's first request, and the largest request here.
#[derive(Clone, Copy)]
pub(crate) struct Greeting {
    pub(crate) minor: u32,
    pub(crate) readahead: u32,
    pub(crate) flags: u32,
    pub(crate) flags2: u32,
    /// The most bytes of data in one request; a multiple of `page`.
    pub(crate) largest: u32,
    /// Bytes in a page of the system.
    pub(crate) page: u32,
    /// Are rings wanted? Requests cannot be asked for again then.
    pub(crate) ring: bool,
}

/// What the kernel and this server agreed on.
#[derive(Clone, Copy)]
pub(crate) struct Agreed {
    /// The kernel can be asked for requests again.
    pub(crate) resend: bool,
    /// It hands requests over by rings, once they have begun.
    pub(crate) ring: bool,
}

impl Greeting {
    /// What the kernel offers (requests again: Linux 6.9; rings: Linux 6.14) and is wanted.
    pub(crate) fn agreed(&self) -> Agreed {
        let has = |flag| self.flags & SECOND_WORD != 0 && self.flags2 & flag != 0;
        let ring = self.ring && has(OVER_RING);
        Agreed { ring, resend: !ring && has(RESEND) }
    }
}

impl Reply {
    fn new(unique: u64, errno: i32) -> Reply {
        let mut reply = Reply { bytes: [0; LONGEST], length: 0 };
        reply.word(HEADER as u32).word(errno.wrapping_neg() as u32).long(unique);
        reply
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Reply {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
        self.say_length(end);
        self
    }

    fn say_length(&mut self, length: usize) {
        self.bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
    }

    fn word(&mut self, value: u32) -> &mut Reply {
        self.put(&value.to_ne_bytes())
    }

    fn long(&mut self, value: u64) -> &mut Reply {
        self.put(&value.to_ne_bytes())
    }

    /// The bytes of the answer, without the data.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Puts it in an entry of a ring. Of a read, `moved` bytes of data are there.
    pub(crate) fn put_in_entry(&self, header: &mut [u8; ENTRY], data: &mut [u8], moved: usize) {
        let rest = &self.bytes[HEADER..self.length];
        data[..rest.len()].copy_from_slice(rest);
        wire::answer_entry(header, &self.bytes[..HEADER], rest.len() + moved);
    }

    /// The request succeeded.
    pub(crate) fn done(unique: u64) -> Reply {
        Reply::new(unique, 0)
    }

    /// The request failed; `errno` is a Linux error number.
    pub(crate) fn error(unique: u64, errno: i32) -> Reply {
        Reply::new(unique, errno)
    }

    /// `length` bytes were read and follow the answer.
    pub(crate) fn data(unique: u64, length: usize) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.say_length(HEADER + length);
        reply
    }

    /// `length` bytes were written.
    pub(crate) fn written(unique: u64, length: usize) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.word(length as u32).word(0);
        reply
    }

    /// The file is open; its handle is 0.
    pub(crate) fn opened(unique: u64) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.long(0).word(DIRECT).word(0);
        reply
    }

    /// The attributes of the file.
    pub(crate) fn attributes(unique: u64, file: &Attributes) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.long(KEPT_SECONDS).word(0).word(0);
        reply.long(1).long(file.size).long(file.size.div_ceil(512));
        reply.long(file.since).long(file.since).long(file.since).word(0).word(0).word(0);
        reply.word(file.mode).word(1).word(file.owner.0).word(file.owner.1);
        reply.word(0).word(file.block).word(0);
        reply
    }

    /// The file system has `blocks` blocks, all in use, and one file.
    pub(crate) fn statistics(unique: u64, blocks: u64, block: u32) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.long(blocks).long(0).long(0).long(1).long(0);
        reply.word(block).word(255).word(block).word(0);
        for _ in 0..6 {
            reply.word(0);
        }
        reply
    }

    /// The answer to INIT: the revision and the largest request. `greeting.minor` is at least
    /// [`OLDEST`].
    pub(crate) fn greeting(unique: u64, greeting: &Greeting) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.word(MAJOR).word(greeting.minor.min(MINOR)).word(greeting.readahead);
        let (second, flags2) = match greeting.agreed() {
            Agreed { ring: true, .. } => (SECOND_WORD, OVER_RING),
            Agreed { resend: true, .. } => (SECOND_WORD, RESEND),
            _ => (0, 0),
        };
        reply.word(greeting.flags & WANTED | second);
        let congested = BACKGROUND / 4 * 3;
        reply.put(&BACKGROUND.to_ne_bytes()).put(&congested.to_ne_bytes()).word(greeting.largest);
        if greeting.minor >= LONG_INIT {
            let pages = u16::try_from(greeting.largest / greeting.page).unwrap_or(u16::MAX);
            reply.word(1).put(&pages.to_ne_bytes()).put(&[0; 2]).word(flags2);
            reply.put(&[0; 4 + 6 * 4]);
        }
        reply
    }

    /// The answer to INIT of a later version: it names this version, and the kernel asks again.
    pub(crate) fn version(unique: u64) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.word(MAJOR).word(MINOR).long(0).long(0);
        reply
    }
}
