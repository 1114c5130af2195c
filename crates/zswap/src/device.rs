//! A swap area as a block device: what is written goes into the cache, and to the area's own
//! device what the cache refuses or has no room for any more; it is read from wherever it is.

use alloc::sync::Arc;
use core::ops::{ControlFlow, Range};

use block::{
    Abilities, BlockDevice, Extent, ExtentKind, Geometry, IoError, Job, Operation, Visit, ZeroMode,
};
use units::{Cpu, PAGE_SIZE, Page};

use crate::area::{Area, BATCH, Claims};
use crate::counts::Count;
use crate::engine::{Owner, Zswap};
use crate::outcome::{LoadError, Reject};
use crate::{Key, SwapType};

const P: u64 = PAGE_SIZE as u64;

static ZEROES: Page = [0; PAGE_SIZE];

/// A swap area that is on, as a device of as many pages. Operations are of whole pages, each of
/// them atomic. What was stored stays until it is discarded, whatever `exclusive_loads` says: who
/// reads a block device may read it again.
pub struct SwapDevice {
    zswap: Arc<Zswap>,
    swap: SwapType,
}

impl SwapDevice {
    /// The device of area `swap`, which should be on; while it is off every operation fails.
    #[must_use]
    pub fn new(zswap: Arc<Zswap>, swap: SwapType) -> SwapDevice {
        SwapDevice { zswap, swap }
    }

    /// The cache behind it.
    #[must_use]
    pub fn zswap(&self) -> &Arc<Zswap> {
        &self.zswap
    }

    /// Its area.
    #[must_use]
    pub fn swap(&self) -> SwapType {
        self.swap
    }

    fn key(&self, offset: u64) -> Key {
        Key { swap: self.swap, offset }
    }

    /// The pages of a range of bytes, if the area has them all.
    fn pages(&self, cpu: Cpu, offset: u64, length: u64) -> Result<Range<u64>, IoError> {
        let reader = self.zswap.readers.enter(cpu);
        let area = self.zswap.area_here(&reader, self.swap).ok_or(IoError::NotReady)?;
        if !(offset | length).is_multiple_of(P) {
            return Err(IoError::Unaligned);
        }
        let pages = offset / P..offset.checked_add(length).ok_or(IoError::OutOfRange)? / P;
        if pages.end > area.pages {
            return Err(IoError::OutOfRange);
        }
        Ok(pages)
    }

    /// The area, for longer than a reader may last. All who ask for it count in one place: not for
    /// what happens to every page.
    fn area(&self) -> Result<Arc<Area>, IoError> {
        self.zswap.area(self.swap).ok_or(IoError::NotReady)
    }

    fn write(&self, cpu: Cpu, offset: u64, from: &[u8]) -> Result<(), IoError> {
        let pages = self.pages(cpu, offset, from.len() as u64)?;
        let (from, _) = from.as_chunks::<PAGE_SIZE>();
        // A run of pages that the cache refused, and why it refused the last of them.
        let mut refused: Option<(Range<usize>, Reject)> = None;
        for (n, page) in from.iter().enumerate() {
            let key = self.key(pages.start + n as u64);
            match self.zswap.put(cpu, key, None, page, Owner::HasNoOther) {
                Ok(()) => {}
                Err(reject) => {
                    let start = refused.take().map_or(n, |(run, _)| run.start);
                    refused = Some((start..n + 1, reject));
                }
            }
            let full = |run: &Range<usize>| run.end <= n || run.len() == BATCH;
            if let Some((run, reject)) = refused.take_if(|(run, _)| full(run)) {
                self.write_through(cpu, pages.start, &from[run.clone()], (run, reject))?;
            }
        }
        match refused {
            Some((run, reject)) => {
                self.write_through(cpu, pages.start, &from[run.clone()], (run, reject))
            }
            None => Ok(()),
        }
    }

