//! RAM disks, some with faults.

use std::hint::black_box;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use units::{Cpu, PAGE_SIZE};

/// Pages that a fresh disk can touch for the first time.
const FRESH: usize = 100_000;

enum Kind {
    Plain,
    Failing,
    Slow(Duration),
    Panicking,
    /// Untouched memory, and the number of its pages that are touched by now.
    Fresh(Mutex<(Vec<u8>, usize)>),
    Greedy,
}

pub struct Disk {
    inner: Plain,
    kind: Kind,
}

impl Disk {
    /// Makes a disk and touches all its memory.
    pub fn new(bytes: usize, kind: &str) -> Result<Disk, &'static str> {
        let kind = match kind {
            "plain" => Kind::Plain,
            "failing" => Kind::Failing,
            "slow" => Kind::Slow(Duration::from_millis(500)),
            "stuck" => Kind::Slow(Duration::from_secs(5)),
            "panicking" => Kind::Panicking,
            "fresh" => Kind::Fresh(Mutex::new((vec![0; FRESH * PAGE_SIZE], 0))),
            "greedy" => Kind::Greedy,
            _ => return Err("no such kind of disk"),
        };
        let inner = Plain::new(bytes);
        let length = bytes as u64;
        let whole = vec![1; bytes];
        inner
            .submit(Cpu(0), Operation::Write { offset: 0, from: &whole })
            .and_then(|()| inner.submit(Cpu(0), Operation::Discard { offset: 0, length }))
            .map_err(|_| "it cannot be filled")?;
        Ok(Disk { inner, kind })
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn abilities(&self) -> Abilities {
        Abilities { flush: true, ..self.inner.abilities() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match &self.kind {
            Kind::Plain => {}
            Kind::Failing => return Err(IoError::Failed),
            Kind::Slow(time) => sleep(*time),
            Kind::Panicking => {
                let page = operation.range().0 / PAGE_SIZE as u64;
                assert!(page != 7, "page 7 was asked for");
            }
            Kind::Fresh(memory) => {
                let mut memory = memory.lock().expect("no panic");
                let (bytes, touched) = &mut *memory;
                bytes[*touched % FRESH * PAGE_SIZE] = 1;
                *touched += 1;
            }
            Kind::Greedy => drop(black_box(Box::new(operation.range()))),
        }
        self.inner.perform(context, operation)
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.inner.extents(cpu, offset, length, visit)
    }
}
