//! Room for a write to a device at its `mem_limit`: see [`WhenFull`].
//!
//! The writer makes the room itself, as one that stores into a full cache of swap areas does, and
//! what it makes is its own: until its store is done, the pool is shut for other stores. They wait
//! for it, and make room in turn. The wait ends when no page can move. The writer is no reader
//! meanwhile, and a thread that serves other requests too never comes here: its request is put off
//! as one whose page is on the backing device.
//!
//! This takes memory for lists of pages. A disk that is swap space of its own system must not wait
//! for that, so `wait` and `spill` are not for it.

use alloc::vec::Vec;

use block::{Context, IoError, Wait};
use control::{ControlError, Errno};
use objects::Recompressed;
use sync::{Backoff, Reader};
use units::{PAGE_SIZE, pages_for};
use zsmalloc::{Pool, Room};

use crate::counts::{Count, Counts};
use crate::disk::{Disk, Hand, Moved, PERIOD, Seen, Settings, WhenFull};
use crate::engine::{Engine, Recompression, Select};
use crate::ops::batch::Batch;
use crate::resources::CPU;
use crate::tiering::{LOOKS, SAMPLES};

/// More than the size classes of a pool.
const CLASSES: usize = PAGE_SIZE / 16;
/// Frames that a page may need at most.
const FRAMES: u64 = 2;
/// How often a writer looks again for pages that can move where others used each of them.
const PATIENCE: u32 = 256;

/// While it lives, what comes free in a pool is for the thread that makes room.
struct Shut<'a>(&'a Pool);

impl<'a> Shut<'a> {
    fn new(pool: &'a Pool) -> Shut<'a> {
        pool.shut(true);
        Shut(pool)
    }
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.0.shut(false);
    }
}

impl Disk {
    /// Sets what a write does when the device is at its `mem_limit`, from now on.
    ///
    /// # Errors
    /// `ENODEV` for [`WhenFull::Spill`] if the device has a size and no backing device.
    pub fn set_when_full(&self, policy: WhenFull) -> Result<(), ControlError> {
        let settings = self.family().settings.lock();
        if self.bytes() != 0 {
            self.refuse_to_spill(policy, &settings)?;
        }
        self.family().full.set_policy(policy);
        self.limit_pool(&settings);
        Ok(())
    }

    /// Limits the pool by `mem_limit`.
    pub(crate) fn limit_pool(&self, settings: &Settings) {
        let limits = self.family().full.limits(pages_for(settings.mem_limit));
        self.with_engine(|engine| engine.pool().set_limits(limits));
    }

    /// Fails if pages are to go to a backing device that is not there.
    pub(crate) fn refuse_to_spill(
        &self,
        policy: WhenFull,
        settings: &Settings,
    ) -> Result<(), ControlError> {
        if policy != WhenFull::Spill || settings.backing.is_some() {
            return Ok(());
        }
        let message = alloc::format!(
            "{} has no backing device that pages could spill to; set backing_dev before its size, \
             or when_full to wait",
            self.name()
        );
        Err(ControlError::new(Errno::ENODEV, message))
    }

    /// What a write does when the device is at its `mem_limit`.
    #[must_use]
    pub fn when_full(&self) -> WhenFull {
        self.family().full.policy()
    }

    /// Checks, before anything changes, that a thread that must not wait will not have to make room
    /// for these pages.
    ///
    /// # Errors
    /// `WouldBlock` if it might have to.
    #[inline]
    pub(crate) fn look_for_room(
        &self,
        engine: &Engine,
        context: Context,
        pages: u64,
    ) -> Result<(), IoError> {
        if context.wait == Wait::Yes || self.when_full() == WhenFull::Fail {
            return Ok(());
        }
        // Meanwhile each other CPU may store a page.
        let pages = pages.saturating_add(self.resources.cpus as u64);
        let (pool, most) = (engine.pool(), pages.saturating_mul(FRAMES));
        let is_near = pool.frames().saturating_add(most) > pool.limit(Room::Open);
        if is_near { Err(IoError::WouldBlock) } else { Ok(()) }
    }

