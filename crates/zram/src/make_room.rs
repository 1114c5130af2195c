//! Room for a write to a device at its `mem_limit`: see [`WhenFull`].
//!
//! The writer makes the room itself, as one that stores into a full cache of swap areas does. So
//! there is nobody whom it waits for but another writer that does the same, and the wait ends when
//! no page can move. It is no reader meanwhile, and a thread that serves other requests too never
//! comes here: its request is put off as one whose page is on the backing device.
//!
//! This takes memory for lists of pages. A disk that is swap space of its own system must not wait
//! for that, so `wait` and `spill` are not for it.

use alloc::{sync::Arc, vec::Vec};

use block::{Context, IoError, Operation, Wait};
use control::{ControlError, Errno};
use pagelog::{Backed, PageLog, RUN_PAGES, Run};
use units::{Cpu, PAGE_SIZE, Page, pages_for};

use crate::backing::Backing;
use crate::blocks::BackingBlocks;
use crate::counts::Count;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::page_ops::Select;
use crate::post_processing::{Buffer, Recompress, Writeback};
use crate::resources::Design;
use crate::settings::Settings;
use crate::when_full::{Hand, Room, WhenFull};

/// The CPU of a thread that goes through all pages; any CPU will do.
const CPU: Cpu = Cpu(0);
/// How often room is made for one page. Others may take it each time.
const ROUNDS: u32 = 64;
/// Times of last use are compared among so many times the pages that move.
const SAMPLES: usize = 4;
/// Frames that a compaction must be worth while pages can move without it.
const WORTH: u64 = 32;
/// Pages that are compressed again at a time.
const AGAIN: u64 = 256;
/// Frames that a page may need at most, and that others may take meanwhile.
const FRAMES: u64 = 2;
const MARGIN: u64 = 8;

/// The patience of a write with one page.
#[derive(Default)]
pub(crate) struct Patience {
    page: u64,
    rounds: u32,
    /// The changes that all writers had made when room was asked for the last time.
    changes: u64,
}

impl<D: Design> Disk<D> {
    /// Sets what a write does when the device is at its `mem_limit`, from now on.
    ///
    /// # Errors
    /// `ENODEV` for [`WhenFull::Spill`] if the device has a size and no backing device.
    pub fn set_when_full(&self, policy: WhenFull) -> Result<(), ControlError> {
        let settings = self.settings.lock();
        if self.bytes() != 0 {
            self.refuse_to_spill(policy, &settings)?;
        }
        self.full.set_policy(policy);
        self.limit_pool(&settings, Room::Stores);
        Ok(())
    }

    /// Limits the pool by `mem_limit`.
    pub(crate) fn limit_pool(&self, settings: &Settings, room: Room) {
        let frames = self.full.limit(pages_for(settings.mem_limit), room);
        self.with_engine(|engine| engine.pool().set_limit(frames));
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
        self.full.policy()
    }

    /// Checks, before anything changes, that a thread that must not wait will not have to make room
    /// for these pages.
    ///
    /// # Errors
    /// `WouldBlock` if it might have to.
    #[inline]
    pub(crate) fn look_for_room(
        &self,
        engine: &Engine<D>,
        context: Context,
        pages: u64,
    ) -> Result<(), IoError> {
        if context.wait == Wait::Yes || self.when_full() == WhenFull::Fail {
            return Ok(());
        }
        let (limit, most) = (engine.pool().limit(), pages.saturating_mul(FRAMES) + MARGIN);
        let is_near = limit != 0 && engine.pool().frames().saturating_add(most) > limit;
        if is_near { Err(IoError::WouldBlock) } else { Ok(()) }
    }

