//! The zspages of a class, in groups by fullness.

use pagealloc::LazyTable;
use sync::atomic::Ordering;

use crate::class::SizeClass;
use crate::zspage::{EMPTYING, NO_GROUP, Zspage};

/// Groups of zspages with a free slot in their frames, the emptiest first.
const PARTIAL: core::ops::RangeInclusive<u8> = 1..=8;
/// No free slot in its frames, and a frame is missing between them. Allocating that frame completes
/// the slots that lie partly in its neighbours.
pub(crate) const GAPPED: u8 = 9;
/// No free slot in its frames, and only the end of the chain is missing.
pub(crate) const GROWABLE: u8 = 10;
/// No free slot.
pub(crate) const FULL: u8 = 11;
const GROUPS: usize = 12;
const _: () = assert!(EMPTYING as usize == GROUPS);

/// The state of a class, changed under its lock. No zspage has number 0, which ends a list.
///
/// The lock is in front, so every word that a store or a free changes is in one cache line. After
/// another CPU's change, the line is transferred once.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ClassState {
    /// The first zspage of each group except `NO_GROUP`.
    heads: [u32; GROUPS - 1],
    /// A bit for each group that has a zspage.
    nonempty: u16,
    /// See [`Pool::shut`](crate::Pool::shut).
    pub(crate) is_shut: bool,
    /// Slots in use.
    pub(crate) objects: u32,
    /// Free slots in frames that are allocated, except those of zspages that are being emptied.
    pub(crate) holes: u32,
    /// Frames allocated.
    pub(crate) frames: u64,
    /// Zspages with frames.
    pub(crate) zspages: u64,
    /// The first zspage that is being emptied.
    pub(crate) emptying: u32,
    /// Objects of the zspages that are being emptied.
    pub(crate) leaving: u32,
}

const _: () = assert!(core::mem::offset_of!(ClassState, frames) <= 56);

/// The group of a zspage, from its used slots and the slots that its frames hold.
#[inline]
pub(crate) fn group_of(class: &SizeClass, used: u128, backed: u128) -> u8 {
    let holes = (backed & !used).count_ones();
    if holes > 0 {
        let used = used.count_ones();
        return 1 + (used * 8 / (used + holes)) as u8;
    }
    let missing = class.all_slots() & !backed;
    if missing == 0 {
        return FULL;
    }
    let end = class.all_slots() & u128::MAX << missing.trailing_zeros();
    if missing == end { GROWABLE } else { GAPPED }
}

impl ClassState {
    /// The fullest zspage with a free slot in its frames.
    #[inline]
    pub(crate) fn fullest(&self) -> Option<u32> {
        let partial = self.nonempty & ((1 << GAPPED) - 2);
        (partial != 0).then(|| self.heads[partial.ilog2() as usize - 1])
    }

    /// A zspage that can take more objects when it gets another frame.
    pub(crate) fn growable(&self) -> Option<u32> {
        let growable = self.nonempty & (1 << GAPPED | 1 << GROWABLE);
        (growable != 0).then(|| self.heads[growable.trailing_zeros() as usize - 1])
    }

    /// Moves zspage `id` from its present list into the list of `group`.
    pub(crate) fn regroup(&mut self, table: &LazyTable<Zspage>, id: u32, group: u8) {
        let zspage = table.get(id as usize);
        let old = zspage.group.load(Ordering::Relaxed);
        if old == group {
            return;
        }
        if old != NO_GROUP {
            self.unlink(table, zspage, old);
        }
        if group != NO_GROUP {
            let head = self.head(group);
            zspage.next.store(*head, Ordering::Relaxed);
            zspage.previous.store(0, Ordering::Relaxed);
            if *head != 0 {
                table.get(*head as usize).previous.store(id, Ordering::Relaxed);
            }
            *head = id;
            self.nonempty |= 1 << group;
        }
        zspage.group.store(group, Ordering::Relaxed);
    }

    /// The first zspage of a list.
    #[inline]
    fn head(&mut self, group: u8) -> &mut u32 {
        if group == EMPTYING { &mut self.emptying } else { &mut self.heads[usize::from(group) - 1] }
    }

    fn unlink(&mut self, table: &LazyTable<Zspage>, zspage: &Zspage, group: u8) {
        let next = zspage.next.load(Ordering::Relaxed);
        let previous = zspage.previous.load(Ordering::Relaxed);
        if next != 0 {
            table.get(next as usize).previous.store(previous, Ordering::Relaxed);
        }
        if previous != 0 {
            table.get(previous as usize).next.store(next, Ordering::Relaxed);
        } else {
            *self.head(group) = next;
            if next == 0 {
                self.nonempty &= !(1 << group);
            }
        }
    }

    /// The zspages of every list but that of the zspages being emptied, with their groups, the
    /// emptiest groups first.
    pub(crate) fn members<'a>(
        &'a self,
        table: &'a LazyTable<Zspage>,
    ) -> impl Iterator<Item = (u8, u32)> + 'a {
        (1..GROUPS as u8).flat_map(move |group| {
            let mut at = self.heads[usize::from(group) - 1];
            core::iter::from_fn(move || {
                let id = at;
                at = if id == 0 { 0 } else { table.get(id as usize).next.load(Ordering::Relaxed) };
                (id != 0).then_some((group, id))
            })
        })
    }

    /// Whether a zspage of `group` has free slots in its frames.
    pub(crate) fn has_holes(group: u8) -> bool {
        PARTIAL.contains(&group)
    }
}
