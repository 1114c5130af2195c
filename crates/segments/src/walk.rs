//! Finds the objects of a segment by their headers.

use core::fmt;

use crate::header::{Generation, HEADER_BYTES, Header};
use crate::layout::{BLOCK_BYTES, stored};

const BLOCK: usize = BLOCK_BYTES as usize;

/// An object of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found<'a> {
    /// Where its header begins, in bytes from the first byte of the segment.
    pub offset: u32,
    /// Its header.
    pub header: Header,
    /// The object, without the header.
    pub object: &'a [u8],
}

/// Why no object is found in the rest of a block. The blocks behind it may hold objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// No header is here.
    NoHeader {
        /// Where, in bytes from the first byte of the segment.
        offset: u32,
    },
    /// The header is of another life of the segment.
    Stale {
        /// Where.
        offset: u32,
        /// The life that the header says.
        generation: Generation,
    },
    /// The object would end behind the bytes.
    CutOff {
        /// Where its header begins.
        offset: u32,
    },
    /// The bytes between the object and the next unit are not zero.
    Padding {
        /// Where the header of the object begins.
        offset: u32,
    },
    /// Another object begins in it, at the next block.
    Overwritten {
        /// Where the header of the object begins.
        offset: u32,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::NoHeader { offset } => write!(f, "no header at byte {offset} of the segment"),
            Damage::Stale { offset, generation } => write!(
                f,
                "the header at byte {offset} of the segment is of life {}",
                generation.get()
            ),
            Damage::CutOff { offset } => {
                write!(f, "the object at byte {offset} of the segment is cut off")
            }
            Damage::Padding { offset } => {
                write!(f, "the object at byte {offset} of the segment is not followed by zeroes")
            }
            Damage::Overwritten { offset } => {
                write!(f, "the object at byte {offset} of the segment has another one in it")
            }
        }
    }
}

impl core::error::Error for Damage {}

/// The objects of a segment, in the order in which they were appended. See [`walk`].
#[derive(Clone, Debug)]
pub struct Walk<'a, F> {
    bytes: &'a [u8],
    offset: usize,
    generation: Generation,
    is_whole: F,
}

/// Walks the part of a segment that was written: `bytes` begins with the segment and ends where the
/// last object does. Any bytes are allowed; bytes past 4 GiB are not looked at. Zeroes between an
/// object and the next multiple of [`BLOCK_BYTES`](crate::BLOCK_BYTES) are passed by. Behind damage
/// it goes on at the next such multiple: a block that could not be read or written hides only the
/// objects that begin in it. That a header is right does not mean that its object is: only the
/// caller can check the tag, and only the slot knows whether the object is in use.
///
/// An object that a dead process had begun to write may reach into a block that the next process
/// has written. So where an object lies in two blocks or more, and a header is at the beginning of
/// the second one, `is_whole` is asked whether the object has the bytes that its tag says. If it
/// has not, it is passed by, and the walk goes on with that header.
#[must_use]
pub fn walk<F>(bytes: &[u8], generation: Generation, is_whole: F) -> Walk<'_, F>
where
    F: Fn(&Found<'_>) -> bool,
{
    let most = bytes.len().min(u32::MAX as usize);
    Walk { bytes: &bytes[..most], offset: 0, generation, is_whole }
}

impl<F> Walk<'_, F> {
    /// Goes to the next block if the rest of this one, not all of it, is zeroes.
    fn pass_padding(&mut self) {
        let next = self.offset.next_multiple_of(BLOCK).min(self.bytes.len());
        let rest = self.bytes.get(self.offset..next).unwrap_or(&[]);
        if rest.iter().all(|&byte| byte == 0) {
            self.offset = self.offset.max(next);
        }
    }
}

impl<'a, F: Fn(&Found<'a>) -> bool> Walk<'a, F> {
    /// Whether another process has written over an object from the block at `next` on.
    fn is_overwritten(&self, found: &Found<'a>, next: usize) -> bool {
        let end = found.offset + stored(found.header.length);
        next < end as usize
            && parse(&self.bytes[next..], next as u32, self.generation).is_ok()
            && !(self.is_whole)(found)
    }
}

impl<'a, F: Fn(&Found<'a>) -> bool> Iterator for Walk<'a, F> {
    type Item = Result<Found<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pass_padding();
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let offset = self.offset as u32;
        let next_block = (self.offset + 1).next_multiple_of(BLOCK);
        let found = parse(rest, offset, self.generation).and_then(|found| {
            match self.is_overwritten(&found, next_block) {
                true => Err(Damage::Overwritten { offset }),
                false => Ok(found),
            }
        });
        self.offset = match &found {
            Ok(found) => self.offset + stored(found.header.length) as usize,
            Err(_) => next_block,
        };
        Some(found)
    }
}

fn parse(rest: &[u8], offset: u32, generation: Generation) -> Result<Found<'_>, Damage> {
    let (head, body) = rest.split_first_chunk::<HEADER_BYTES>().ok_or(Damage::CutOff { offset })?;
    let header = Header::decode(head).ok_or(Damage::NoHeader { offset })?;
    if header.generation != generation {
        return Err(Damage::Stale { offset, generation: header.generation });
    }
    let all = stored(header.length) as usize - HEADER_BYTES;
    let body = body.get(..all).ok_or(Damage::CutOff { offset })?;
    let (object, padding) = body.split_at(usize::from(header.length));
    if padding.iter().any(|&byte| byte != 0) {
        return Err(Damage::Padding { offset });
    }
    Ok(Found { offset, header, object })
}
