//! The table of groups: where each is, and how many of its members some word still names.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::Mutex;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use units::PAGE_SIZE;
use zsmalloc::Handle;

use crate::numbers::Numbers;
use crate::word::MAX_GROUPS;

/// In the first word of a group: its handle, and above it how many groups were made before it.
const PLACE: usize = 0;
/// In the second word: members that words name, members in all, and the second at which the first
/// of their lives ends.
const MEMBERS: usize = 1;

type Entry = [AtomicU64; 2];

const MEMBER_BITS: u32 = 16;
const LOW: u64 = (1 << MEMBER_BITS) - 1;

/// What is known of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    /// The object with its members.
    pub(crate) head: Handle,
    /// A number that no other group has or had, but after 2^32 groups.
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
    numbers: Mutex<Numbers>,
    /// One more than the groups that were made.
    made: AtomicU32,
    /// Groups of which more than half is dead.
    sparse: AtomicU64,
    live: AtomicU64,
}

impl Groups {
    /// Makes a table for at most `groups` groups, over what another process left in the memory of
    /// the provider.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub(crate) fn new(provider: &dyn MemoryProvider, groups: u64) -> Result<Groups, NoMemory> {
        let entries = (groups + 1).clamp(64, MAX_GROUPS as u64) as usize;
        Ok(Groups {
            entries: LazyTable::new(provider, entries)?,
            numbers: Mutex::new(Numbers::new(entries, PAGE_SIZE / size_of::<Entry>())),
            made: AtomicU32::new(1),
            sparse: AtomicU64::new(0),
            live: AtomicU64::new(0),
        })
    }

    /// One more than the highest number of a group.
    pub(crate) fn end(&self) -> u32 {
        self.numbers.lock().end()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.numbers.lock().pages() * PAGE_SIZE as u64
    }

    /// Whether a group can have this number.
    pub(crate) fn has(&self, number: u32) -> bool {
        (1..self.entries.len()).contains(&(number as usize))
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
    /// [`Groups::leave`] once more than there are members, for each of so many stores.
    pub(crate) fn add(
        &self,
        head: Handle,
        (members, stores): (usize, usize),
        earliest: u32,
    ) -> Option<u32> {
        let number = self.numbers.lock().take()?;
        let (members, words) = (members as u64, (members * stores) as u64);
        self.enter(number, head, (words + 1) | members << MEMBER_BITS, earliest);
        Some(number)
    }

    fn enter(&self, number: u32, head: Handle, counts: u64, earliest: u32) {
        let entry = self.entry(number);
        // Release pairs with the Acquire in `get`, here and below: the number was given up before,
        // and the object is there.
        entry[MEMBERS].store(counts | u64::from(earliest) << 32, Ordering::Release);
        let made = u64::from(self.made.fetch_add(1, Ordering::Relaxed));
        // Release pairs with the Acquire in `get`: the object is there.
        entry[PLACE].store(made << 32 | u64::from(head.get()), Ordering::Release);
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    /// Has a group that another process left, of whose `members` members words name `live`, at
    /// least one. Nobody else uses the table.
    pub(crate) fn recover(&self, number: u32, head: Handle, live: u64, members: u64, first: u32) {
        self.numbers.lock().claim(number);
        self.enter(number, head, live | members << MEMBER_BITS, first);
        self.sparse.fetch_add(u64::from(live * 2 < members), Ordering::Relaxed);
    }

    /// Forgets a group that another process left, before any is recovered.
    pub(crate) fn lose(&self, number: u32) {
        self.entry(number)[PLACE].store(0, Ordering::Relaxed);
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

    /// One word more names a member. The calling thread sees to it that another one does.
    pub(crate) fn join(&self, number: u32) {
        let before = self.entry(number)[MEMBERS].fetch_add(1, Ordering::Relaxed);
        let (live, members) = (before & LOW, before >> MEMBER_BITS & LOW);
        if live * 2 < members && (live + 1) * 2 >= members {
            self.sparse.fetch_sub(1, Ordering::Relaxed);
        }
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
        let place = self.entry(number)[PLACE].swap(0, Ordering::Relaxed);
        let mut numbers = self.numbers.lock();
        if let Some(page) = numbers.give_back(number) {
            self.entries.release(page);
        }
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
        let number = groups.add(head, (4, 1), 30).expect("a number");
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
        let next = groups.add(Handle::from_raw(8), (1, 1), 0).expect("a number");
        let again = groups.get(next).expect("a group");
        assert_eq!(next, number);
        assert_ne!(again.tag, group.tag);
    }
}