    /// Makes room for page `index`, for which there was none. The caller tries again then. The
    /// calling thread may wait, and is no reader, neither of the device nor of the backing device.
    ///
    /// # Errors
    /// `NoSpace` if nothing can move, or a write is to fail.
    #[cold]
    pub(crate) fn make_room(&self, index: u64, patience: &mut Patience) -> Result<(), IoError> {
        if self.when_full() == WhenFull::Fail {
            return Err(IoError::NoSpace);
        }
        if patience.page != index {
            *patience = Patience { page: index, ..Patience::default() };
        }
        patience.rounds += 1;
        if patience.rounds > ROUNDS {
            return Err(IoError::NoSpace);
        }
        let changes = self.counts.sum(Count::Writes) + self.counts.sum(Count::NotifyFree);
        // Pages that others use do not move, but what they replace comes free.
        let others_go_on = patience.rounds == 1 || changes != patience.changes;
        patience.changes = changes;
        let seen = self.full.rounds();
        let mut hand = self.full.hand.lock();
        if self.full.rounds() != seen {
            #[cfg(any(shuttle, asan))]
            if self.resources.without.room_of_others {
                return Err(IoError::NoSpace);
            }
            // Another writer made room meanwhile.
            return Ok(());
        }
        match self.move_some(&mut hand) {
            true => self.full.count_round(),
            false if others_go_on => {}
            false => return Err(IoError::NoSpace),
        }
        Ok(())
    }

    /// Moves some pages out of memory, or to smaller objects. Returns whether any moved.
    fn move_some(&self, hand: &mut Hand) -> bool {
        let Some(engine) = self.engine() else { return false };
        let moved = self.write_some(&engine, hand) || self.shrink_some(&engine);
        // Objects that leave make holes. Frames come free of their own when neighbours leave.
        let gain = engine.pool().compactable();
        if gain >= if moved { WORTH } else { 1 } {
            return engine.compact(CPU, self.pages()) > 0 || moved;
        }
        moved
    }

    /// Writes a batch of pages back, the hand's next ones. Returns whether any was written: a
    /// limit, a full device and one that fails let none be written.
    fn write_some(&self, engine: &Engine<D>, hand: &mut Hand) -> bool {
        if engine.backing().is_none() {
            return false;
        }
        let written = || self.counts.sum(Count::WritebackWrites);
        let before = written();
        let Some(pages) = self.next_pages(engine, hand) else { return false };
        // The error of a part of the pages does not matter if others moved.
        let _ = self.writeback(&Writeback { select: None, pages });
        written() > before
    }

