//! A swap area as a block device. A write goes into the cache; a page that the cache refuses or
//! writes back goes to the area's own device. A read finds the page in either place.

use alloc::sync::Arc;
use core::ops::{ControlFlow, Range};

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Job, Operation, Visit,
    Wait, ZeroMode,
};
use sync::Reader;
use units::{Cpu, PAGE_SIZE, Page};

use crate::area::{Area, BATCH, PageLocks};
use crate::counts::Count;
use crate::engine::{Offer, Owner, Zswap};
use crate::outcome::{LoadError, Reject};
use crate::{Key, SwapType};

const P: u64 = PAGE_SIZE as u64;

static ZEROES: Page = [0; PAGE_SIZE];

/// Neighbours that the cache refused, and the reason for the last of them.
struct Refused {
    run: Range<usize>,
    reject: Reject,
}

/// A swap area that is on, as a block device with the same number of pages. It is of this area
/// alone: once the area is off, every operation fails, also when another one gets its number.
/// Operations are of whole pages, each of them atomic. A stored page stays until it is discarded,
/// whatever `exclusive_loads` says: a client of a block device may read it again.
pub struct SwapDevice {
    zswap: Arc<Zswap>,
    swap: SwapType,
    /// How often an area of this number was on, this time included; 0 if none is.
    generation: u64,
}

impl SwapDevice {
    /// The device of area `swap`. If no such area is on, every operation fails.
    #[must_use]
    pub fn new(zswap: Arc<Zswap>, swap: SwapType) -> SwapDevice {
        let generation = zswap.area(swap).map_or(0, |area| area.generation);
        SwapDevice { zswap, swap, generation }
    }

    /// The cache behind the device.
    #[must_use]
    pub fn zswap(&self) -> &Arc<Zswap> {
        &self.zswap
    }

    /// The swap type of the area.
    #[must_use]
    pub fn swap(&self) -> SwapType {
        self.swap
    }

    fn key(&self, offset: u64) -> Key {
        Key { swap: self.swap, offset }
    }

