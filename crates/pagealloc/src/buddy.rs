//! The free blocks of a zone, split and merged buddy-wise (Knuth, The Art of Computer Programming
//! 1, 2.5; the orders are Linux's).
//!
//! Linux threads its free lists through the frames. Here each order has a set of bits instead
//! ([`crate::bits`]), for three reasons: a free frame is never touched, so that a released or
//! fresh one stays free of cost; the buddy's state is one bit to read; and the *lowest* free block
//! that fits is as quick to find as any, across all orders that would do. Taking the lowest keeps
//! what is lent dense at low addresses, so that high 2 MiB blocks come free and can be given back
//! to the operating system. The bits cost a 16 384th of the memory they describe.
//!
//! Each 2 MiB block also has a word here: how many of its frames are taken, whether it is
//! *resident* (was taken from since it was last given back to the system), whether it's been
//! settled, and whether it's been *trimmed*: what is free of it has been given back to the system.
//! A block that is resident and wholly free is *idle*.

use sync::atomic::{AtomicU32, Ordering};
use units::{FRAMES_PER_BLOCK, Frame, MAX_ORDER, Order};

use crate::bits::Bits;
use crate::{LazyTable, NoMemory, World};

pub(crate) const ORDERS: usize = MAX_ORDER as usize + 1;
/// How many free blocks a 2 MiB block can be in that is not free as a whole: every other frame.
pub(crate) const PIECES: usize = FRAMES_PER_BLOCK as usize / 2;
/// The order of a 2 MiB block.
const BLOCK_ORDER: u8 = FRAMES_PER_BLOCK.trailing_zeros() as u8;
/// The set of idle blocks follows the sets of free blocks.
const IDLE: usize = ORDERS;
/// No frame has this number: there are at most 2^32 - 1.
const NONE: u32 = u32::MAX;
/// How many blocks may wait for being settled. One more is forgotten, which only costs speed.
const FULL_BLOCKS: usize = 8;

/// The word of a 2 MiB block; all zeroes when fresh.
mod word {
    /// Frames taken: lent, or in a lane's stock, or all of them while the block is being released.
    pub const TAKEN: u32 = 0x3ff;
    pub const RESIDENT: u32 = 1 << 16;
    pub const SETTLED: u32 = 1 << 17;
    pub const LEAVING: u32 = 1 << 18;
    pub const TRIMMED: u32 = 1 << 19;
}

/// Something that takes a system call and is therefore done without the zone's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chore {
    /// Release this block, then tell [`Buddy::released`].
    Release(u32),
    /// Settle this block.
    Settle(u32),
}

/// What is free, and what may be released. The zone keeps it under its lock.
pub(crate) struct Buddy {
    bits: Bits<{ ORDERS + 1 }>,
    blocks: LazyTable<AtomicU32>,
    capacity: u32,
    managed: u32,
    settle: bool,
    free_blocks: [u64; ORDERS],
    /// The lowest free block of each order, or [`NONE`].
    first: [u32; ORDERS],
    taken: u64,
    idle: u32,
    leaving: u32,
    returned: u64,
    full: [u32; FULL_BLOCKS],
    full_count: usize,
}

impl Buddy {
    /// Manages nothing yet, and at most `capacity` frames ever.
    ///
    /// # Errors
    /// [`NoMemory`] when the world has no addresses for the tables.
    pub fn new(world: &dyn World, capacity: u32, settle: bool) -> Result<Buddy, NoMemory> {
        let blocks = capacity.div_ceil(FRAMES_PER_BLOCK) as usize;
        let members = core::array::from_fn(|tree| match tree {
            IDLE => blocks,
            order => capacity as usize >> order,
        });
        Ok(Buddy {
            bits: Bits::new(world, members)?,
            blocks: LazyTable::new(world, blocks)?,
            capacity,
            managed: 0,
            settle,
            free_blocks: [0; ORDERS],
            first: [NONE; ORDERS],
            taken: 0,
            idle: 0,
            leaving: 0,
            returned: 0,
            full: [0; FULL_BLOCKS],
            full_count: 0,
        })
    }

    /// Frames managed so far: `0..managed()`.
    pub fn managed(&self) -> u32 {
        self.managed
    }

    /// Free blocks by order.
    pub fn free_blocks(&self) -> [u64; ORDERS] {
        self.free_blocks
    }