    /// Writes pages to the device that the cache refused; `run` are their numbers from `start` on.
    fn write_through(
        &self,
        cpu: Cpu,
        start: u64,
        from: &[Page],
        (run, reject): (Range<usize>, Reject),
    ) -> Result<(), IoError> {
        let area = &*self.area()?;
        let device = area.device.as_ref().filter(|_| area.tenant.writeback());
        let Some(device) = device else { return Err(error_of(reject)) };
        let first = start + run.start as u64;
        let mut claims = Claims::of(area);
        (first..first + from.len() as u64).for_each(|offset| claims.add(offset));
        // Until the device has them, what the cache has of these pages stays: a read finds it.
        device.submit(cpu, Operation::Write { offset: first * P, from: from.as_flattened() })?;
        for offset in first..first + from.len() as u64 {
            area.set_on_device(offset);
            if let Some(word) = area.index.remove(cpu, offset) {
                let reader = self.zswap.readers.enter(cpu);
                self.zswap.dispose(&reader, cpu, word);
            }
        }
        self.zswap.counts.add(cpu, Count::Through, from.len() as i64);
        Ok(())
    }

    fn read(&self, cpu: Cpu, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let pages = self.pages(cpu, offset, into.len() as u64)?;
        let (into, _) = into.as_chunks_mut::<PAGE_SIZE>();
        let mut first = pages.start;
        for into in into.chunks_mut(BATCH) {
            let mut missing = 0u64;
            for (n, page) in into.iter_mut().enumerate() {
                match self.zswap.load_and_keep(cpu, self.key(first + n as u64), page) {
                    Ok(()) => {}
                    Err(LoadError::NotFound) => missing |= 1 << n,
                    Err(LoadError::Corrupt) => return Err(IoError::Corrupt),
                }
            }
            if missing != 0 {
                self.read_missing(cpu, first, into, missing)?;
            }
            first += into.len() as u64;
        }
        Ok(())
    }

    /// Reads pages that were not found in the cache: `missing` has a bit for each of `into`.
    #[cold]
    fn read_missing(
        &self,
        cpu: Cpu,
        first: u64,
        into: &mut [Page],
        missing: u64,
    ) -> Result<(), IoError> {
        let area = &*self.area()?;
        // Only under its claim is it known where a page is, or that it is nowhere.
        let mut claims = Claims::of(area);
        let mut there = 0u64;
        for (n, page) in into.iter_mut().enumerate().filter(|(n, _)| missing & 1 << n != 0) {
            let offset = first + n as u64;
            claims.add(offset);
            match self.zswap.load_and_keep(cpu, self.key(offset), page) {
                Ok(()) => {}
                Err(LoadError::NotFound) if area.is_on_device(offset) => there |= 1 << n,
                Err(LoadError::NotFound) => page.fill(0),
                Err(LoadError::Corrupt) => return Err(IoError::Corrupt),
            }
        }
        if there == 0 {
            return Ok(());
        }
        // A page is on the device only if there is one.
        let device = area.device.as_ref().ok_or(IoError::Failed)?;
        let (mut rest, mut at, mut count) = (into, 0usize, 0);
        let mut jobs: [Job<'_>; BATCH] = core::array::from_fn(|_| {
            let left = there.checked_shr(at as u32).unwrap_or(0);
            if left == 0 {
                return Job::new(Operation::Flush);
            }
            let skipped = left.trailing_zeros() as usize;
            let run = (left >> skipped).trailing_ones() as usize;
            let (_, behind) = core::mem::take(&mut rest).split_at_mut(skipped);
            let (pages, behind) = behind.split_at_mut(run);
            let offset = (first + (at + skipped) as u64) * P;
            (rest, at, count) = (behind, at + skipped + run, count + 1);
            Job::new(Operation::Read { offset, into: pages.as_flattened_mut() })
        });
        device.submit_all(cpu, &mut jobs[..count]);
        jobs[..count].iter().try_for_each(|job| job.result)?;
        let pages = u64::from(there.count_ones());
        self.zswap.counts.add(cpu, Count::ReadBack, pages as i64);
        area.tenant.count_read_back(pages);
        Ok(())
    }

    fn discard(&self, cpu: Cpu, offset: u64, length: u64) -> Result<(), IoError> {
        let (pages, area) = (self.pages(cpu, offset, length)?, self.area()?);
        let mut at = pages.start;
        while at < pages.end {
            let next = (at | (BATCH as u64 - 1)).saturating_add(1).min(pages.end);
            if area.any_on_device(at..next) {
                self.discard_on_device(cpu, &area, at..next);
            } else {
                self.zswap.drop_range(cpu, &area, at, next);
            }
            at = next;
        }
        Ok(())
    }

    /// Gives up at most [`BATCH`] pages, some of which are on the device, there too.
    fn discard_on_device(&self, cpu: Cpu, area: &Area, pages: Range<u64>) {
        let mut claims = Claims::of(area);
        let mut there = 0u64;
        for (n, offset) in pages.clone().enumerate().filter(|(_, o)| area.is_on_device(*o)) {
            claims.add(offset);
            there |= u64::from(area.is_on_device(offset)) << n;
        }
        self.zswap.drop_range(cpu, area, pages.start, pages.end);
        let Some(device) = &area.device else { return };
        let mut at = 0;
        while let left @ 1.. = there.checked_shr(at).unwrap_or(0) {
            at += left.trailing_zeros();
            let run = (left >> left.trailing_zeros()).trailing_ones();
            let offset = (pages.start + u64::from(at)) * P;
            // A hint: the marks say already that nothing is there.
            let _ = device.submit(cpu, Operation::Discard { offset, length: u64::from(run) * P });
            at += run;
        }
    }

    /// What a page is, of the moment.
    fn kind(&self, cpu: Cpu, area: &Area, offset: u64) -> ExtentKind {
        let _reading = self.zswap.retired.read(cpu);
        match area.index.get(cpu, offset).is_some() || area.is_on_device(offset) {
            true => ExtentKind::Data,
            false => ExtentKind::Hole,
        }
    }
}

