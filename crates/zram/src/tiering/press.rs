//! Moves down the tiers for a writer that needs memory at once.
//!
//! They are those of the pass in `walk`, with the same policy, mover and memory of pages, and
//! under the same lock. Neither ages nor the CPU time count.

use alloc::vec::Vec;

use sync::Reader;
use sync::atomic::Ordering;
use tiers::{Memory, Seen};
use zcomp::EXTENT_PAGES;

use crate::disk::Moved;
use crate::resources::CPU;
use crate::tiering::moves::{Group, Place, tier_of};
use crate::tiering::walk::{LOOKS, Looked, SAMPLES, TierWalk};

impl TierWalk {
    /// Moves pages down for one who needs memory at once, whatever their age and the CPU time: of
    /// the hand's next groups about `most`, those that were not used for the longest time. A page
    /// that became no smaller is not tried again until it is used. It ends before there is no room
    /// for a smaller object. The calling thread is no reader.
    pub(crate) fn press(
        &mut self,
        place: &Place<'_>,
        most: usize,
        has_room: &dyn Fn() -> bool,
    ) -> Moved {
        let Place { engine, pages, .. } = *place;
        self.mover.begin(place);
        let mut found: Vec<(u32, Group)> = Vec::new();
        if found.try_reserve_exact(SAMPLES * most).is_err() {
            return Moved::Nothing;
        }
        self.again = false;
        let end = pages.min(engine.capacity());
        let begin = if self.hand < end { self.hand } else { 0 };
        let before = self.saved();
        for range in [begin..end, 0..begin] {
            self.hand = range.start;
            while self.hand < range.end {
                found.clear();
                self.find_pressed(place, range.end, &mut found);
                found.sort_unstable_by_key(|(used, group)| (*used, group.first));
                for (n, (_, group)) in found.iter().enumerate() {
                    if !has_room() || n >= most && self.saved() > before {
                        break;
                    }
                    // Without a frame for an object of this size, others may move.
                    let _ = self.move_group(place, group);
                }
                if self.saved() > before {
                    return Moved::Some;
                }
                if !has_room() {
                    return Moved::Nothing;
                }
            }
        }
        if self.again { Moved::InUse } else { Moved::Nothing }
    }

    /// Finds the hand's next groups of which pages can move down, each with the second of its last
    /// use.
    fn find_pressed(&mut self, place: &Place<'_>, end: usize, found: &mut Vec<(u32, Group)>) {
        let Place { engine, readers, .. } = *place;
        let mut reader = readers.enter(CPU);
        let mut left = LOOKS;
        while self.hand < end && found.len() < found.capacity() {
            let index = engine.next_touched(self.hand, end);
            let mut group = Group::of(index, end);
            let mut used = 0;
            for index in index..group.end {
                let last = self.see_pressed(place, &reader, index, &mut group);
                used = used.max(last.unwrap_or(0));
            }
            group.settle();
            self.hand = group.end.max(index);
            if !group.is_empty() {
                found.push((used, group));
            }
            left = left.saturating_sub(EXTENT_PAGES);
            if left == 0 {
                // The readers leave before long, for others wait for them.
                drop(reader);
                (reader, left) = (readers.enter(CPU), LOOKS);
            }
        }
    }

    /// Looks at a page of a group for one who needs memory. Returns the second of its last use if
    /// it can move.
    fn see_pressed(
        &self,
        place: &Place<'_>,
        reader: &Reader<'_>,
        index: usize,
        group: &mut Group,
    ) -> Option<u32> {
        let Place { engine, now, .. } = *place;
        let slot = engine.peek(index);
        let tier = tier_of(engine, reader, slot)?;
        let memory = Memory::from_bits(self.memory.get(index).load(Ordering::Relaxed));
        let last_used = engine.last_access(index).unwrap_or(now);
        let seen = Seen { tier, last_used, memory };
        let verdict = self.policy.press(seen, now);
        let page = Looked { index, slot, seen };
        self.sort_in(engine, &page, &verdict, group).then_some(last_used)
    }
}
