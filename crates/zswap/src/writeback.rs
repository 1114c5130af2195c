//! Writeback: the oldest entries go to the devices of their areas.
//!
//! A page leaves the cache only after the device has it, so a failed write changes nothing. A page
//! may change while it is written. So its word is taken out of the index afterwards, and only if it
//! is still the same.
//!
//! A device that takes compressed pages ([`block::PackedPages`]) gets the objects as they are.

use alloc::sync::Arc;

use block::{BlockDevice, IoError, Job, Operation, Packed, PackedPages};
use sync::Reader;
use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE, Page};

use crate::area::{Area, BATCH};
use crate::counts::Count;
use crate::engine::Zswap;
use crate::memcg::Memcg;
use crate::outcome::{LoadError, Reclaimed, Work};
use crate::{Key, Word};

const P: u64 = PAGE_SIZE as u64;
/// The most entries of a list that are visited at a time.
const VISITS: u64 = 1024;

/// A page on its way to a device: locked, and copied to its place in a set.
struct Leaving {
    area: Arc<Area>,
    key: Key,
    word: Word,
    /// The codec and the length of what was copied; `None` if it is the page itself.
    packed: Option<(&'static str, usize)>,
}

/// Pages on their way to devices, in the order of their keys. Each page has its copy at its own
/// place in the set.
struct Batch {
    pages: [Option<Leaving>; BATCH],
    count: usize,
}

impl Zswap {
    /// Writes back at most `pages` of the oldest pages, and waits for the writes. A page that was
    /// read since it was stored or last visited is skipped once.
    pub fn reclaim(&self, cpu: Cpu, pages: u64) -> Reclaimed {
        let mut all = Reclaimed::default();
        while all.written < pages {
            let want = (pages - all.written).min(BATCH as u64) as usize;
            let Some(now) = self.evict(cpu, None, want) else { break };
            all.add(now);
            if now.written == 0 {
                break;
            }
        }
        all
    }

    /// Writes back one batch of the oldest pages, of `whose` or of all memcgs; `None` if all that
    /// may be on its way at once is so already. The calling thread is no reader and has no stream.
    /// It may hold locks of pages.
    pub(crate) fn evict(&self, cpu: Cpu, whose: Option<&Memcg>, want: usize) -> Option<Reclaimed> {
        let mut done = Reclaimed::default();
        let most = self.policy.writebacks_max();
        let Some((mut set, granted)) = self.evictors.take(want.min(BATCH), most) else {
            self.counts.add(cpu, Count::NoBuffer, 1);
            return None;
        };
        let mut batch = Batch { pages: [const { None }; BATCH], count: 0 };
        self.fill(cpu, whose, &mut set[..granted], (&mut batch, &mut done));
        self.write(cpu, &set, &mut batch, &mut done);
        self.evictors.give_back(set, granted, done.written);
        // The written pages are freed now, not at some later call.
        if done.written > 0 {
            self.quiesce(cpu);
        }
        Some(done)
    }

    /// Chooses pages, locks them and copies them.
    fn fill(
        &self,
        cpu: Cpu,
        whose: Option<&Memcg>,
        set: &mut [Page],
        (batch, done): (&mut Batch, &mut Reclaimed),
    ) {
        let reader = self.readers.enter(cpu);
        let mut chosen = [None; BATCH];
        let count = self.choose(&reader, cpu, whose, &mut chosen[..set.len()]);
        let chosen = &mut chosen[..count];
        chosen.sort_unstable_by_key(|found| found.map(|(key, _): (Key, Word)| key));
        for (key, word) in chosen.iter().flatten().copied() {
            // Each page anew: to expand a pack takes a while, and what is given up waits for it. An
            // entry that was reused since has another word.
            let _reading = self.retired.read(cpu);
            let leaving = self.lock_page(&reader, cpu, (key, word), &mut set[batch.count]);
            done.left += u64::from(leaving.is_none());
            if leaving.is_some() {
                batch.pages[batch.count] = leaving;
                batch.count += 1;
            }
        }
    }

    /// The oldest entries of all memcgs that may be written back. Each memcg has a share in
    /// proportion to its pages; Linux goes round its control groups.
    fn choose(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        whose: Option<&Memcg>,
        chosen: &mut [Option<(Key, Word)>],
    ) -> usize {
        let (mut count, want) = (0, chosen.len());
        let mut take = |memcg: &Memcg, want: usize, count: &mut usize| {
            let (lru, end, mut left) = (&memcg.0.lru, *count + want, memcg.0.lru.count());
            while *count < end && left > 0 {
                // No entry is reused meanwhile. What is given up waits for this, so it is not kept
                // for long.
                let _reading = self.retired.read(cpu);
                let most = left.min(VISITS);
                let wanted = end - *count;
                let visited = lru.oldest(&self.entries, &self.ages, (wanted, most), |word| {
                    chosen[*count] = Some((self.entries.key(word.number()), word));
                    *count += 1;
                });
                left -= visited;
                if visited == 0 {
                    break;
                }
            }
        };
        // Two rounds, because all entries may have been read since they were last visited.
        if let Some(memcg) = whose {
            for _ in 0..2 {
                if count == 0 && memcg.writeback() {
                    take(memcg, want, &mut count);
                }
            }
            return count;
        }
        let all = || self.all_memcgs(reader).filter(|memcg| memcg.writeback());
        let total: u64 = all().map(|memcg| memcg.0.lru.count()).sum();
        for _ in 0..2 {
            for memcg in all() {
                let share = (memcg.0.lru.count() * want as u64).div_ceil(total.max(1));
                let left = want - count;
                take(memcg, left.min(share as usize), &mut count);
            }
            if count > 0 {
                break;
            }
        }
        count
    }

