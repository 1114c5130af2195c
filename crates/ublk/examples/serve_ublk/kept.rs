//! A disk whose contents are in a file, so that they outlive the process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit};
use sync::atomic::{AtomicU64, Ordering};
use units::{Cpu, PAGE_SIZE};

/// Bytes of the zeroes that are written at once.
const ZEROES: usize = 64 << 10;

pub struct KeptDisk {
    file: File,
    bytes: u64,
    zeroes: Box<[u8]>,
    /// Requests that were carried out.
    done: Arc<AtomicU64>,
}

impl KeptDisk {
    /// The disk in the file at `path`, which gets `bytes` if it has another length.
    pub fn open(path: &str, bytes: u64) -> io::Result<KeptDisk> {
        let file = OpenOptions::new();
        let file = file.clone().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(bytes)?;
        Ok(KeptDisk { file, bytes, zeroes: vec![0; ZEROES].into(), done: Arc::default() })
    }

    /// The number of requests that were carried out.
    pub fn done(&self) -> Arc<AtomicU64> {
        self.done.clone()
    }

    fn clear(&self, mut offset: u64, mut length: u64) -> io::Result<()> {
        while length > 0 {
            let part = length.min(ZEROES as u64);
            self.file.write_all_at(&self.zeroes[..part as usize], offset)?;
            (offset, length) = (offset + part, length - part);
        }
        Ok(())
    }
}

impl BlockDevice for KeptDisk {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes, minimum_block: 1, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { discard: true, fast_zero: true, ..Abilities::default() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        // Waiters carry out half of the requests.
        if (operation.range().0 / PAGE_SIZE as u64) % 2 == 1 {
            context.may_wait()?;
        }
        let done = match operation {
            Operation::Read { offset, into } => self.file.read_exact_at(into, offset),
            Operation::Write { offset, from } => self.file.write_all_at(from, offset),
            Operation::Discard { offset, length }
            | Operation::WriteZeroes { offset, length, .. } => self.clear(offset, length),
            Operation::Flush => Ok(()),
        };
        self.done.fetch_add(1, Ordering::Relaxed);
        done.map_err(|_| IoError::Failed)
    }

    fn extents(&self, _: Cpu, _: u64, _: u64, _: Visit<'_>) -> Result<(), IoError> {
        Err(IoError::Unsupported)
    }
}