    /// Makes room until `store`, for which there was none, succeeds, fails otherwise, or no page
    /// can move; those that others use all the time cannot. The calling thread may wait, and is no
    /// reader, neither of the device nor of the backing device; in `store` it may be both.
    ///
    /// # Errors
    /// `NoSpace` if nothing can move, or a write is to fail; those of `store`.
    #[cold]
    pub(crate) fn make_room(
        &self,
        store: &mut dyn FnMut(Room) -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let family = self.family();
        let mut fits = |room| match store(room) {
            Err(IoError::NoSpace) if self.when_full() != WhenFull::Fail => None,
            done => Some(done),
        };
        // Of all writers that wait, one looks whether an operation has ended.
        let _turn = family.full.turn.lock();
        let (mut backoff, mut last) = (Backoff::new(), None);
        let mut hand = loop {
            if let Some(hand) = family.post.try_lock() {
                break hand;
            }
            // It may take hours, and frees memory meanwhile. The store may read the backing device,
            // so it is tried when something changed. What is not seen is noticed in a second.
            let seen = self.engine().map(|engine| self.seen(&engine));
            let now = Some((self.when_full(), self.now(), seen));
            if last != now {
                if let Some(done) = fits(Room::Open) {
                    return done;
                }
                last = now;
            }
            backoff.nap();
        };
        let mut fits = || fits(Room::Made);
        // Another writer may have made more room than it needed.
        if let Some(done) = fits() {
            return done;
        }
        let engine = self.engine().ok_or(IoError::NotReady)?;
        let pool = engine.pool();
        if engine.backing().is_none() && hand.in_vain == Some(self.seen(&engine)) {
            return Err(IoError::NoSpace);
        }
        let _shut = Shut::new(pool);
        // What others had begun before takes its room, and can move afterwards.
        self.readers.wait_for_readers();
        // What is kept for moves comes back before anything else is stored.
        let are_kept = || {
            let (frames, all) = (pool.frames(), pool.limit(Room::All));
            frames <= pool.limit(Room::Made) || frames > all
        };
        let (mut in_vain, mut backoff) = (0, Backoff::new());
        loop {
            let seen = self.seen(&engine);
            let is_known = hand.in_vain == Some(seen);
            let mut moved = self.write_some(&engine, &mut hand);
            if moved != Moved::Some && !is_known {
                moved = moved.max(self.make_smaller(&engine));
            }
            let mut done = if are_kept() { fits() } else { None };
            if done.is_none() {
                // What left made holes. If nothing did, a compaction that is under way ends first.
                let is_worth_it = moved == Moved::Nothing || pool.compactable() > 0;
                if !is_known && is_worth_it && engine.compact(CPU, self.reach()) > 0 {
                    moved = Moved::Some;
                }
                if moved == Moved::Nothing || are_kept() {
                    done = fits();
                }
            }
            if let Some(done) = done {
                return done;
            }
            if moved != Moved::Some {
                self.readers.wait_for_readers();
            }
            // What another thread has displaced, and frees when it goes on, cannot move.
            if moved == Moved::Some || pool.stats().objects < seen.objects {
                (in_vain, backoff) = (0, Backoff::new());
            } else if moved == Moved::Nothing || in_vain == PATIENCE {
                hand.in_vain = (moved == Moved::Nothing).then_some(seen);
                return Err(IoError::NoSpace);
            } else {
                in_vain += 1;
                backoff.nap();
            }
        }
    }

    /// What decides now whether pages in memory can move. Reads do not: what became no smaller has
    /// the same contents.
    fn seen(&self, engine: &Engine) -> Seen {
        let (mut changes, mut bytes) = (0u64, 0u64);
        let mut add = |counts: &Counts| {
            bytes = bytes.wrapping_add(counts.sum(Count::ComprBytes));
            // A page is counted after it has changed.
            let failed = counts.sum(Count::FailedWrites);
            let written = counts.sum(Count::Writes).wrapping_sub(failed);
            changes = changes.wrapping_add(written).wrapping_add(counts.sum(Count::NotifyFree));
        };
        add(&self.family().counts);
        engine.windows().each(add);
        let pool = engine.pool().stats();
        Seen {
            generation: self.family().generation(),
            changes,
            bytes,
            objects: pool.objects,
            frames: pool.frames,
            limit: engine.pool().limit(Room::All),
            auto: self.auto(),
            period: self.now() / PERIOD,
        }
    }

    /// Moves some pages to smaller objects.
    fn make_smaller(&self, engine: &Engine) -> Moved {
        let mut moved = Moved::Nothing;
        if self.auto() {
            // The tiers choose by age, so their moves leave holes everywhere. The other half of
            // what is kept for moves is for those that leave whole frames.
            let pool = engine.pool();
            let (stores, all) = (pool.limit(Room::Made), pool.limit(Room::All));
            let half = stores + all.saturating_sub(stores).div_ceil(2);
            let has_room = || pool.frames() < half;
            moved = self.press_tiers(engine, self.at_a_time(), &has_room);
        }
        if moved != Moved::Some {
            moved = moved.max(self.compress_some(engine));
        }
        moved
    }

    /// About how many pages, or groups, move at a time: as many as cost what a look at all pages
    /// does.
    fn at_a_time(&self) -> usize {
        (self.writeback_batch() as usize).max(self.reach() / LOOKS)
    }