    /// The area of the device, if it is still on.
    #[inline]
    fn area<'p>(&'p self, reader: &'p Reader<'_>) -> Option<&'p Arc<Area>> {
        let area = self.zswap.area_here(reader, self.swap)?;
        (area.generation == self.generation).then_some(area)
    }

    fn offer<'p>(&self, number: u64, page: &'p Page) -> Offer<'p> {
        let (key, owner) = (self.key(number), Owner::Device(self.generation));
        Offer { key, memcg: None, page, owner }
    }

    /// The area, and the pages of a byte range if the area has all of them.
    #[inline]
    fn judge<'p>(
        &'p self,
        reader: &'p Reader<'_>,
        offset: u64,
        length: u64,
    ) -> Result<(&'p Arc<Area>, Range<u64>), IoError> {
        let area = self.area(reader).ok_or(IoError::NotReady)?;
        if !(offset | length).is_multiple_of(P) {
            return Err(IoError::Unaligned);
        }
        let pages = offset / P..offset.checked_add(length).ok_or(IoError::OutOfRange)? / P;
        if pages.end > area.pages {
            return Err(IoError::OutOfRange);
        }
        Ok((area, pages))
    }

    /// The result of `judge` with a share of the area, which may outlive a reader. All callers
    /// change one reference count, so no caller does this for each page.
    fn judge_for_long(
        &self,
        cpu: Cpu,
        offset: u64,
        length: u64,
    ) -> Result<(Arc<Area>, Range<u64>), IoError> {
        let reader = self.zswap.readers.enter(cpu);
        let (area, pages) = self.judge(&reader, offset, length)?;
        Ok((area.clone(), pages))
    }

    fn write(&self, context: Context, offset: u64, from: &[u8]) -> Result<(), IoError> {
        let (zswap, cpu) = (&*self.zswap, context.cpu);
        let reader = zswap.readers.enter(cpu);
        let (area, pages) = self.judge(&reader, offset, from.len() as u64)?;
        let (from, _) = from.as_chunks::<PAGE_SIZE>();
        if context.wait == Wait::Yes {
            drop(reader);
            return self.write_and_wait(cpu, pages.start, from);
        }
        let done = self.write_at_once(&reader, cpu, (area, pages), from);
        drop(reader);
        zswap.ask_for_memory();
        done
    }

    /// Stores pages until one would have to wait. The whole write is repeated then, and counts.
    fn write_at_once(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        (area, pages): (&Area, Range<u64>),
        from: &[Page],
    ) -> Result<(), IoError> {
        let zswap = &*self.zswap;
        // A page that finds no memory is written to the device.
        let is_short = || zswap.is_nearly_full() || zswap.free_frames() < BATCH as u64;
        if area.device.is_some() && (is_short() || area.any_on_device(pages.clone())) {
            return Err(IoError::WouldBlock);
        }
        for (stored, (page, from)) in pages.zip(from).enumerate() {
            zcomp::prefetch_beginning(from);
            let put = || zswap.try_put(reader, cpu, &self.offer(page, from));
            // A page that the device holds is replaced under its lock: see `area`.
            if area.is_on_device(page) || put().is_err() {
                self.uncount(cpu, area, stored);
                return Err(IoError::WouldBlock);
            }
        }
        Ok(())
    }

    /// Counts pages as not stored: they will be stored anew.
    fn uncount(&self, cpu: Cpu, area: &Area, pages: usize) {
        self.zswap.counts.add(cpu, Count::Stores, -(pages as i64));
        area.memcg.uncount_stored(cpu, pages as i64);
    }

    /// Stores pages of zeroes. If one would have to wait, the whole is repeated, and counts.
    fn write_zeroes(&self, context: Context, offset: u64, length: u64) -> Result<(), IoError> {
        let (area, pages) = self.judge_for_long(context.cpu, offset, length)?;
        for (stored, page) in pages.enumerate() {
            let written = self.write(context, page * P, &ZEROES);
            if written == Err(IoError::WouldBlock) {
                self.uncount(context.cpu, &area, stored);
            }
            written?;
        }
        Ok(())
    }

    /// Stores pages from page `start` on. Pages that the cache refuses go to the device.
    fn write_and_wait(&self, cpu: Cpu, start: u64, from: &[Page]) -> Result<(), IoError> {
        let mut refused: Option<Refused> = None;
        for (n, page) in from.iter().enumerate() {
            match self.zswap.put(cpu, &self.offer(start + n as u64, page)) {
                Ok(()) => {}
                Err(reject) => {
                    let start = refused.take().map_or(n, |refused| refused.run.start);
                    refused = Some(Refused { run: start..n + 1, reject });
                }
            }
            let full = |run: &Range<usize>| run.end <= n || run.len() == BATCH;
            if let Some(refused) = refused.take_if(|refused| full(&refused.run)) {
                self.write_through(cpu, start, from, refused)?;
            }
        }
        refused.map_or(Ok(()), |refused| self.write_through(cpu, start, from, refused))
    }

    /// Writes the refused ones of the pages from page `start` on to the device.
    fn write_through(
        &self,
        cpu: Cpu,
        start: u64,
        from: &[Page],
        Refused { run, reject }: Refused,
    ) -> Result<(), IoError> {
        let from = &from[run.clone()];
        let (area, _) = self.judge_for_long(cpu, start * P, 0)?;
        let area = &*area;
        let device = area.device.as_ref().filter(|_| area.memcg.writeback());
        let Some(device) = device else { return Err(error_of(reject)) };
        let first = start + run.start as u64;
        let mut locks = PageLocks::of(area);
        (first..first + from.len() as u64).for_each(|offset| locks.add(offset));
        {
            let reader = self.zswap.readers.enter(cpu);
            (first..first + from.len() as u64).for_each(|it| area.clear_freed(&reader, it));
        }
        // Until the device has the pages, the cache keeps its copies: a read finds them.
        let write = Operation::Write { offset: first * P, from: from.as_flattened() };
        let pages = from.len() as i64;
        self.zswap.count_asked(cpu, area, pages);
        let written = device.submit(cpu, write);
        self.zswap.count_answered(cpu, area, pages);
        if let Err(error) = written {
            self.zswap.counts.add(cpu, Count::ThroughFailed, pages);
            // Some of the pages may be there.
            let there = first..first + from.len() as u64;
            there.filter(|it| !area.is_on_device(*it)).for_each(|it| area.forget(cpu, it));
            return Err(error);
        }
        for offset in first..first + from.len() as u64 {
            area.set_on_device(offset);
            if let Some(word) = area.index.remove(cpu, offset) {
                let reader = self.zswap.readers.enter(cpu);
                self.zswap.dispose(&reader, cpu, word);
            }
        }
        self.zswap.counts.add(cpu, Count::Through, pages);
        Ok(())
    }

    fn read(&self, context: Context, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        const BYTES: usize = BATCH * PAGE_SIZE;
        let (mut offset, mut rest) = (offset, into);
        loop {
            self.read_batch(context, offset, rest)?;
            if rest.len() <= BYTES {
                return Ok(());
            }
            rest = &mut rest[BYTES..];
            offset += BYTES as u64;
        }
    }

    /// Checks the range and reads its first pages, at most [`BATCH`].
    fn read_batch(&self, context: Context, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let (zswap, cpu) = (&*self.zswap, context.cpu);
        let reader = zswap.readers.enter(cpu);
        let (area, pages) = self.judge(&reader, offset, into.len() as u64)?;
        let (into, _) = into.as_chunks_mut::<PAGE_SIZE>();
        let count = into.len().min(BATCH);
        let into = &mut into[..count];
        if context.wait == Wait::No && area.any_on_device(pages.clone()) {
            return Err(IoError::WouldBlock);
        }
        let (first, mut missing) = (pages.start, 0u64);
        let reading = zswap.retired.read(cpu);
        for (n, page) in into.iter_mut().enumerate() {
            match zswap.load_here(&reader, cpu, (area, first + n as u64), page) {
                Ok(_) => {}
                Err(LoadError::NotFound) => missing |= 1 << n,
                Err(LoadError::Corrupt) => return Err(IoError::Corrupt),
            }
        }
        drop(reading);
        let loaded = count as i64 - i64::from(missing.count_ones());
        if missing == 0 {
            self.count_loads(cpu, area, loaded);
            return Ok(());
        }
        let area = area.clone();
        // A thread that waits for a lock must not be a reader.
        drop(reader);
        self.read_missing(context, (&area, first), into, missing)?;
        self.count_loads(cpu, &area, loaded);
        Ok(())
    }

    /// Counts loads of pages that came by this device: they are of the memcg of the area.
    fn count_loads(&self, cpu: Cpu, area: &Area, pages: i64) {
        self.zswap.counts.add(cpu, Count::Loads, pages);
        area.memcg.count_loaded(cpu, pages);
    }

    /// Reads pages that were not found in the cache: `missing` has a bit for each page of `into`.
    #[cold]
    fn read_missing(
        &self,
        context: Context,
        (area, first): (&Area, u64),
        into: &mut [Page],
        missing: u64,
    ) -> Result<(), IoError> {
        let cpu = context.cpu;
        // Only under its lock is it certain where a page is, or that it is in neither place.
        let mut locks = PageLocks::of(area);
        let mut there = 0u64;
        for (n, page) in into.iter_mut().enumerate().filter(|(n, _)| missing & 1 << n != 0) {
            let offset = first + n as u64;
            if !locks.try_add(offset) {
                context.may_wait()?;
                locks.add(offset);
            }
            let loaded = {
                let reader = self.zswap.readers.enter(cpu);
                let _reading = self.zswap.retired.read(cpu);
                self.zswap.load_here(&reader, cpu, (area, offset), page)
            };
            match loaded {
                Ok(_) => self.count_loads(cpu, area, 1),
                Err(LoadError::NotFound) if area.is_on_device(offset) => {
                    context.may_wait()?;
                    there |= 1 << n;
                }
                Err(LoadError::NotFound) => page.fill(0),
                Err(LoadError::Corrupt) => return Err(IoError::Corrupt),
            }
        }
        if there == 0 {
            return Ok(());
        }
        // A page can be on the device only if the area has a device.
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
        let pages = u64::from(there.count_ones());
        self.zswap.count_asked(cpu, area, pages as i64);
        device.submit_all(cpu, &mut jobs[..count]);
        self.zswap.count_answered(cpu, area, pages as i64);
        self.count_failures(cpu, &jobs[..count]);
        jobs[..count].iter().try_for_each(|job| job.result)?;
        self.zswap.counts.add(cpu, Count::ReadBack, pages as i64);
        area.memcg.count_read_back(pages);
        Ok(())
    }

    /// Counts the pages of reads that failed.
    fn count_failures(&self, cpu: Cpu, jobs: &[Job<'_>]) {
        for job in jobs {
            let Err(error) = job.result else { continue };
            let pages = (job.operation.range().1 / P) as i64;
            self.zswap.counts.add(cpu, Count::ReadBackFailed, pages);
            if error == IoError::Corrupt {
                self.zswap.counts.add(cpu, Count::ReadBackChanged, pages);
            }
        }
    }

    fn discard(&self, context: Context, offset: u64, length: u64) -> Result<(), IoError> {
        let cpu = context.cpu;
        let (area, pages) = self.judge_for_long(cpu, offset, length)?;
        if area.any_on_device(pages.clone()) {
            context.may_wait()?;
        }
        let mut at = pages.start;
        while at < pages.end {
            let next = (at | (BATCH as u64 - 1)).saturating_add(1).min(pages.end);
            // A thread that is writing a page back may mark it after it was discarded, and takes
            // the mark away again. If the process dies in between, the page is back. So no such
            // thread has a page that is discarded.
            let mut locks = PageLocks::of(&area);
            if area.device.is_some() && !locks.try_add_all(at..next) {
                context.may_wait()?;
                (at..next).for_each(|offset| locks.add(offset));
            }
            // None is written back from here on, but some may have been since the first look.
            if area.any_on_device(at..next) {
                context.may_wait()?;
            }
            self.discard_locked(cpu, &area, at..next);
            drop(locks);
            at = next;
        }
        Ok(())
    }

    /// Invalidates at most [`BATCH`] pages, and discards those that are on the device there. The
    /// calling thread has locked them if there is a device.
    fn discard_locked(&self, cpu: Cpu, area: &Area, pages: Range<u64>) {
        let on_device = pages.clone().enumerate().filter(|(_, offset)| area.is_on_device(*offset));
        let there = on_device.fold(0u64, |there, (n, _)| there | 1 << n);
        self.zswap.drop_range(cpu, area, pages.start, pages.end);
        let Some(device) = &area.device else { return };
        let mut at = 0;
        while let left @ 1.. = there.checked_shr(at).unwrap_or(0) {
            at += left.trailing_zeros();
            let run = (left >> left.trailing_zeros()).trailing_ones();
            let offset = (pages.start + u64::from(at)) * P;
            // The discard is a hint: the marks are clear already.
            let _ = device.submit(cpu, Operation::Discard { offset, length: u64::from(run) * P });
            at += run;
        }
    }

    /// The present kind of a page.
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
        let bytes = self.area(&reader).map_or(0, |area| area.pages * P);
        let page = PAGE_SIZE as u32;
        Geometry { bytes, minimum_block: page, preferred_block: page }
    }

    fn abilities(&self) -> Abilities {
        Abilities { discard: true, fast_zero: true, ..Abilities::default() }
    }

    /// Under [`Wait::No`] a read blocks if a page is on the area's device. A store blocks if it
    /// would have to write other pages back first, or go to the device itself.
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match operation {
            Operation::Read { offset, into } => self.read(context, offset, into),
            Operation::Write { offset, from } => self.write(context, offset, from),
            Operation::Discard { offset, length }
            | Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch } => {
                self.discard(context, offset, length)
            }
            Operation::WriteZeroes { offset, length, mode: ZeroMode::KeepAllocated } => {
                self.write_zeroes(context, offset, length)
            }
            // The data is swap space: nothing outlives this process.
            Operation::Flush => Ok(()),
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let (area, pages) = self.judge_for_long(cpu, offset, length)?;
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

/// The error of a write whose page neither the cache nor the device took.
fn error_of(reject: Reject) -> IoError {
    match reject {
        Reject::NoArea => IoError::NotReady,
        Reject::PoolLimit | Reject::MemcgLimit | Reject::Poor | Reject::Incompressible => {
            IoError::NoSpace
        }
        Reject::NoMemory | Reject::NoEntry => IoError::NoMemory,
        Reject::Disabled => IoError::NotReady,
    }
}
