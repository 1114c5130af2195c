//! Finds the objects of a segment by their headers.

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
/// caller can check the tag, and only the slot knows whether the object is in use. An error is the
/// offset from which on no object is found in the rest of a block.
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
            && parse(&self.bytes[next..], next as u32, self.generation).is_some()
            && !(self.is_whole)(found)
    }
}

impl<'a, F: Fn(&Found<'a>) -> bool> Iterator for Walk<'a, F> {
    type Item = Result<Found<'a>, u32>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pass_padding();
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let offset = self.offset as u32;
        let next_block = (self.offset + 1).next_multiple_of(BLOCK);
        let found = parse(rest, offset, self.generation)
            .filter(|found| !self.is_overwritten(found, next_block))
            .ok_or(offset);
        self.offset = match &found {
            Ok(found) => self.offset + stored(found.header.length) as usize,
            Err(_) => next_block,
        };
        Some(found)
    }
}

fn parse(rest: &[u8], offset: u32, generation: Generation) -> Option<Found<'_>> {
    let (head, body) = rest.split_first_chunk::<HEADER_BYTES>()?;
    let header = Header::decode(head).filter(|header| header.generation == generation)?;
    let body = body.get(..stored(header.length) as usize - HEADER_BYTES)?;
    let (object, padding) = body.split_at(usize::from(header.length));
    let is_padded = padding.iter().all(|&byte| byte == 0);
    is_padded.then_some(Found { offset, header, object })
}
