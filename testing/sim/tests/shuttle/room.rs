//! Writers on a full disk, each of which makes room: what one has made no other one takes. Every
//! page needs a frame of its own, so a store writes one page back and no more.

use std::sync::{Arc, Mutex};

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use shuttle::{current, thread};
use sim::content::Fill;
use units::{Cpu, PAGE_SIZE};
use zram::WhenFull;

use crate::bench::Bench;

const P: u64 = PAGE_SIZE as u64;
const WRITERS: u64 = 3;
/// Pages that each writer stores. Memory holds three.
const PAGES: u64 = 4;

/// Runs one schedule.
pub fn play() {
    let device =
        Arc::new(Counting(Plain::new((WRITERS * PAGES) as usize * PAGE_SIZE), Mutex::default()));
    let disk = Bench::new(device.clone()).make().disk;
    disk.set_mem_limit(4 * P);
    disk.set_backing("backing").expect("there is one");
    disk.set_writeback_batch(1).expect("that is a number");
    disk.set_when_full(WhenFull::Wait).expect("it has no size");
    disk.set_disksize(WRITERS * PAGES * P).expect("there are addresses");
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (disk, device) = (disk.clone(), device.clone());
            thread::spawn(move || {
                for index in (writer * PAGES..).take(PAGES as usize) {
                    let mut page = [0; PAGE_SIZE];
                    Fill::Noise(index).render(&mut page);
                    let before = device.writes();
                    disk.store_page(Cpu(0), index, &page).expect("pages can move");
                    let written = device.writes() - before;
                    assert!(written <= 1, "{written} pages were written for one");
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("shuttle ends with a panic"));
    let stats = disk.stats();
    assert_eq!((stats.pages_stored, stats.failed_writes), (WRITERS * PAGES, 0));
    assert!(stats.pool_bytes <= 4 * P);
}

/// A device that knows by which thread each page was written.
struct Counting(Plain, Mutex<Vec<usize>>);

impl Counting {
    /// The pages that the calling thread has written.
    fn writes(&self) -> usize {
        let me: usize = current::me().into();
        self.1.lock().unwrap().iter().filter(|thread| **thread == me).count()
    }
}

impl BlockDevice for Counting {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if let Operation::Write { .. } = operation {
            self.1.lock().unwrap().push(current::me().into());
        }
        self.0.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.0.extents(cpu, offset, length, visit)
    }
}