impl BlockDevice for SwapDevice {
    fn geometry(&self) -> Geometry {
        let reader = self.zswap.readers.enter(Cpu(0));
        let bytes = self.zswap.area_here(&reader, self.swap).map_or(0, |area| area.pages * P);
        let page = PAGE_SIZE as u32;
        Geometry { bytes, minimum_block: page, preferred_block: page }
    }

    fn abilities(&self) -> Abilities {
        Abilities { read_only: false, discard: true, fast_zero: true, flush: false }
    }

    fn submit(&self, cpu: Cpu, operation: Operation<'_>) -> Result<(), IoError> {
        match operation {
            Operation::Read { offset, into } => self.read(cpu, offset, into),
            Operation::Write { offset, from } => self.write(cpu, offset, from),
            Operation::Discard { offset, length }
            | Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch } => {
                self.discard(cpu, offset, length)
            }
            Operation::WriteZeroes { offset, length, mode: ZeroMode::KeepAllocated } => {
                let pages = self.pages(cpu, offset, length)?;
                pages.into_iter().try_for_each(|page| self.write(cpu, page * P, &ZEROES))
            }
            // It is swap space: nothing of it outlives this process.
            Operation::Flush => Ok(()),
        }
    }

    fn may_wait(&self, offset: u64, length: u64) -> bool {
        let cpu = Cpu(0);
        let reader = self.zswap.readers.enter(cpu);
        let Some(area) = self.zswap.area_here(&reader, self.swap) else { return false };
        let Ok(pages) = self.pages(cpu, offset, length) else { return false };
        // A page that finds no memory is written through.
        area.device.is_some()
            && (self.zswap.is_nearly_full()
                || self.zswap.free_frames() < BATCH as u64
                || area.any_on_device(pages))
    }

    fn extents(&self, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let cpu = Cpu(0);
        let (pages, area) = (self.pages(cpu, offset, length)?, self.area()?);
        let mut at = pages.start;
        while at < pages.end {
            let (start, kind) = (at, self.kind(cpu, &area, at));
            at += 1;
            while at < pages.end && self.kind(cpu, &area, at) == kind {
                at += 1;
            }
            if let ControlFlow::Break(()) = visit(Extent { length: (at - start) * P, kind }) {
                break;
            }
        }
        Ok(())
    }
}

/// What is said to who wrote a page that nobody could take.
fn error_of(reject: Reject) -> IoError {
    match reject {
        Reject::NoArea => IoError::NotReady,
        Reject::PoolLimit | Reject::TenantLimit | Reject::Poor | Reject::Incompressible => {
            IoError::NoSpace
        }
        Reject::NoMemory | Reject::NoEntry => IoError::NoMemory,
        Reject::Disabled => IoError::NotReady,
    }
}
