//! The buffer of a worker thread.

use std::cell::RefCell;
use std::sync::Arc;

use sync::Mutex;
use units::PAGE_SIZE;

/// The largest request, in bytes: the default limit of Linux (fs.fuse.max_pages_limit is 256
/// pages).
pub(crate) const LARGEST: usize = 1 << 20;
/// The same by io_uring: each entry of a queue has room for one.
pub(crate) const LARGEST_BY_RING: usize = 256 << 10;

thread_local! {
    static BUFFER: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// The buffers of a mount. Those of its workers are there before the first request. A thread takes
/// one at its first read, and gives it back when it ends.
pub(crate) struct Buffers {
    free: Mutex<Vec<Memory>>,
    most: usize,
}

struct Memory {
    bytes: Vec<u8>,
    skip: usize,
}

/// The buffer of a thread.
struct Held {
    memory: Memory,
    home: Arc<Buffers>,
}

impl Memory {
    fn new(bytes: Vec<u8>) -> Memory {
        let skip = bytes.as_ptr().align_offset(PAGE_SIZE).min(PAGE_SIZE);
        Memory { bytes, skip }
    }

    /// None if there is no memory: that fails a read, and ends nothing.
    fn try_new(length: usize) -> Option<Memory> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length + PAGE_SIZE).ok()?;
        bytes.resize(length + PAGE_SIZE, 0);
        Some(Memory::new(bytes))
    }

    fn has_room(&self, length: usize) -> bool {
        self.bytes.len() >= length + PAGE_SIZE
    }
}

impl Buffers {
    /// Buffers for `workers` threads. Their pages come with the first data.
    pub(crate) fn new(workers: usize) -> Buffers {
        let memory = || Memory::new(vec![0; LARGEST + PAGE_SIZE]);
        Buffers { free: Mutex::new((0..workers).map(|_| memory()).collect()), most: workers }
    }

    fn take(self: &Arc<Buffers>, length: usize) -> Option<Held> {
        // Those of the mount have room for LARGEST.
        let taken = if length <= LARGEST { self.free.lock().pop() } else { None };
        let memory = match taken {
            Some(memory) => memory,
            None => Memory::try_new(length.max(LARGEST))?,
        };
        Some(Held { memory, home: self.clone() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let memory = std::mem::replace(&mut self.memory, Memory { bytes: Vec::new(), skip: 0 });
        let mut free = self.home.free.lock();
        if free.len() < self.home.most && memory.has_room(LARGEST) {
            free.push(memory);
        }
    }
}

/// Lends `length` page-aligned bytes of this thread's buffer, or None if there is no memory for
/// them. It allocates only if the thread has served no read of this length before and the mount has
/// no buffer left. The bytes hold data of earlier requests.
pub(crate) fn with_buffer<R>(
    buffers: &Arc<Buffers>,
    length: usize,
    run: impl FnOnce(Option<&mut [u8]>) -> R,
) -> R {
    BUFFER.with_borrow_mut(|held| {
        if !held.as_ref().is_some_and(|held| held.memory.has_room(length)) {
            // The old one goes back first.
            *held = None;
            *held = buffers.take(length);
        }
        let memory = held.as_mut().map(|held| &mut held.memory);
        run(memory.map(|memory| &mut memory.bytes[memory.skip..memory.skip + length]))
    })
}