    /// The hand's next pages that lie in memory, those that were not used for the longest time if
    /// the device knows that. `None` without memory.
    fn next_pages(&self, engine: &Engine<D>, hand: &mut Hand) -> Option<Vec<(u64, u64)>> {
        let batch = match engine.backing().map(|backing| &**backing) {
            // What is written together ends with a whole block.
            Some(Backing::Log(_)) => RUN_PAGES,
            _ => self.writeback_batch() as usize,
        };
        let pages = self.pages();
        let most = if self.tracks_access() { SAMPLES * batch } else { batch };
        let mut found: Vec<(u32, usize)> = Vec::new();
        found.try_reserve_exact(most).ok()?;
        let begin = if *hand < pages { *hand } else { 0 };
        'lap: for range in [begin..pages, 0..begin] {
            let mut index = engine.next_touched(range.start, range.end);
            while index < range.end {
                if Select::Any.admits(engine.peek(index)) {
                    found.push((engine.last_access(index).unwrap_or(0), index));
                }
                *hand = index + 1;
                if found.len() == most {
                    break 'lap;
                }
                index = engine.next_touched(index + 1, range.end);
            }
        }
        found.sort_unstable();
        let mut named = Vec::new();
        named.try_reserve_exact(batch).ok()?;
        named.extend(found.iter().take(batch).map(|(_, index)| (*index as u64, *index as u64)));
        Some(named)
    }

    /// Makes objects of some pages smaller: by the tiers if pages move by themselves, or with the
    /// codec of priority 1 if there is one. Returns whether objects are smaller now.
    fn shrink_some(&self, engine: &Engine<D>) -> bool {
        let is_auto = self.auto();
        if !is_auto && self.chosen_algorithms()[1..].iter().all(Option::is_none) {
            return false;
        }
        self.limit_pool(&self.settings.lock(), Room::All);
        let shrunk = if is_auto { self.press_tiers(engine) } else { self.compress_some() };
        self.limit_pool(&self.settings.lock(), Room::Stores);
        if shrunk {
            // The smaller objects leave holes where the larger ones were.
            engine.compact(CPU, self.pages());
        }
        shrunk
    }

    /// Compresses some pages again. Returns whether their objects are smaller now.
    fn compress_some(&self) -> bool {
        let objects = || self.counts.sum(Count::ComprBytes);
        let before = objects();
        let _ = self.recompress(&Recompress { max_pages: Some(AGAIN), ..Recompress::default() });
        objects() < before
    }

    /// Writes a page for which there is no room to the backing device, at once. The calling thread
    /// may wait and is no reader.
    ///
    /// # Errors
    /// `NoSpace` without a backing device, if it is full or its limit is used up; the device's own
    /// error if it fails; `OutOfRange` and `NotReady` if the device was changed meanwhile. The page
    /// has its old contents then.
    #[cold]
    pub(crate) fn spill(
        &self,
        engine: &Arc<Engine<D>>,
        cpu: Cpu,
        index: u64,
        page: &Page,
    ) -> Result<(), IoError> {
        let backing = engine.backing().ok_or(IoError::NoSpace)?;
        let (granted, charged) = self.spend(1);
        if granted == 0 {
            return Err(IoError::NoSpace);
        }
        let refund = || {
            if charged {
                self.refund(1)
            }
        };
        let written = match &**backing {
            Backing::Pages(blocks) => self.spill_to_block((engine, blocks), cpu, index, page),
            Backing::Log(log) => self.spill_to_log((engine, log), cpu, index, page),
        };
        written.inspect_err(|_| refund())?;
        self.counts.add(cpu, Count::WritebackWrites, 1);
        Ok(())
    }

    /// Writes a page to a free block, and lets its slot name the block.
    fn spill_to_block(
        &self,
        (engine, blocks): (&Arc<Engine<D>>, &BackingBlocks),
        cpu: Cpu,
        index: u64,
        page: &Page,
    ) -> Result<(), IoError> {
        let block = blocks.take().ok_or(IoError::NoSpace)?;
        let buffer = Buffer(*page);
        let offset = u64::from(block) * PAGE_SIZE as u64;
        let write = Operation::Write { offset, from: &buffer.0 };
        let written = blocks.device().perform(Context::waiting(cpu), write);
        let place = Backed { block, ..UNCOMPRESSED };
        let stored = written.and_then(|()| self.commit_spilled(engine, cpu, index, place));
        // No slot named the block.
        stored.inspect_err(|_| blocks.give_back(block))
    }

    /// Writes a page to the log, as it is, and lets its slot name the place. If it were compressed,
    /// its codec would have to stay until then.
    fn spill_to_log(
        &self,
        (engine, log): (&Arc<Engine<D>>, &PageLog),
        cpu: Cpu,
        index: u64,
        page: &Page,
    ) -> Result<(), IoError> {
        let mut run = Run::new(1).map_err(|_| IoError::NoMemory)?;
        *run.page() = *page;
        run.add(index as usize, UNCOMPRESSED);
        let mut stored = Err(IoError::Failed);
        let commit = |run: &mut Run| {
            for entry in run.entries_mut() {
                let Some(place) = entry.written() else { continue };
                stored = self.commit_spilled(engine, cpu, index, place);
                entry.is_named = stored.is_ok();
            }
        };
        pagelog::write((log, &**engine), cpu, &mut run, self.now(), commit)?;
        stored
    }

    fn commit_spilled(
        &self,
        engine: &Arc<Engine<D>>,
        cpu: Cpu,
        index: u64,
        place: Backed,
    ) -> Result<(), IoError> {
        self.begin(Context::waiting(cpu), (index, 1), |request| {
            if !Arc::ptr_eq(request.shared, engine) {
                return Err(IoError::NotReady);
            }
            request.engine.store_backed(cpu, index as usize, place);
            Ok(())
        })?
    }
}

/// The form of a page that is written as it is.
const UNCOMPRESSED: Backed = Backed { block: 0, length: PAGE_SIZE as u16, codec: 0, huge: false };
