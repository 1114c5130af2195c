//! A client of a file, or of a block device.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit, ZeroMode};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};

use super::Client;

const P: u64 = PAGE_SIZE as u64;

/// A file, or a block device, that is open. It passes the page cache by.
pub struct FileClient {
    file: File,
    path: PathBuf,
    is_device: bool,
    /// Takes the server away; it lives as long as its clients.
    lose: Arc<dyn Fn() + Send + Sync>,
}

impl FileClient {
    /// Opens the file or block device at `path`. `lose` takes its server away, and keeps it until
    /// it is dropped.
    ///
    /// # Panics
    /// When it cannot be opened.
    #[must_use]
    pub fn new(path: &Path, lose: Arc<dyn Fn() + Send + Sync>) -> FileClient {
        let direct = OFlags::DIRECT.bits() as i32;
        let opened = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path);
        let file = opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let is_device = file.metadata().expect("its kind").file_type().is_block_device();
        FileClient { file, path: path.to_owned(), is_device, lose }
    }

    fn carry_out(&self, operation: Operation<'_>) -> io::Result<()> {
        let (offset, length) = operation.range();
        let free = |how, offset, length| {
            Ok(fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, offset, length)?)
        };
        match operation {
            Operation::Flush => self.file.sync_data(),
            _ if length == 0 => Ok(()),
            Operation::Read { into, .. } => with_aligned(length, |aligned| {
                self.file.read_exact_at(aligned, offset)?;
                into.copy_from_slice(aligned);
                Ok(())
            }),
            Operation::Write { from, .. } => with_aligned(length, |aligned| {
                aligned.copy_from_slice(from);
                self.file.write_all_at(aligned, offset)
            }),
            Operation::Discard { .. } => {
                let (start, end) = (offset.next_multiple_of(P), (offset + length) / P * P);
                match self.is_device {
                    _ if start >= end => Ok(()),
                    true => host::discard(&self.file, start, end - start),
                    false => free(FallocateFlags::PUNCH_HOLE, start, end - start),
                }
            }
            Operation::WriteZeroes { mode: ZeroMode::MayPunch, .. } => {
                free(FallocateFlags::PUNCH_HOLE, offset, length)
            }
            Operation::WriteZeroes { .. } => free(FallocateFlags::ZERO_RANGE, offset, length),
        }
    }
}

/// Calls `with` with memory that begins with a page.
fn with_aligned<T>(length: u64, with: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut memory = vec![0xa5; length as usize + PAGE_SIZE];
    let skip = memory.as_ptr().align_offset(PAGE_SIZE);
    with(&mut memory[skip..skip + length as usize])
}

impl BlockDevice for FileClient {
    fn geometry(&self) -> Geometry {
        // The place in the file is used for nothing else.
        let bytes = (&self.file).seek(SeekFrom::End(0)).expect("its size");
        Geometry {
            bytes,
            minimum_block: if self.is_device { PAGE_SIZE as u32 } else { 1 },
            preferred_block: PAGE_SIZE as u32,
        }
    }

    fn abilities(&self) -> Abilities {
        Abilities { discard: true, flush: true, ..Abilities::default() }
    }

    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        self.carry_out(operation).map_err(|error| match error.kind() {
            ErrorKind::StorageFull => IoError::NoSpace,
            ErrorKind::UnexpectedEof => IoError::OutOfRange,
            _ => IoError::Failed,
        })
    }

    fn extents(&self, _: Cpu, _: u64, _: u64, _: Visit<'_>) -> Result<(), IoError> {
        Err(IoError::Unsupported)
    }
}

impl Client for FileClient {
    fn another(&self) -> Arc<dyn Client> {
        Arc::new(FileClient::new(&self.path, self.lose.clone()))
    }

    fn lose_server(&self) {
        (self.lose)();
    }

    fn stranger(&self, _: &mut Rng) {}
}