    /// Locks a page and copies it to `copy`; `None` if it cannot be written back now.
    fn lock_page(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        (key, word): (Key, Word),
        copy: &mut Page,
    ) -> Option<Leaving> {
        let area = self.area_of(reader, key).filter(|area| area.device.is_some())?;
        if !area.try_lock_page(key.offset) {
            return None;
        }
        // A thread that took the page out of the index and saw no lock may write the page itself
        // from then on. Such a page is not found here. Another thread that takes it out sees the
        // lock and waits.
        let is_there = area.index.get(cpu, key.offset) == Some(word);
        if is_there && let Ok(packed) = self.copy_for(reader, cpu, (area, word), copy) {
            return Some(Leaving { area: area.clone(), key, word, packed });
        }
        area.unclaim(key.offset);
        None
    }

    /// Copies a page as the device of its area takes it. Returns the codec and the length; `None`
    /// if it is the page itself.
    fn copy_for(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        (area, word): (&Area, Word),
        copy: &mut Page,
    ) -> Result<Option<(&'static str, usize)>, LoadError> {
        let below = area.device.as_ref().and_then(|device| device.packed());
        let takes = |codec: &str| below.is_some_and(|below| below.takes(codec));
        let packed = below.and_then(|_| self.copy_packed(reader, word, &takes, copy));
        if packed.is_some() {
            return Ok(packed);
        }
        self.expand(reader, cpu, word, copy)?;
        let again = below.is_some() && self.entries.is_part(word.number());
        Ok(if again { self.pack_again(reader, cpu, &takes, copy) } else { None })
    }

    /// Writes a batch, and takes the written pages out of the cache.
    fn write(&self, cpu: Cpu, set: &[Page], batch: &mut Batch, done: &mut Reclaimed) {
        let mut first = 0;
        while first < batch.count {
            let area = batch.pages[first].as_ref().map(|leaving| leaving.area.clone());
            let same = |leaving: &Option<Leaving>| {
                leaving.as_ref().map(|leaving| leaving.key.swap) == area.as_ref().map(|a| a.swap)
            };
            let count = batch.pages[first..batch.count].iter().take_while(|l| same(l)).count();
            if let Some(area) = area {
                let pages = &mut batch.pages[first..first + count];
                self.write_to(cpu, &area, &set[first..first + count], pages, done);
            }
            first += count;
        }
    }

    fn write_to(
        &self,
        cpu: Cpu,
        area: &Area,
        set: &[Page],
        pages: &mut [Option<Leaving>],
        done: &mut Reclaimed,
    ) {
        let mut results = [Ok(()); BATCH];
        if let Some(device) = &area.device {
            self.count_asked(cpu, area, set.len() as i64);
            match device.packed() {
                Some(device) => write_packed(cpu, device, (set, pages), &mut results),
                None => write_pages(cpu, &**device, (set, pages), &mut results),
            }
            self.count_answered(cpu, area, set.len() as i64);
        }
        for (leaving, result) in pages.iter_mut().zip(results) {
            let Some(leaving) = leaving.take() else { continue };
            match result {
                Ok(()) => self.gone(cpu, &leaving, done),
                Err(_) => {
                    done.failed += 1;
                    // Some pages of the write may be there.
                    if !leaving.area.is_on_device(leaving.key.offset) {
                        leaving.area.forget(cpu, leaving.key.offset);
                    }
                    self.counts.add(cpu, Count::WritebackFailed, 1);
                }
            }
            leaving.area.unclaim(leaving.key.offset);
        }
    }

    /// Completes the writeback of a page that the device has now.
    fn gone(&self, cpu: Cpu, leaving: &Leaving, done: &mut Reclaimed) {
        let Leaving { area, key, word, .. } = leaving;
        area.set_on_device(key.offset);
        if !area.index.remove_if(cpu, key.offset, *word) {
            // The page was stored anew or invalidated meanwhile: the copy on the device is out of
            // date.
            area.clear_on_device(cpu, key.offset);
            done.left += 1;
            return;
        }
        done.written += 1;
        self.counts.add(cpu, Count::WrittenBack, 1);
        let reader = self.readers.enter(cpu);
        if let Some(memcg) = self.memcg_of(&reader, word.number()) {
            memcg.count_written(cpu, 1);
        }
        self.dispose(&reader, cpu, *word);
    }

