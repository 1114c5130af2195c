//! The two buffers of a connection.
//!
//! Both are zeroed memory with marks. A request is received, read into and sent without a copy. A
//! buffer grows for a long request and shrinks again after a number of short ones, or earlier, when
//! its client pauses. What it has beyond its first size is a share of the server's memory; where
//! there is none, the request is carried out in pieces. The input grows only as bytes arrive.

use std::io;

use crate::shares::{Allowance, Share};
use crate::spin::Spinner;
use crate::stream::Stream;

/// The first size of a buffer, in bytes: room for 63 WRITEs of a page. It is not shared.
pub(crate) const FIRST: usize = 256 << 10;
/// An output may have this many bytes without a share: a batch of replies and one more reply.
const FREE: usize = 2 * FIRST;
/// A buffer grows by multiples of this, and a shorter one by those of [`LITTLE`]: many replies may
/// wait for their client.
const STEP: usize = 64 << 10;
const LITTLE: usize = 512;
/// Room for the headers of a reply.
const HEADERS: usize = 64;
/// A grown buffer shrinks after more than this many batches that did not need its size.
const PATIENCE: u32 = 64;

/// Grows `bytes` to `length` bytes or a little more; an error when there is no memory.
fn grow(bytes: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let length = length.next_multiple_of(if length < STEP { LITTLE } else { STEP });
    if bytes.len() < length {
        let more = length - bytes.len();
        bytes.try_reserve_exact(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(length, 0);
    }
    Ok(())
}

/// The size of the share, in bytes.
fn shared(share: Option<&Share>) -> usize {
    share.map_or(0, Share::amount)
}

/// Makes `share` one of `want` bytes, if there is memory for it.
fn try_extend(share: &mut Option<Share>, memory: &Allowance, want: usize) -> bool {
    let Some(more) = memory.try_take(want - shared(share.as_ref())) else { return false };
    match share {
        Some(share) => share.add(more),
        None => *share = Some(more),
    }
    true
}

/// Received bytes that are not used yet.
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    small_batches: u32,
    share: Option<Share>,
}

impl Input {
    pub(crate) fn new() -> Input {
        Input { bytes: vec![0; FIRST], start: 0, end: 0, small_batches: 0, share: None }
    }

    #[inline]
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end, "more was consumed than was there");
    }

    /// Has it more than its first size, or the right to it?
    #[inline]
    pub(crate) fn has_share(&self) -> bool {
        self.share.is_some()
    }

    /// Takes the share for a message of `need` bytes, if it needs one; false if there is none.
    #[inline]
    pub(crate) fn try_share(&mut self, memory: &Allowance, need: usize) -> bool {
        let want = need.next_multiple_of(STEP);
        need <= FIRST
            || want <= shared(self.share.as_ref())
            || try_extend(&mut self.share, memory, want)
    }

    /// Gives back all beyond the first size, unless a long message is on its way.
    #[cold]
    pub(crate) fn shrink(&mut self) {
        let filled = self.end - self.start;
        if filled > FIRST {
            return;
        }
        if self.bytes.len() > FIRST {
            let mut small = vec![0; FIRST];
            small[..filled].copy_from_slice(self.filled());
            self.bytes = small;
            (self.start, self.end) = (0, filled);
        }
        self.share = None;
    }

    /// Receives once, for a message of `need` bytes that is not complete. Makes room for bytes that
    /// are there, but not for all that were announced. Receives no more than a long message: the
    /// next one may then begin in a small buffer. False at the end of the stream.
    pub(crate) fn receive(
        &mut self,
        stream: &Stream,
        spinner: &mut Spinner,
        need: usize,
    ) -> io::Result<bool> {
        // The rest is part of one request: few bytes are moved.
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if need > FIRST {
            self.small_batches = 0;
            if self.end == self.bytes.len() {
                let length = need.min(2 * self.bytes.len());
                grow(&mut self.bytes, length)?;
            }
        } else if self.bytes.len() > FIRST {
            self.small_batches += 1;
            if self.small_batches > PATIENCE {
                self.shrink();
            }
        }
        let most = need.max(FIRST).min(self.bytes.len());
        let received = spinner.receive(stream, &mut self.bytes[self.end..most])?;
        self.end += received;
        Ok(received > 0)
    }
}

