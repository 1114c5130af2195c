//! The bytes of the protocol: numbers, parsers, headers. No I/O, no state.
//!
//! Every parser takes the bytes received so far. `Ok(None)` means that more bytes are needed.
//! [`Malformed`] means that the message is wrong, whatever follows. All integers are big-endian.
//! Numbers and layouts are those of the NBD protocol document.

mod numbers;

use core::fmt;

pub(crate) use numbers::*;
pub use numbers::{MAX_PAYLOAD, OPTION_HEADER, REQUEST_HEADER};

/// Why the bytes break the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The magic number of a message is wrong.
    Magic,
    /// A length inside the message passes its end.
    Short,
    /// Bytes are left over after the last field.
    Long,
    /// A name is longer than the 4096 bytes the protocol allows.
    Name,
    /// A name is not UTF-8.
    Text,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Magic => "wrong magic number",
            Malformed::Short => "a length passes the end of the option",
            Malformed::Long => "bytes are left over at the end of the option",
            Malformed::Name => "a name is longer than 4096 bytes",
            Malformed::Text => "a name is not UTF-8",
        })
    }
}

impl core::error::Error for Malformed {}

/// The header of an option during negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionHeader {
    /// Its number.
    pub option: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

/// The header of a request during transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The command flags.
    pub flags: u16,
    /// The command.
    pub command: u16,
    /// The client's number for the request; the reply carries it.
    pub cookie: u64,
    /// The offset on the device, in bytes.
    pub offset: u64,
    /// The length in bytes; for a WRITE this many bytes follow.
    pub length: u32,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Parses the header of an option from the first [`OPTION_HEADER`] bytes.
///
/// # Errors
/// [`Malformed::Magic`], as soon as the magic number is there.
pub fn parse_option_header(bytes: &[u8]) -> Result<Option<OptionHeader>, Malformed> {
    match be64(bytes, 0) {
        None => return Ok(None),
        Some(OPTION_MAGIC) => {}
        Some(_) => return Err(Malformed::Magic),
    }
    let (Some(option), Some(length)) = (be32(bytes, 8), be32(bytes, 12)) else { return Ok(None) };
    Ok(Some(OptionHeader { option, length }))
}

/// Parses the header of a request from the first [`REQUEST_HEADER`] bytes.
///
/// # Errors
/// [`Malformed::Magic`], as soon as the magic number is there.
#[inline]
pub fn parse_request(bytes: &[u8]) -> Result<Option<Request>, Malformed> {
    let Some(header) = bytes.first_chunk::<REQUEST_HEADER>() else {
        return match be32(bytes, 0) {
            Some(magic) if magic != REQUEST_MAGIC => Err(Malformed::Magic),
            _ => Ok(None),
        };
    };
    let [m0, m1, m2, m3, f0, f1, c0, c1, rest @ ..] = header;
    if u32::from_be_bytes([*m0, *m1, *m2, *m3]) != REQUEST_MAGIC {
        return Err(Malformed::Magic);
    }
    let [k0, k1, k2, k3, k4, k5, k6, k7, o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = *rest;
    Ok(Some(Request {
        flags: u16::from_be_bytes([*f0, *f1]),
        command: u16::from_be_bytes([*c0, *c1]),
        cookie: u64::from_be_bytes([k0, k1, k2, k3, k4, k5, k6, k7]),
        offset: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
        length: u32::from_be_bytes([l0, l1, l2, l3]),
    }))
}

/// Parses the flags of the client's answer to the greeting: `NBD_FLAG_C_*`.
#[must_use]
pub fn parse_client_flags(bytes: &[u8]) -> Option<u32> {
    be32(bytes, 0)
}

/// Parses an export name, which is all of an option's data.
///
/// # Errors
/// [`Malformed::Name`] above 4096 bytes, [`Malformed::Text`] when it is not UTF-8.
pub fn parse_name(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > MAX_STRING {
        return Err(Malformed::Name);
    }
    core::str::from_utf8(bytes).map_err(|_| Malformed::Text)
}

/// A string with its 32-bit length before it, and the rest of the data.
fn counted(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let length = be32(bytes, 0).ok_or(Malformed::Short)? as usize;
    bytes[4..].split_at_checked(length).ok_or(Malformed::Short)
}

/// The parsed data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InfoQuery<'a> {
    /// The export.
    pub name: &'a str,
    /// The kinds of information wanted: big-endian 16-bit numbers.
    kinds: &'a [u8],
}

impl InfoQuery<'_> {
    /// Is this information wanted?
    #[must_use]
    pub fn wants(&self, kind: u16) -> bool {
        self.kinds.chunks_exact(2).any(|pair| pair == kind.to_be_bytes())
    }
}

/// Parses the data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
///
/// # Errors
/// [`Malformed`] when the data is not exactly one query.
pub fn parse_info_query(data: &[u8]) -> Result<InfoQuery<'_>, Malformed> {
    let (name, rest) = counted(data)?;
    let name = parse_name(name)?;
    let count = usize::from(be16(rest, 0).ok_or(Malformed::Short)?);
    let kinds = &rest[2..];
    match kinds.len().cmp(&(2 * count)) {
        core::cmp::Ordering::Less => Err(Malformed::Short),
        core::cmp::Ordering::Greater => Err(Malformed::Long),
        core::cmp::Ordering::Equal => Ok(InfoQuery { name, kinds }),
    }
}

/// The parsed data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetaQuery<'a> {
    /// The export.
    pub name: &'a str,
    /// The queries, each after its length; all lengths are checked.
    queries: &'a [u8],
}

impl<'a> MetaQuery<'a> {
    /// The queries in turn.
    pub fn queries(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.queries;
        core::iter::from_fn(move || {
            let (query, left) = counted(rest).ok()?;
            rest = left;
            Some(query)
        })
    }
}

/// Parses the data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
///
/// # Errors
/// [`Malformed`] when the data is not exactly one query.
pub fn parse_meta_query(data: &[u8]) -> Result<MetaQuery<'_>, Malformed> {
    let (name, rest) = counted(data)?;
    let name = parse_name(name)?;
    let count = be32(rest, 0).ok_or(Malformed::Short)?;
    let queries = &rest[4..];
    let mut left = queries;
    // At most one round per four bytes of data, whatever the count says.
    for _ in 0..count {
        let (query, after) = counted(left)?;
        if query.len() > MAX_STRING {
            return Err(Malformed::Name);
        }
        left = after;
    }
    if left.is_empty() { Ok(MetaQuery { name, queries }) } else { Err(Malformed::Long) }
}

/// A simple reply without its payload.
#[inline]
pub(crate) fn simple_reply(cookie: u64, error: u32) -> [u8; SIMPLE_HEADER] {
    let mut bytes = [0; SIMPLE_HEADER];
    bytes[..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// The header of a structured reply's chunk.
#[inline]
pub(crate) fn chunk_header(flags: u16, kind: u16, cookie: u64, length: u32) -> [u8; CHUNK_HEADER] {
    let mut bytes = [0; CHUNK_HEADER];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The header of a reply to an option.
pub(crate) fn option_reply(option: u32, kind: u32, length: u32) -> [u8; OPTION_REPLY_HEADER] {
    let mut bytes = [0; OPTION_REPLY_HEADER];
    bytes[..8].copy_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    bytes[8..12].copy_from_slice(&option.to_be_bytes());
    bytes[12..16].copy_from_slice(&kind.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}