    /// Writes the hand's next pages back. A limit, a full device and one that fails let none be
    /// written.
    fn write_some(&self, engine: &Engine, hand: &mut Hand) -> Moved {
        let Some(backing) = engine.backing() else { return Moved::Nothing };
        let most = self.at_a_time().next_multiple_of(backing.batch().unwrap_or(1));
        let samples = if self.tracks_access() { SAMPLES * most } else { most };
        let batch = Batch::new(self, engine, &**backing, None);
        let Ok(mut batch) = batch else { return Moved::Nothing };
        let end = self.reach().min(engine.capacity());
        let begin = if hand.next < end { hand.next } else { 0 };
        let mut lap = engine.touched(begin..end).chain(engine.touched(0..begin));
        loop {
            let pages = next_pages(engine, hand, &mut lap, samples).unwrap_or_default();
            for pages in pages.chunks(most) {
                let written = batch.write_all(pages, Select::Any);
                // The error of a part of the pages does not matter if others moved.
                match batch.moved {
                    Moved::Some => return Moved::Some,
                    _ if written.is_err() => return Moved::Nothing,
                    _ => {}
                }
            }
            if pages.is_empty() {
                return batch.moved;
            }
        }
    }

    /// Compresses some pages with the codecs of the priorities from 1 on, those of the largest size
    /// classes first: what they leave is close together.
    fn compress_some(&self, engine: &Engine) -> Moved {
        let chosen = self.chosen_algorithms();
        let is_there = |priority: &u8| chosen[usize::from(*priority)].is_some();
        let Some(last) = (1..chosen.len() as u8).rev().find(is_there) else {
            return Moved::Nothing;
        };
        let how = |priority| {
            let (select, threshold) = (Select::Any, 0);
            Recompression { priority, select, threshold, last: priority == last }
        };
        let class = |reader: &Reader<'_>, slot| {
            engine.wants(reader, slot, how(last)).map(|bytes| engine.pool().size_class(bytes))
        };
        let (all, most, mut moved) = (self.reach(), self.at_a_time(), Moved::Nothing);
        let mut below = CLASSES;
        while moved != Moved::Some && below > 0 {
            let mut pages = [0; CLASSES];
            for first in (0..all).step_by(LOOKS) {
                // The readers leave before long, for others wait for them.
                let reader = self.readers.enter(CPU);
                engine.each(first..all.min(first + LOOKS), |_, slot| {
                    if let Some(class) = class(&reader, slot) {
                        pages[class] += 1;
                    }
                });
            }
            let (mut from, mut left) = (below, 0);
            while left < most && from > 0 {
                from -= 1;
                left += pages[from];
            }
            left = left.min(most);
            let (mut reader, mut part) = (None, 0);
            for index in engine.touched(0..all) {
                if left == 0 {
                    break;
                }
                if index / LOOKS != part {
                    (reader, part) = (None, index / LOOKS);
                }
                let looking = reader.get_or_insert_with(|| self.readers.enter(CPU));
                let class = class(looking, engine.peek(index));
                if !class.is_some_and(|it| (from..below).contains(&it)) {
                    continue;
                }
                reader = None;
                for priority in (1..=last).filter(is_there) {
                    let reader = self.readers.enter(CPU);
                    match engine.recompress(&reader, CPU, index, how(priority)) {
                        Ok(Recompressed::Skipped | Recompressed::NoSmaller) => continue,
                        Ok(Recompressed::Done { .. }) => (left, moved) = (left - 1, Moved::Some),
                        Ok(Recompressed::InUse) => moved = moved.max(Moved::InUse),
                        // It is bad, or there is no frame for an object of its smaller size.
                        Err(_) => {}
                    }
                    break;
                }
            }
            below = from;
        }
        moved
    }
}

/// The hand's next pages of this lap that lie in memory, at most `most`: those first that were not
/// used for the longest time, if the device knows that. `None` without memory.
fn next_pages(
    engine: &Engine,
    hand: &mut Hand,
    lap: &mut dyn Iterator<Item = usize>,
    most: usize,
) -> Option<Vec<usize>> {
    let (mut found, mut pages): (Vec<(u32, usize)>, _) = (Vec::new(), Vec::new());
    found.try_reserve_exact(most).ok()?;
    for index in lap.filter(|index| Select::Any.admits(engine.peek(*index))).take(most) {
        found.push((engine.last_access(index).unwrap_or(0), index));
        hand.next = index + 1;
    }
    found.sort_unstable();
    pages.try_reserve_exact(found.len()).ok()?;
    pages.extend(found.iter().map(|(_, index)| *index));
    Some(pages)
}
