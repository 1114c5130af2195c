//! Threads that write to different parts of the same pages.

use block::{BlockDevice, Operation, ZeroMode};
use testkit::Rng;
use units::Cpu;

use super::crowd::{Crowd, P, together};
use crate::content::Fill;

const THREADS: usize = 4;
const PAGES: u64 = 4;

/// Every thread owns stripes of the same few pages, and only the owner changes a stripe. So a
/// stripe must hold what its owner wrote last. A device that reads, changes and writes back a page
/// in three steps loses the neighbours' bytes.
///
/// # Panics
/// When a byte was lost.
pub fn neighbours(device: &dyn BlockDevice, crowd: Crowd<'_>) {
    let unit = u64::from(device.geometry().minimum_block.max(1));
    // If the device takes any range, the stripe does not divide the page size, so that stripes
    // cross page ends.
    let stripe = if unit == 1 { 88 } else { unit };
    let bytes = (PAGES * P).min(device.geometry().bytes) / stripe * stripe;
    let mut rng = Rng::new(crowd.seed);
    let mut owners: Vec<Owner<'_>> = (0..THREADS)
        .map(|number| Owner {
            cpu: Cpu(number as u32),
            crowd,
            unit,
            stripe,
            stripes: (0..bytes / stripe).filter(|n| *n as usize % THREADS == number).collect(),
            bytes: vec![0; bytes as usize],
            rng: rng.fork(),
        })
        .collect();
    let tasks = owners.iter_mut().map(|owner| -> Box<dyn FnOnce() + Send + '_> {
        Box::new(|| {
            for _ in 0..crowd.rounds {
                owner.act(device);
            }
        })
    });
    together(tasks.collect(), crowd.beside);
    owners.iter_mut().for_each(|owner| owner.check_all(device));
}

struct Owner<'a> {
    cpu: Cpu,
    crowd: Crowd<'a>,
    unit: u64,
    stripe: u64,
    stripes: Vec<u64>,
    /// The contents of the thread's stripes, at their offsets.
    bytes: Vec<u8>,
    rng: Rng,
}

impl Owner<'_> {
    fn act(&mut self, device: &dyn BlockDevice) {
        let start = *self.rng.pick(&self.stripes) * self.stripe;
        let units = self.stripe / self.unit;
        let skip = self.rng.below(units);
        let offset = start + skip * self.unit;
        let length = (1 + self.rng.below(units - skip)) * self.unit;
        let mine = offset as usize..(offset + length) as usize;
        let mut new = self.bytes[mine.clone()].to_vec();
        let operation = match self.rng.below(8) {
            0 => return self.check(device, start),
            // A discard of less than a page must keep the data.
            1 if length < P => Operation::Discard { offset, length },
            2 | 3 => {
                new.fill(0);
                let modes = [ZeroMode::MayPunch, ZeroMode::KeepAllocated];
                Operation::WriteZeroes { offset, length, mode: *self.rng.pick(&modes) }
            }
            _ => {
                Fill::draw(&mut self.rng).render(&mut new);
                Operation::Write { offset, from: &new }
            }
        };
        let result = device.submit(self.cpu, operation);
        if !self.crowd.made("a change", result) {
            self.adopt(device, start, mine.start, &mut new);
        }
        self.bytes[mine].copy_from_slice(&new);
        self.check(device, start);
    }

    /// Checks a refused change: every byte must be the old or the new one. `new` gets the real
    /// bytes.
    fn adopt(&self, device: &dyn BlockDevice, start: u64, at: usize, new: &mut [u8]) {
        let mut into = vec![0xa5; self.stripe as usize];
        let read = device.submit(self.cpu, Operation::Read { offset: start, into: &mut into });
        assert_eq!(read, Ok(()), "a read of {} bytes at {start} failed", into.len());
        for (n, byte) in new.iter_mut().enumerate() {
            let is = into[at - start as usize + n];
            let known = is == *byte || is == self.bytes[at + n];
            assert!(known, "byte {} is neither the old nor the new one", at + n);
            *byte = is;
        }
    }

    fn check(&self, device: &dyn BlockDevice, start: u64) {
        let mine = &self.bytes[start as usize..(start + self.stripe) as usize];
        let mut into = vec![0xa5; mine.len()];
        let read = device.submit(self.cpu, Operation::Read { offset: start, into: &mut into });
        assert_eq!(read, Ok(()), "a read of {} bytes at {start} failed", mine.len());
        if let Some(at) = into.iter().zip(mine).position(|(is, was)| is != was) {
            panic!(
                "byte {} was changed by somebody who wrote beside it: it reads as {:#04x}, its \
                 owner stored {:#04x} (drawn from {:#x})",
                start as usize + at,
                into[at],
                mine[at],
                self.crowd.seed
            );
        }
    }

    fn check_all(&mut self, device: &dyn BlockDevice) {
        self.stripes.iter().for_each(|stripe| self.check(device, stripe * self.stripe));
    }
}
