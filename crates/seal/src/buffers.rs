//! Buffers for what is written: it is encrypted there, and not where the caller keeps it.

use sync::{Mutex, MutexGuard, lock_one};
use units::{Cpu, PAGE_SIZE};

/// Pages of a buffer.
pub(crate) const PAGES: usize = 32;

/// A few buffers that are made once. A buffer is taken by its lock, and held while the device below
/// writes.
pub(crate) struct Buffers {
    buffers: Box<[Mutex<Buffer>]>,
}

/// Memory for [`PAGES`] pages, aligned to a page as direct I/O wants.
pub(crate) struct Buffer {
    memory: Box<[u8]>,
    start: usize,
}

impl Buffer {
    fn new() -> Buffer {
        // The last page is what the alignment takes.
        let memory = vec![0u8; (PAGES + 1) * PAGE_SIZE].into_boxed_slice();
        let start = memory.as_ptr().align_offset(PAGE_SIZE).min(PAGE_SIZE);
        Buffer { memory, start }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + PAGES * PAGE_SIZE]
    }
}

impl Buffers {
    /// Makes `count` buffers, at least one.
    pub fn new(count: usize) -> Buffers {
        Buffers { buffers: (0..count.max(1)).map(|_| Mutex::new(Buffer::new())).collect() }
    }

    /// A buffer that is free. If none is, waits until the write that has this CPU's is done.
    pub fn take(&self, cpu: Cpu) -> MutexGuard<'_, Buffer> {
        lock_one(&self.buffers, cpu)
    }
}