    /// One step of the background thread, if the pool came near its limit and has not shrunk to the
    /// accept threshold since: compacts the pool if that alone lets it shrink so far, or else
    /// writes back a batch. Pages that are written back leave holes, so a compaction gains more
    /// after that.
    pub fn work(&self, cpu: Cpu) -> Work {
        if !self.is_crowded() {
            self.unmovable.store(0, Ordering::Relaxed);
            return Work::Idle;
        }
        let frames = self.pool().frames();
        if self.compacts_for(cpu, frames.saturating_sub(self.policy.accept_frames())) {
            return if self.is_crowded() { Work::Again } else { Work::Idle };
        }
        let written = self.evict(cpu, None, BATCH).map_or(0, |done| done.written);
        match (self.is_crowded(), written) {
            (false, _) => Work::Idle,
            (true, 0) => Work::Later,
            (true, _) => Work::Again,
        }
    }

    fn is_crowded(&self) -> bool {
        let frames = self.pool().frames();
        if frames > self.policy.wake_frames() {
            self.evicting.store(true, Ordering::Relaxed);
        } else if frames <= self.policy.accept_frames() {
            self.evicting.store(false, Ordering::Relaxed);
        }
        self.evicting.load(Ordering::Relaxed)
    }

    /// The number of pages whose writeback would relieve the system's memory: the pages in the
    /// cache, less those recently read from devices, because such reads show that too much was
    /// written back. The number is lower if pages compress well, because each page frees little
    /// then. After Nhat Pham, linux-mm, "zswap: shrinks zswap pool based on memory pressure", 2023.
    /// This call clears the count of recent reads. 0 unless `shrinker_enabled`.
    #[must_use]
    pub fn shrinkable(&self) -> u64 {
        if !self.policy.shrinker_enabled() {
            return 0;
        }
        let reader = self.readers.enter(Cpu(0));
        let shrinkable = self.all_memcgs(&reader).filter(|memcg| memcg.writeback()).map(|memcg| {
            let count = memcg.0.lru.count();
            count - memcg.take_read_back(count).min(count)
        });
        self.relief(shrinkable.sum())
    }

    /// The memory that becomes free, in pages, if `pages` pages are written back that take as much
    /// of the pool as all do on average. Rounded down.
    #[must_use]
    pub fn relief(&self, pages: u64) -> u64 {
        let all = self.counts.sum(Count::Pages);
        let frames = self.pool().frames().min(all);
        match all {
            0 => 0,
            _ => (u128::from(pages) * u128::from(frames) / u128::from(all)) as u64,
        }
    }

    /// Writes back at most `pages` because the system's memory is short. Pages in use are skipped.
    /// Does nothing unless `shrinker_enabled`.
    pub fn shrink(&self, cpu: Cpu, pages: u64) -> Reclaimed {
        match self.policy.shrinker_enabled() {
            true => self.reclaim(cpu, pages),
            false => Reclaimed::default(),
        }
    }
}

/// Writes pages as they were copied, and sets the result of each.
fn write_packed(
    cpu: Cpu,
    device: &dyn PackedPages,
    (set, pages): (&[Page], &[Option<Leaving>]),
    results: &mut [Result<(), IoError>],
) {
    static ZEROES: Page = [0; PAGE_SIZE];
    let mut packed = [const { Packed::whole(0, &ZEROES) }; BATCH];
    let packed = &mut packed[..set.len()];
    for (packed, (copy, leaving)) in packed.iter_mut().zip(set.iter().zip(pages.iter().flatten())) {
        let page = leaving.key.offset;
        *packed = match leaving.packed {
            Some((codec, length)) => {
                Packed { codec: Some(codec), bytes: &copy[..length], ..Packed::whole(page, copy) }
            }
            None => Packed::whole(page, copy),
        };
    }
    device.write_packed(cpu, packed);
    results.iter_mut().zip(packed).for_each(|(result, packed)| *result = packed.result);
}

/// Writes pages, neighbours on the device together, and sets the result of each.
fn write_pages(
    cpu: Cpu,
    device: &dyn BlockDevice,
    (set, pages): (&[Page], &[Option<Leaving>]),
    results: &mut [Result<(), IoError>],
) {
    let offset = |n: usize| pages[n].as_ref().map_or(0, |leaving| leaving.key.offset);
    let (mut at, mut ends) = (0, [0usize; BATCH]);
    let mut jobs: [Job<'_>; BATCH] = core::array::from_fn(|n| {
        let start = at;
        while at < pages.len() && (at == start || offset(at) == offset(at - 1) + 1) {
            at += 1;
        }
        ends[n] = at;
        Job::new(match at > start {
            true => {
                Operation::Write { offset: offset(start) * P, from: set[start..at].as_flattened() }
            }
            false => Operation::Flush,
        })
    });
    let count = ends.iter().position(|end| *end == pages.len()).map_or(0, |last| last + 1);
    device.submit_all(cpu, &mut jobs[..count]);
    let mut start = 0;
    for (job, end) in jobs.iter().zip(ends).take(count) {
        results[start..end].fill(job.result);
        start = end;
    }
}
