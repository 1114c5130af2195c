//! The table of groups: where each is, and how many of its members some word still names.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::Mutex;
use sync::atomic::{AtomicU64, Ordering};
use zsmalloc::Handle;

use crate::word::MAX_GROUPS;

/// In the first word of a group: its handle, and above it how often its number was used.
const PLACE: usize = 0;
/// In the second word: members that words name, members in all, and the second at which the first
/// of their lives ends.
const MEMBERS: usize = 1;
/// In the second word of an unused number: the next one.
const NEXT: usize = MEMBERS;

type Entry = [AtomicU64; 2];

const MEMBER_BITS: u32 = 16;
const LOW: u64 = (1 << MEMBER_BITS) - 1;

/// What is known of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    /// The object with its members.
    pub(crate) head: Handle,
    /// A number that no other group has or had, but after 2^32 groups of the same number.
    pub(crate) tag: u64,
    /// Members that words name, and members in all.
    pub(crate) live: u64,
    pub(crate) members: u64,
    /// The second at which the life of a member ends first; 0 if none does.
    pub(crate) earliest: u32,
}

impl Group {
    /// Whether more than half of it is dead.
    pub(crate) fn is_sparse(&self) -> bool {
        self.live * 2 < self.members
    }
}

/// The groups. Any number of threads may call every method at once.
pub(crate) struct Groups {
    entries: LazyTable<Entry>,
    ids: Mutex<Ids>,
    /// Groups of which more than half is dead.
    sparse: AtomicU64,
    live: AtomicU64,
}

struct Ids {
    fresh: u32,
    free: u32,
}

