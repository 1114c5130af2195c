//! What a thread does that has time: ends lives, makes sparse groups anew, compresses what is not
//! read once more, moves objects together.

use alloc::vec::Vec;

use super::Values;
use crate::At;
use crate::index::END;
use crate::state::Apart;
use crate::word::Place;

/// A group takes as long as a look at so many buckets.
const LOOKS_FOR_ONE: usize = 64;

impl Values {
    /// Takes out values whose lives have ended, makes groups anew of which more than half is dead,
    /// recompresses what was not read ([`crate::Options::recompress`]), and compacts the pool if
    /// that gives much back. Looks at about `budget` buckets and groups, and goes on there in the
    /// next call. Returns whether there is more to do: a thread that has time should call it again
    /// then, and otherwise about each second. One call at a time does work; others return at once.
    pub fn upkeep(&self, at: At, budget: usize) -> bool {
        let Some(mut swept) = self.swept.try_lock() else { return false };
        let mut left = budget.max(1) as u64;
        while left > 0 && swept.place < END {
            swept.place = self.end_lives(at, swept.place);
            left -= 1;
        }
        let groups = self.groups.end();
        while left > 0 && swept.group < groups {
            let group = self.groups.get(swept.group).filter(|group| group.live > 0);
            if group.is_some_and(|group| group.earliest != 0 && group.earliest <= at.now) {
                self.take_apart(at, swept.group, Apart::Expire);
            }
            swept.group += 1;
            left -= 1;
        }
        let is_over = swept.place >= END && swept.group >= groups;
        if is_over {
            (swept.place, swept.group) = (0, 0);
        }
        drop(swept);
        let most = budget.div_ceil(LOOKS_FOR_ONE);
        let remade = self.remake_sparse(at, most);
        let recompresses = self.recompress(at, budget);
        while self.shrink(at.cpu) {}
        self.quiesce(at.cpu);
        if is_over {
            self.compacts_for(at.cpu, 0);
        }
        !is_over || remade == most || recompresses
    }

    /// Takes out the values of a bucket with heads of their own whose lives have ended. Returns the
    /// place of the next bucket.
    fn end_lives(&self, at: At, place: u64) -> u64 {
        let mut words = Vec::new();
        let next = {
            let reader = self.retired.read(at.cpu);
            let next = self.own.index.scan(place, &mut words);
            words.retain(|word| match word.place() {
                Place::Head(handle) if word.expires() => {
                    self.head_of(&reader, handle).is_over(at.now)
                }
                _ => false,
            });
            next
        };
        for word in words {
            let gone = self.take_from_all(at, word, |head, _| head.is_over(at.now));
            gone.into_iter().for_each(|gone| self.let_go(at.cpu, gone));
        }
        next
    }

    /// Makes up to `most` groups anew of which more than half is dead. Returns how many.
    pub(super) fn remake_sparse(&self, at: At, most: usize) -> usize {
        let mut made = 0;
        let groups = self.groups.end();
        let mut looked = 0;
        while made < most && looked < groups && self.groups.sparse() > 0 {
            let number = {
                let Some(mut swept) = self.swept.try_lock() else { return made };
                swept.sparse = if swept.sparse + 1 < groups { swept.sparse + 1 } else { 0 };
                swept.sparse
            };
            looked += 1;
            let group = self.groups.get(number);
            if group.is_some_and(|group| group.live > 0 && group.is_sparse()) {
                let taken = self.take_apart(at, number, Apart::Keep);
                made += 1;
                if taken.short {
                    break;
                }
            }
        }
        made
    }
}
