//! Plain reads and writes, for a system without io_uring.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use host::errno;
use units::PAGE_SIZE;

use crate::batch::{DEPTH, Done, Part, Queue, Way};

/// Carries out each part at its start, one by one.
pub(crate) struct Plain {
    file: Arc<File>,
    memory: Vec<u8>,
    /// The offset of its first whole page.
    aligned: usize,
    done: [Done; DEPTH],
    count: usize,
}

impl Plain {
    pub(crate) fn new(file: Arc<File>) -> Plain {
        let mut memory = vec![0u8; (DEPTH + 1) * PAGE_SIZE];
        // Populates the pages.
        std::hint::black_box(&mut memory[..]).fill(0);
        let aligned = memory.as_ptr().align_offset(PAGE_SIZE).min(PAGE_SIZE);
        let done = [Done { first: 0, result: 0 }; DEPTH];
        Plain { file, memory, aligned, done, count: 0 }
    }
}

impl Queue for Plain {
    fn memory(&mut self, first: usize, length: usize) -> &mut [u8] {
        let start = self.aligned + first * PAGE_SIZE;
        &mut self.memory[start..start + length]
    }

    fn start(&mut self, part: Part) {
        let file = self.file.clone();
        let memory = &mut self.memory(part.first, part.skip + part.length)[part.skip..];
        let transferred = match part.way {
            Way::Read => file.read_at(memory, part.offset),
            Way::Write => file.write_at(memory, part.offset),
        };
        let result = match transferred {
            Ok(bytes) => bytes as i32,
            Err(error) => -error.raw_os_error().unwrap_or(errno::EIO),
        };
        self.done[self.count] = Done { first: part.first, result };
        self.count += 1;
    }

    fn submit(&mut self, _least: usize) -> io::Result<()> {
        Ok(())
    }

    fn finished(&mut self) -> Option<Done> {
        self.count = self.count.checked_sub(1)?;
        Some(self.done[self.count])
    }
}