impl Groups {
    /// Makes a table for at most `groups` groups.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub(crate) fn new(provider: &dyn MemoryProvider, groups: u64) -> Result<Groups, NoMemory> {
        let entries = (groups + 1).clamp(64, MAX_GROUPS as u64) as usize;
        Ok(Groups {
            entries: LazyTable::new(provider, entries)?,
            ids: Mutex::new(Ids { fresh: 1, free: 0 }),
            sparse: AtomicU64::new(0),
            live: AtomicU64::new(0),
        })
    }

    /// Numbers below this are or were used.
    pub(crate) fn end(&self) -> u32 {
        self.ids.lock().fresh
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.end()) * size_of::<Entry>() as u64
    }

    /// The number of groups.
    pub(crate) fn count(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// The number of groups of which more than half is dead.
    pub(crate) fn sparse(&self) -> u64 {
        self.sparse.load(Ordering::Relaxed)
    }

    /// Adds a group; `None` if there is no number left. It stays until the caller has called
    /// [`Groups::leave`] once more than there are members.
    pub(crate) fn add(&self, head: Handle, members: usize, earliest: u32) -> Option<u32> {
        let number = {
            let mut ids = self.ids.lock();
            if ids.free != 0 {
                let number = ids.free;
                ids.free = self.entry(number)[NEXT].load(Ordering::Relaxed) as u32;
                number
            } else if (ids.fresh as usize) < self.entries.len() {
                ids.fresh += 1;
                ids.fresh - 1
            } else {
                return None;
            }
        };
        let entry = self.entry(number);
        let members = members as u64;
        // Release pairs with the Acquire in `get`, here and below: the number was given up before,
        // and the object is there.
        let counts = (members + 1) | members << MEMBER_BITS | u64::from(earliest) << 32;
        entry[MEMBERS].store(counts, Ordering::Release);
        let uses = entry[PLACE].load(Ordering::Relaxed) >> 32 << 32;
        // Release pairs with the Acquire in `get`: the object is there.
        entry[PLACE].store(uses | u64::from(head.get()), Ordering::Release);
        self.live.fetch_add(1, Ordering::Relaxed);
        Some(number)
    }

    /// A group by its number; `None` if there is none, or if it changes at this moment. If some
    /// word names a member, or named one when the calling thread became a reader, the group stays
    /// while it is a reader.
    pub(crate) fn get(&self, number: u32) -> Option<Group> {
        let entry = self.entry(number);
        // Acquire pairs with the Release in `add` and `move_to`.
        let place = entry[PLACE].load(Ordering::Acquire);
        // Acquire pairs with the Release in `add`: who sees the counts of the next group of this
        // number sees that the place of the last one is not its place any more.
        let counts = entry[MEMBERS].load(Ordering::Acquire);
        let same = entry[PLACE].load(Ordering::Relaxed) >> 32 == place >> 32;
        let head = place as u32;
        (head != 0 && same).then(|| Group {
            head: Handle::from_raw(head),
            tag: u64::from(number) << 32 | place >> 32,
            live: counts & LOW,
            members: counts >> MEMBER_BITS & LOW,
            earliest: (counts >> 32) as u32,
        })
    }

    /// Names the new place of a group, unless it has another by now. Returns whether it does.
    pub(crate) fn move_to(&self, number: u32, from: Handle, to: Handle) -> bool {
        let place = &self.entry(number)[PLACE];
        let seen = place.load(Ordering::Relaxed);
        let next = seen & !0xffff_ffff | u64::from(to.get());
        // AcqRel: Release pairs with the Acquire in `get`: the copy of the object is there.
        seen as u32 == from.get()
            && place.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Says when the life of a member ends first, when one has ended.
    pub(crate) fn set_earliest(&self, number: u32, earliest: u32) {
        let next = |seen: u64| Some(seen & 0xffff_ffff | u64::from(earliest) << 32);
        let _ =
            self.entry(number)[MEMBERS].fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// No word names a member any more. Returns whether that was the last one: the group is to be
    /// retired then.
    pub(crate) fn leave(&self, number: u32) -> bool {
        let entry = self.entry(number);
        // AcqRel pairs with itself: who takes the last one comes after all others.
        let before = entry[MEMBERS].fetch_sub(1, Ordering::AcqRel);
        let (live, members) = (before & LOW, before >> MEMBER_BITS & LOW);
        let (was, is) = (live * 2 < members, (live - 1) * 2 < members);
        if !was && is {
            self.sparse.fetch_add(1, Ordering::Relaxed);
        }
        if live > 1 {
            return false;
        }
        self.sparse.fetch_sub(u64::from(is), Ordering::Relaxed);
        self.live.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Gives up the number of a group that no thread can find, and returns its object.
    pub(crate) fn forget(&self, number: u32) -> Handle {
        let entry = self.entry(number);
        let place = entry[PLACE].load(Ordering::Relaxed);
        entry[PLACE].store((place >> 32).wrapping_add(1) << 32, Ordering::Relaxed);
        let mut ids = self.ids.lock();
        entry[NEXT].store(u64::from(ids.free), Ordering::Relaxed);
        ids.free = number;
        Handle::from_raw(place as u32)
    }

    fn entry(&self, number: u32) -> &Entry {
        self.entries.get(number as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_lives_until_its_last_member_leaves() {
        let groups = Groups::new(&host::Mmap, 100).expect("address space");
        let head = Handle::from_raw(7);
        let number = groups.add(head, 4, 30).expect("a number");
        let group = groups.get(number).expect("a group");
        assert_eq!((group.head, group.live, group.members, group.earliest), (head, 5, 4, 30));
        assert!(!groups.leave(number));
        assert!(!groups.get(number).expect("a group").is_sparse());
        for sparse in [0, 0, 1] {
            assert!(!groups.leave(number));
            assert_eq!(groups.sparse(), sparse);
        }
        assert!(groups.leave(number));
        assert_eq!((groups.sparse(), groups.count()), (0, 0));
        assert_eq!(groups.forget(number), head);
        assert_eq!(groups.get(number), None);
        let next = groups.add(Handle::from_raw(8), 1, 0).expect("a number");
        let again = groups.get(next).expect("a group");
        assert_eq!(next, number);
        assert_ne!(again.tag, group.tag);
    }
}
