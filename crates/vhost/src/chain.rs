//! The buffers of a request: a chain of descriptors (virtio 1.2, 2.7.5). Everything here is the
//! machine's and may be wrong.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress};

use crate::memory::Guest;

/// The most descriptors of a chain. The document allows as many as the ring has; drivers of small
/// rings take more in a table of their own.
const MOST: usize = 1024;
const DESCRIPTOR: u64 = 16;

/// A chain that is no chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// An address that is outside of the machine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outside;

/// Buffers that follow each other, as one range of bytes.
#[derive(Default, Debug)]
pub(crate) struct Buffers {
    parts: Vec<(GuestAddress, u32)>,
    length: u64,
}

/// The buffers of a request. Their memory is used again for the next one.
#[derive(Default, Debug)]
pub(crate) struct Chain {
    /// What the device reads.
    pub(crate) readable: Buffers,
    /// What it writes, behind that.
    pub(crate) writable: Buffers,
}

impl Buffers {
    /// Bytes in all.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    fn clear(&mut self) {
        self.parts.clear();
        self.length = 0;
    }

    fn push(&mut self, descriptor: Descriptor) {
        self.length += u64::from(descriptor.len());
        self.parts.push((descriptor.addr(), descriptor.len()));
    }

    /// Calls `each` with the parts of the `bytes` bytes from `offset` on: where each is, and its
    /// range of those bytes.
    fn parts(
        &self,
        offset: u64,
        bytes: usize,
        mut each: impl FnMut(GuestAddress, usize, usize) -> Result<(), Outside>,
    ) -> Result<(), Outside> {
        let (mut skip, mut done) = (offset, 0);
        for (at, length) in &self.parts {
            let length = u64::from(*length);
            if skip >= length {
                skip -= length;
                continue;
            }
            if done == bytes {
                break;
            }
            let at = at.checked_add(skip).ok_or(Outside)?;
            let part = (length - skip).min((bytes - done) as u64) as usize;
            each(at, done, done + part)?;
            (skip, done) = (0, done + part);
        }
        if done == bytes { Ok(()) } else { Err(Outside) }
    }

    /// Copies from `offset` on into all of `into`.
    pub(crate) fn read(&self, memory: &Guest, offset: u64, into: &mut [u8]) -> Result<(), Outside> {
        self.parts(offset, into.len(), |at, start, end| {
            memory.read_slice(&mut into[start..end], at).map_err(|_| Outside)
        })
    }

    /// Copies all of `from` to `offset`.
    pub(crate) fn write(&self, memory: &Guest, offset: u64, from: &[u8]) -> Result<(), Outside> {
        self.parts(offset, from.len(), |at, start, end| {
            memory.write_slice(&from[start..end], at).map_err(|_| Outside)
        })
    }
}

impl Chain {
    /// Reads the chain that begins with the descriptor `head` of a table of `size` descriptors.
    ///
    /// # Errors
    /// For a chain that does not end, that leaves its table or the memory, that has a table in a
    /// table, or that goes on with what the device reads after what it writes.
    pub(crate) fn read(
        &mut self,
        memory: &Guest,
        table: GuestAddress,
        size: u16,
        head: u16,
    ) -> Result<(), Malformed> {
        self.readable.clear();
        self.writable.clear();
        let (mut table, mut entries, mut next) = (table, u32::from(size), head);
        let mut is_indirect = false;
        for _ in 0..=MOST {
            if u32::from(next) >= entries {
                return Err(Malformed);
            }
            let at = table.checked_add(u64::from(next) * DESCRIPTOR).ok_or(Malformed)?;
            let descriptor: Descriptor = memory.read_obj(at).map_err(|_| Malformed)?;
            if descriptor.refers_to_indirect_table() {
                let bytes = u64::from(descriptor.len());
                if is_indirect || descriptor.has_next() || !bytes.is_multiple_of(DESCRIPTOR) {
                    return Err(Malformed);
                }
                (table, entries, next) = (descriptor.addr(), (bytes / DESCRIPTOR) as u32, 0);
                is_indirect = true;
                continue;
            }
            match descriptor.is_write_only() {
                true => self.writable.push(descriptor),
                false if self.writable.parts.is_empty() => self.readable.push(descriptor),
                false => return Err(Malformed),
            }
            if !descriptor.has_next() {
                return Ok(());
            }
            next = descriptor.next();
        }
        Err(Malformed)
    }
}
