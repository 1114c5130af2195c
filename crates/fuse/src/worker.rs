//! The CPU and the buffer of a worker thread.

use std::cell::{Cell, RefCell};

use sync::atomic::{AtomicU32, Ordering};
use units::PAGE_SIZE;

use crate::sys;

/// The largest request, in bytes: the default limit of Linux (fs.fuse.max_pages_limit is 256
/// pages).
pub(crate) const LARGEST: usize = 1 << 20;

thread_local! {
    static ENTERED: Cell<bool> = const { Cell::new(false) };
    static BUFFER: RefCell<Buffer> = const { RefCell::new(Buffer { memory: Vec::new(), skip: 0 }) };
}

/// The CPUs for workers. A worker is bound to the next one at its first request.
pub(crate) struct Workers {
    cpus: Vec<usize>,
    next: AtomicU32,
}

impl Workers {
    /// Binds each worker to one of `cpus`; if `cpus` is empty, binds none.
    pub(crate) fn new(cpus: Vec<usize>) -> Workers {
        Workers { cpus, next: AtomicU32::new(0) }
    }

    /// Called at the beginning of each request.
    #[inline]
    pub(crate) fn enter(&self) {
        if !self.cpus.is_empty() && !ENTERED.get() {
            self.bind();
        }
    }

    #[cold]
    fn bind(&self) {
        ENTERED.set(true);
        let turn = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        // On an error (the CPU is no longer allowed) the worker runs on any CPU, only slower.
        let _ = sys::bind_to_cpu(self.cpus[turn % self.cpus.len()]);
    }
}

struct Buffer {
    memory: Vec<u8>,
    skip: usize,
}

/// Lends `length` page-aligned bytes of this thread's buffer. It allocates only if the thread has
/// served no read of this length before. The bytes hold data of earlier requests.
pub(crate) fn with_buffer<R>(length: usize, run: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        let want = length.max(LARGEST) + PAGE_SIZE;
        if buffer.memory.len() < want {
            buffer.memory = vec![0; want];
            buffer.skip = buffer.memory.as_ptr().align_offset(PAGE_SIZE).min(PAGE_SIZE);
        }
        run(&mut buffer.memory[buffer.skip..buffer.skip + length])
    })
}
