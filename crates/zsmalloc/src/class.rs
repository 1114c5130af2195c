//! Size classes: the slot size, and the number of slots and frames of a chain.

use alloc::{boxed::Box, vec::Vec};

use units::PAGE_SIZE;

use crate::handle::MAX_SLOTS;

/// The longest chain, in frames (Linux: `CONFIG_ZSMALLOC_CHAIN_SIZE`, 4 to 16, default 8). A longer
/// chain can be divided into large slots of more sizes, so that less of a slot is unused.
pub const CHAIN_MAX: usize = 16;
/// The distance in bytes between the sizes that classes are laid out for, before they are merged
/// (Linux: 16). A smaller step wastes less in slots and more in frames that are not full.
const STEP: usize = 24;
/// The smallest slot: one frame of such slots is a full zspage.
const SLOT_MIN: usize = PAGE_SIZE / MAX_SLOTS;

/// A page that compresses to more bytes than this saves no memory, because the next class holds
/// whole pages. It is better stored uncompressed. At this size 16 objects fit into 15 frames.
pub const RAW_THRESHOLD: usize = (CHAIN_MAX - 1) * PAGE_SIZE / CHAIN_MAX;

/// A class of objects of up to `slot` bytes, with `slots` of them in `frames` frames.
#[derive(Clone, Debug)]
pub struct SizeClass {
    /// Bytes of a slot.
    pub slot: usize,
    /// Frames of a complete chain.
    pub frames: usize,
    /// Slots of a complete chain.
    pub slots: usize,
    /// For each frame of the chain, the slots that lie in it wholly or in part.
    pub(crate) in_frame: [u128; CHAIN_MAX],
}

impl SizeClass {
    fn new(frames: usize, slots: usize) -> SizeClass {
        let slot = frames * PAGE_SIZE / slots;
        let mut in_frame = [0u128; CHAIN_MAX];
        for n in 0..slots {
            let (first, last) = (n * slot / PAGE_SIZE, (n * slot + slot - 1) / PAGE_SIZE);
            for slots_in_it in &mut in_frame[first..=last] {
                *slots_in_it |= 1 << n;
            }
        }
        SizeClass { slot, frames, slots, in_frame }
    }

    /// The offset of slot `n` in the chain, in bytes.
    #[inline]
    pub(crate) const fn offset_of(&self, n: usize) -> usize {
        n * self.slot
    }

    /// The first and the last frame of slot `n`. They are the same frame or neighbours.
    #[inline]
    pub(crate) const fn frames_of(&self, n: usize) -> (usize, usize) {
        (n * self.slot / PAGE_SIZE, (n * self.slot + self.slot - 1) / PAGE_SIZE)
    }

    /// Every slot of a complete chain.
    #[inline]
    pub(crate) const fn all_slots(&self) -> u128 {
        if self.slots == 128 { u128::MAX } else { (1 << self.slots) - 1 }
    }
}

/// The classes of a pool, and the table from a size to its class.
pub struct SizeClasses {
    classes: Box<[SizeClass]>,
    by_size: Box<[u16; PAGE_SIZE + 1]>,
}

impl Default for SizeClasses {
    fn default() -> SizeClasses {
        SizeClasses::new()
    }
}

impl SizeClasses {
    /// Lays out the classes for sizes from a page down in equal steps. Each size gets
    /// the chain that wastes least of its frames, and among equals the longest, because it needs
    /// the fewest zspages. Sizes with the same number of slots in the same chain are one class,
    /// whose slot is as large as the chain allows.
    #[must_use]
    pub fn new() -> SizeClasses {
        let mut shapes: Vec<(usize, usize)> = Vec::new();
        for size in (SLOT_MIN..=PAGE_SIZE).rev().step_by(STEP) {
            let shape = best_shape(size);
            if shapes.last() != Some(&shape) {
                shapes.push(shape);
            }
        }
        let mut classes: Vec<SizeClass> =
            shapes.into_iter().map(|(frames, slots)| SizeClass::new(frames, slots)).collect();
        classes.sort_by_key(|class| class.slot);
        classes.dedup_by_key(|class| class.slot);
        let by_size = (0..=PAGE_SIZE)
            .map(|size| classes.partition_point(|class| class.slot < size) as u16)
            .collect::<Box<[u16]>>();
        let by_size = match by_size.try_into() {
            Ok(table) => table,
            Err(_) => unreachable!("the table has an entry for each size up to a page"),
        };
        SizeClasses { classes: classes.into(), by_size }
    }

    /// The number of the class for objects of `size` bytes, which is at most a page.
    #[inline]
    #[must_use]
    pub fn index_of(&self, size: usize) -> usize {
        usize::from(self.by_size[size])
    }

    /// The class with number `index`.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> &SizeClass {
        &self.classes[index]
    }

    /// The number of classes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.classes.len()
    }

    /// A number that differs if the classes do: a descriptor holds the number of a class.
    pub(crate) fn mark(&self) -> u32 {
        let shape = |class: &SizeClass| [class.slot, class.frames, class.slots];
        let all = self.classes.iter().flat_map(shape);
        all.fold(0x811c_9dc5, |mark, n| (mark ^ n as u32).wrapping_mul(0x0100_0193)) | 1
    }

    /// All classes, the smallest slots first.
    pub fn iter(&self) -> impl Iterator<Item = &SizeClass> {
        self.classes.iter()
    }
}

/// The frames and slots of the chain that wastes the smallest part of its frames on slots of
/// `size`.
fn best_shape(size: usize) -> (usize, usize) {
    let waste = |frames: usize| {
        let slots = (frames * PAGE_SIZE / size).min(MAX_SLOTS);
        (frames * PAGE_SIZE - slots * size, slots)
    };
    let mut best = 1;
    for frames in 2..=CHAIN_MAX {
        // Compares fractions of the chain: waste / frames.
        if waste(frames).0 * best <= waste(best).0 * frames {
            best = frames;
        }
    }
    (best, waste(best).1)
}