/// Replies not yet sent.
pub(crate) struct Output {
    bytes: Vec<u8>,
    length: usize,
    small_batches: u32,
    /// Where shares come from; without it there is no limit.
    memory: Option<Allowance>,
    share: Option<Share>,
}

impl Output {
    /// An empty output with its first memory.
    pub(crate) fn new(memory: Option<Allowance>) -> Output {
        Output { bytes: vec![0; FIRST], length: 0, small_batches: 0, memory, share: None }
    }

    /// An empty output that grows with its reply.
    pub(crate) fn small() -> Output {
        Output { bytes: Vec::new(), length: 0, small_batches: 0, memory: None, share: None }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// What is to be sent.
    #[inline]
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Has it more than an output may have without a share?
    #[inline]
    pub(crate) fn has_share(&self) -> bool {
        self.share.is_some()
    }

    /// Takes the share for a reply with `payload` bytes, if it needs one; false if there is none.
    #[inline]
    pub(crate) fn try_share(&mut self, payload: usize) -> bool {
        let want = (self.length + payload + HEADERS).next_multiple_of(STEP);
        if want <= FREE || want <= shared(self.share.as_ref()) {
            return true;
        }
        let Some(memory) = &self.memory else { return true };
        try_extend(&mut self.share, memory, want)
    }

    /// Gives back all beyond the first size, if nothing is to be sent.
    #[cold]
    pub(crate) fn shrink(&mut self) {
        if self.length > 0 {
            return;
        }
        if self.bytes.len() > FIRST {
            self.bytes = vec![0; FIRST];
        }
        self.share = None;
    }

    /// Room for `length` more bytes, to be filled and then kept with [`Output::keep`].
    #[inline]
    pub(crate) fn room(&mut self, length: usize) -> io::Result<&mut [u8]> {
        let end = self.length + length;
        if end > self.bytes.len() {
            grow(&mut self.bytes, end)?;
            self.small_batches = 0;
        }
        Ok(&mut self.bytes[self.length..end])
    }

    /// Adds the first `length` bytes of the room to the output.
    #[inline]
    pub(crate) fn keep(&mut self, length: usize) {
        self.length += length;
    }

    /// Drops everything after the first `length` bytes.
    pub(crate) fn cut(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Appends a few bytes.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        self.keep(bytes.len());
        Ok(())
    }

    /// Appends text and returns its length in bytes.
    pub(crate) fn put_text(&mut self, text: core::fmt::Arguments<'_>) -> io::Result<usize> {
        let before = self.length;
        io::Write::write_fmt(self, text)?;
        Ok(self.length - before)
    }

    /// Overwrites bytes put before.
    pub(crate) fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Everything is sent: the output is empty.
    #[inline]
    pub(crate) fn sent(&mut self) {
        if self.bytes.len() > FREE {
            self.small_batches = if self.length > FIRST { 0 } else { self.small_batches + 1 };
        }
        self.length = 0;
        if self.small_batches > PATIENCE {
            self.small_batches = 0;
            self.shrink();
        }
    }

    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        self.bytes.truncate(self.length);
        self.bytes
    }
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_wait_take_no_more_memory_than_they_need() {
        for (bytes, most) in [(16, 512), (4096 + 28, 5 << 10), (300 << 10, 320 << 10)] {
            let mut output = Output::small();
            output.put(&vec![7; bytes]).unwrap();
            assert!(output.bytes.capacity() <= most, "{} bytes", output.bytes.capacity());
        }
    }
}