    /// Frames that were taken and not given back.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// 2 MiB blocks released since the beginning.
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// Manages `frames` more.
    pub fn extend(&mut self, frames: u32) {
        let end = self.managed + frames;
        assert!(end <= self.capacity, "{end} frames in a zone of {}", self.capacity);
        while self.managed < end {
            let fits = (end - self.managed).ilog2() as u8;
            let order = fits.min(self.managed.trailing_zeros() as u8).min(MAX_ORDER);
            self.put_in(self.managed, order);
            self.managed += 1 << order;
        }
    }

    /// Takes the lowest block of `order` out.
    pub fn take(&mut self, order: u8) -> Option<u32> {
        let (frame, found) = self.lowest(order)?;
        self.carve(frame, found, order);
        Some(frame)
    }

    /// Takes up to `into.len()` single frames out, the lowest, and tells how many.
    pub fn take_singles(&mut self, into: &mut [u32]) -> usize {
        let mut count = 0;
        while count < into.len() {
            let Some((frame, found)) = self.lowest(0) else { break };
            let order = found.min((into.len() - count).ilog2() as u8);
            self.carve(frame, found, order);
            for (place, frame) in into[count..].iter_mut().zip(frame..frame + (1 << order)) {
                *place = frame;
            }
            count += 1 << order;
        }
        count
    }

    /// Takes a block back and merges it with what is free beside it. It may be a part of a block
    /// that was taken, or made of several.
    pub fn give(&mut self, frame: u32, order: u8) {
        self.put_in(frame, order);
        self.taken -= 1 << order;
        for (block, frames) in parts(frame, order) {
            let entry = self.blocks.get(block as usize);
            let value = (entry.load(Ordering::Relaxed) - frames) & !word::TRIMMED;
            entry.store(value, Ordering::Relaxed);
            if value & word::TAKEN == 0 && self.is_whole(block) {
                self.bits.insert(IDLE, block as usize);
                self.idle += 1;
            }
        }
    }

    /// Whether [`Buddy::chore`] would find something to do.
    #[inline]
    pub fn has_chores(&self, keep: u32) -> bool {
        self.idle > keep || self.full_count > 0
    }

    /// The next thing that needs a system call. At most `keep` idle blocks are left alone; the
    /// highest one is released first. A block to be released is taken out of the free blocks.
    pub fn chore(&mut self, keep: u32) -> Option<Chore> {
        while let Some(count) = self.full_count.checked_sub(1) {
            self.full_count = count;
            let entry = self.blocks.get(self.full[count] as usize);
            // It may have been given back in the meantime, even released.
            let value = entry.load(Ordering::Relaxed);
            if value & word::TAKEN == FRAMES_PER_BLOCK && value & word::RESIDENT != 0 {
                return Some(Chore::Settle(self.full[count]));
            }
            entry.store(value & !word::SETTLED, Ordering::Relaxed);
        }
        if self.idle <= keep {
            return None;
        }
        let block = self.bits.last(IDLE)? as u32;
        let frame = block * FRAMES_PER_BLOCK;
        if self.bits.contains(BLOCK_ORDER as usize, block as usize) {
            self.remove(frame, BLOCK_ORDER);
        } else {
            self.remove(frame & !(2 * FRAMES_PER_BLOCK - 1), MAX_ORDER);
            self.insert(frame ^ FRAMES_PER_BLOCK, BLOCK_ORDER);
        }
        self.bits.remove(IDLE, block as usize);
        self.idle -= 1;
        self.leaving += 1;
        let leaving = word::LEAVING | FRAMES_PER_BLOCK;
        self.blocks.get(block as usize).store(leaving, Ordering::Relaxed);
        Some(Chore::Release(block))
    }

    /// This block's memory has been given back to the system: it is free and fresh.
    pub fn released(&mut self, block: u32) {
        self.blocks.get(block as usize).store(0, Ordering::Relaxed);
        self.leaving -= 1;
        self.returned += 1;
        self.put_in(block * FRAMES_PER_BLOCK, BLOCK_ORDER);
    }

    /// Takes all that is free of a 2 MiB block out, if that has memory and some of it is taken, and
    /// tells how many blocks went into `into`. They are to be released, and then given back to
    /// [`Buddy::trimmed`].
    pub fn trim(&mut self, block: u32, into: &mut [(u32, u8); PIECES]) -> usize {
        let mut value = self.blocks.get(block as usize).load(Ordering::Relaxed);
        let taken = value & word::TAKEN;
        let wants = value & word::RESIDENT != 0 && value & (word::LEAVING | word::TRIMMED) == 0;
        if !wants || taken == 0 || taken == FRAMES_PER_BLOCK {
            return 0;
        }
        let (mut frame, mut count) = (block * FRAMES_PER_BLOCK, 0);
        let end = (frame + FRAMES_PER_BLOCK).min(self.managed);
        while frame < end {
            let free = (0..BLOCK_ORDER)
                .take_while(|order| frame.is_multiple_of(1 << order))
                .find(|order| self.bits.contains(*order as usize, frame as usize >> order));
            if let Some(order) = free {
                self.remove(frame, order);
                self.taken += 1 << order;
                value += 1 << order;
                into[count] = (frame, order);
                count += 1;
            }
            frame += 1 << free.unwrap_or(0);
        }
        // Should it fill up again, it is to be settled again.
        let value = value & !word::SETTLED;
        self.blocks.get(block as usize).store(value, Ordering::Relaxed);
        count
    }

