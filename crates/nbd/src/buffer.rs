//! The two buffers of a connection.
//!
//! Both are zeroed memory with marks. A request is received, read into and sent without a copy, and
//! no byte is initialised twice. A buffer grows to the largest request and shrinks again after a
//! number of smaller ones.

use std::io;

use crate::spin::Spinner;
use crate::stream::Stream;

/// The first size of a buffer, in bytes: room for 63 WRITEs of a page.
const FIRST: usize = 256 << 10;
/// A grown buffer shrinks after more than this many batches that did not need its size.
const PATIENCE: u32 = 64;

/// Grows `bytes` to `length` bytes or more; an error when there is no memory.
fn grow(bytes: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let length = length.next_power_of_two();
    if bytes.len() < length {
        let more = length - bytes.len();
        bytes.try_reserve_exact(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(length, 0);
    }
    Ok(())
}

/// Received bytes that are not used yet.
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    small_batches: u32,
}

impl Input {
    pub(crate) fn new() -> Input {
        Input { bytes: vec![0; FIRST], start: 0, end: 0, small_batches: 0 }
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

    /// Makes room for at least `need` unused bytes, then receives once. False at the end of the
    /// stream.
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
        if need > self.bytes.len() {
            grow(&mut self.bytes, need)?;
            self.small_batches = 0;
        } else if self.bytes.len() > FIRST && need <= FIRST && self.end <= FIRST {
            self.small_batches += 1;
            if self.small_batches > PATIENCE {
                let mut small = vec![0; FIRST];
                small[..self.end].copy_from_slice(&self.bytes[..self.end]);
                self.bytes = small;
            }
        }
        let received = spinner.receive(stream, &mut self.bytes[self.end..])?;
        self.end += received;
        Ok(received > 0)
    }
}

/// Replies not yet sent.
pub(crate) struct Output {
    bytes: Vec<u8>,
    length: usize,
    small_batches: u32,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { bytes: vec![0; FIRST], length: 0, small_batches: 0 }
    }

    /// An empty output that grows with its reply.
    pub(crate) fn small() -> Output {
        Output { bytes: Vec::new(), length: 0, small_batches: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
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

    /// Sends everything.
    #[inline]
    pub(crate) fn send(&mut self, stream: &Stream) -> io::Result<()> {
        if self.length == 0 {
            return Ok(());
        }
        stream.send_all(&self.bytes[..self.length])?;
        if self.bytes.len() > 2 * FIRST {
            self.small_batches = if self.length > FIRST { 0 } else { self.small_batches + 1 };
            if self.small_batches > PATIENCE {
                self.bytes = vec![0; FIRST];
            }
        }
        self.length = 0;
        Ok(())
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
