//! Threads that write, discard and read the same few pages.

use block::{BlockDevice, Operation, ZeroMode};
use sync::atomic::{AtomicU32, Ordering};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};

use super::crowd::{Crowd, P, together};
use crate::content::Stamp;

const WRITERS: usize = 3;
const READERS: usize = 2;
const PAGES: u64 = 4;

/// Threads write whole pages, each with a stamp of its writer. Every page that a thread reads must
/// be whole, be of that place, and be no older than the writer's last page that the reader saw. A
/// second round adds discards and zeroes; a page may then be all zeroes, too. Another thread calls
/// `beside` in a loop meanwhile.
///
/// # Panics
/// When a reader finds anything else.
pub fn hot_pages(device: &dyn BlockDevice, crowd: Crowd<'_>) {
    let mut rng = Rng::new(crowd.seed);
    let issued = std::array::from_fn(|_| AtomicU32::new(0));
    let stage = Stage { device, crowd, issued };
    for page in 0..PAGES {
        stage.write(&mut rng, 0, page, 1);
    }
    for discards in [false, true] {
        let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
        for writer in 0..WRITERS {
            let (mut rng, stage) = (rng.fork(), &stage);
            tasks.push(Box::new(move || {
                for _ in 0..crowd.rounds {
                    let count = if rng.one_in(4) { 1 + rng.below(PAGES) } else { 1 };
                    let page = rng.below(PAGES - count + 1);
                    stage.write(&mut rng, writer, page, count);
                }
            }));
        }
        for reader in 0..READERS {
            let (mut rng, stage) = (rng.fork(), &stage);
            tasks.push(Box::new(move || stage.read(&mut rng, reader, discards)));
        }
        if discards {
            let (mut rng, stage) = (rng.fork(), &stage);
            tasks.push(Box::new(move || (0..crowd.rounds).for_each(|_| stage.empty(&mut rng))));
        }
        together(tasks, crowd.beside);
    }
    stage.discarded_pages_are_zeroes();
}

struct Stage<'a> {
    device: &'a dyn BlockDevice,
    crowd: Crowd<'a>,
    /// The number of pages that each writer has begun to write.
    issued: [AtomicU32; WRITERS],
}

impl Stage<'_> {
    fn write(&self, rng: &mut Rng, writer: usize, page: u64, count: u64) {
        let mut from = vec![0; (count * P) as usize];
        let (pages, _) = from.as_chunks_mut::<PAGE_SIZE>();
        for (n, contents) in pages.iter_mut().enumerate() {
            let number = self.issued[writer].fetch_add(1, Ordering::Relaxed);
            let stamp = Stamp { page: page as u8 + n as u8, writer: writer as u8, number };
            stamp.render(contents);
        }
        let cpu = Cpu(rng.below(4) as u32);
        let written = self.device.submit(cpu, Operation::Write { offset: page * P, from: &from });
        self.crowd.made("a write", written);
    }

    fn empty(&self, rng: &mut Rng) {
        let count = 1 + rng.below(2);
        let (offset, length) = (rng.below(PAGES - count + 1) * P, count * P);
        let operation = match rng.below(4) {
            0 => Operation::WriteZeroes { offset, length, mode: ZeroMode::KeepAllocated },
            1 => Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch },
            _ => Operation::Discard { offset, length },
        };
        let emptied = self.device.submit(Cpu(9), operation);
        self.crowd.made("a discard", emptied);
    }

    fn read(&self, rng: &mut Rng, reader: usize, discards: bool) {
        let mut newest = [[0; WRITERS]; PAGES as usize];
        for _ in 0..self.crowd.rounds * WRITERS {
            let count = 1 + rng.below(2);
            let page = rng.below(PAGES - count + 1);
            let mut into = vec![0xa5; (count * P) as usize];
            let cpu = Cpu(reader as u32);
            let read =
                self.device.submit(cpu, Operation::Read { offset: page * P, into: &mut into });
            assert_eq!(read, Ok(()), "a read of {count} pages failed");
            let (contents, _) = into.as_chunks::<PAGE_SIZE>();
            for (n, contents) in contents.iter().enumerate() {
                let page = page as usize + n;
                if let Err(wrong) = self.judge(page, contents, discards, &mut newest[page]) {
                    panic!("page {page}: {wrong} (drawn from {:#x})", self.crowd.seed);
                }
            }
        }
    }

    fn judge(
        &self,
        page: usize,
        contents: &Page,
        discards: bool,
        newest: &mut [u32; WRITERS],
    ) -> Result<(), String> {
        if *contents == [0; PAGE_SIZE] {
            // If the device may refuse changes, the page may never have been written.
            let may_be = discards || self.crowd.may_refuse;
            return if may_be { Ok(()) } else { Err("reads as zeroes, undiscarded".into()) };
        }
        let stamp = Stamp::read(contents)?;
        if usize::from(stamp.page) != page {
            return Err(format!("it is {stamp:?} of another place"));
        }
        let writer = usize::from(stamp.writer);
        let issued = self.issued.get(writer).map_or(0, |issued| issued.load(Ordering::Relaxed));
        if stamp.number >= issued {
            return Err(format!("{stamp:?} has not been written yet"));
        }
        if stamp.number < newest[writer] {
            return Err(format!("{stamp:?} came back after number {}", newest[writer]));
        }
        newest[writer] = stamp.number;
        Ok(())
    }

    fn discarded_pages_are_zeroes(&self) {
        let whole = Operation::Discard { offset: 0, length: PAGES * P };
        assert_eq!(self.device.submit(Cpu(0), whole), Ok(()), "a discard failed");
        let mut into = vec![0xa5; (PAGES * P) as usize];
        let read = self.device.submit(Cpu(0), Operation::Read { offset: 0, into: &mut into });
        assert_eq!(read, Ok(()), "a read failed");
        assert!(into.iter().all(|byte| *byte == 0), "a page survived its discard");
    }
}