    /// These pieces of a 2 MiB block have been given back to the system: they are free again.
    pub fn trimmed(&mut self, block: u32, pieces: &[(u32, u8)]) {
        for (frame, order) in pieces {
            self.give(*frame, *order);
        }
        let entry = self.blocks.get(block as usize);
        let value = entry.load(Ordering::Relaxed);
        // Others may have given the rest of it back meanwhile.
        if value & word::TAKEN != 0 {
            entry.store(value | word::TRIMMED, Ordering::Relaxed);
        }
    }

    /// Shows each free block to `see`.
    pub fn each_free(&self, see: &mut dyn FnMut(Frame, Order)) {
        for order in (0..=MAX_ORDER).filter_map(Order::new) {
            for index in self.bits.iter(usize::from(order.get())) {
                see(Frame((index << order.get()) as u32), order);
            }
        }
    }

    /// The lowest free block of `order` or more, and its own order.
    fn lowest(&self, order: u8) -> Option<(u32, u8)> {
        let (frame, order) = (order..=MAX_ORDER).map(|n| (self.first[n as usize], n)).min()?;
        (frame != NONE).then_some((frame, order))
    }

    /// Takes the free block `frame` of order `found` out, and puts back all but its first part.
    fn carve(&mut self, frame: u32, found: u8, order: u8) {
        self.remove(frame, found);
        for half in (order..found).rev() {
            self.insert(frame + (1 << half), half);
        }
        self.taken += 1 << order;
        for (block, frames) in parts(frame, order) {
            let entry = self.blocks.get(block as usize);
            let mut value = entry.load(Ordering::Relaxed);
            if value & word::TAKEN == 0 && value & word::RESIDENT != 0 && self.is_whole(block) {
                self.bits.remove(IDLE, block as usize);
                self.idle -= 1;
            }
            value = (value + frames) | word::RESIDENT;
            if self.settle
                && value & word::TAKEN == FRAMES_PER_BLOCK
                && value & word::SETTLED == 0
                && self.full_count < FULL_BLOCKS
            {
                value |= word::SETTLED;
                self.full[self.full_count] = block;
                self.full_count += 1;
            }
            entry.store(value, Ordering::Relaxed);
        }
    }

    /// Merges a block with its free buddies and puts the result in.
    fn put_in(&mut self, mut frame: u32, mut order: u8) {
        while order < MAX_ORDER {
            let buddy = frame ^ 1 << order;
            if !self.bits.contains(order as usize, buddy as usize >> order) {
                break;
            }
            self.remove(buddy, order);
            frame &= !(1 << order);
            order += 1;
        }
        self.insert(frame, order);
    }

    fn insert(&mut self, frame: u32, order: u8) {
        let first = &mut self.first[order as usize];
        *first = frame.min(*first);
        self.bits.insert(order as usize, frame as usize >> order);
        self.free_blocks[order as usize] += 1;
    }

    fn remove(&mut self, frame: u32, order: u8) {
        self.bits.remove(order as usize, frame as usize >> order);
        self.free_blocks[order as usize] -= 1;
        if self.first[order as usize] == frame {
            let first = self.bits.first(order as usize);
            self.first[order as usize] = first.map_or(NONE, |index| (index << order) as u32);
        }
    }

    /// Whether all frames of this 2 MiB block can exist; only such a block is ever released.
    fn is_whole(&self, block: u32) -> bool {
        block < self.capacity / FRAMES_PER_BLOCK
    }
}

/// The 2 MiB blocks that a block of frames lies in, and how many of its frames lie in each.
fn parts(frame: u32, order: u8) -> impl Iterator<Item = (u32, u32)> {
    let first = frame / FRAMES_PER_BLOCK;
    let count = (1 << order) / FRAMES_PER_BLOCK;
    (first..first + count.max(1)).map(move |block| (block, (1 << order).min(FRAMES_PER_BLOCK)))
}

mod check;
#[cfg(test)]
mod tests;
