//! The LRU lists: entries in the order they came, one list for each CPU of a memcg.
//!
//! An entry joins the end of its CPU's list. A search for the oldest entry compares the ages at the
//! heads of all lists. An entry that was read since it came gets a second chance: it goes to the
//! end (F. J. Corbató, "A Paging Experiment with the Multics System", 1968).

use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, PerCpu};
use units::Cpu;

use crate::Word;
use crate::entry::{AGES, Entries};

/// Entries that join between two ages. Ages order entries across lists, roughly; within a list the
/// order is exact.
const PER_AGE: u32 = if cfg!(shuttle) { 1 } else { 64 };

/// The most lists of a memcg: an entry stores the number of its list in one byte.
const MOST_LISTS: usize = 256;

/// The clock of ages, which all lists share. It never turns over. An entry has only the lower bits
/// of its age.
#[derive(Default)]
pub(crate) struct Ages {
    now: AtomicU64,
}

impl Ages {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Goes on from the age, as an entry has it, of the youngest entry of another process.
    pub(crate) fn go_on_from(&self, age: u32) {
        // Older entries have a lower age.
        self.now.store(AGES + u64::from(age), Ordering::Relaxed);
    }
}

/// The age of which an entry has the lower bits, and which is `most` at the most.
fn whole(age: u32, most: u64) -> u64 {
    most.saturating_sub(most.wrapping_sub(age.into()) % AGES)
}

/// The lists of a memcg. Any number of threads may call every method at once.
pub(crate) struct Lru {
    lists: PerCpu<Mutex<List>>,
}

#[derive(Default)]
struct List {
    first: u32,
    last: u32,
    count: u64,
    joined: u32,
    /// The whole age of the first entry. So one that stays for ever is never taken for a young one.
    oldest: u64,
    /// The whole age of the entry that came last, which may have left.
    youngest: u64,
}

impl Lru {
    pub(crate) fn new(cpus: usize) -> Lru {
        Lru { lists: PerCpu::new(cpus.clamp(1, MOST_LISTS), |_| Mutex::new(List::default())) }
    }

    /// The number of entries in all lists.
    pub(crate) fn count(&self) -> u64 {
        self.lists.iter().map(|list| list.lock().count).sum()
    }

    /// Adds an entry that is in no list to the end of the CPU's list.
    pub(crate) fn join(&self, entries: &Entries, ages: &Ages, cpu: Cpu, number: u32) {
        let which = cpu.index(self.lists.count());
        let mut list = self.lists.get(Cpu(which as u32)).lock();
        entries.set_linked(number, which as u8);
        list.joined = list.joined.wrapping_add(1);
        if list.joined.is_multiple_of(PER_AGE) {
            ages.now.fetch_add(1, Ordering::Relaxed);
        }
        list.push(entries, number, ages.now());
    }

    /// Adds an entry that another process left to the end of the list that it was in, with its age.
    /// Older entries were added before.
    pub(crate) fn restore(&self, entries: &Entries, ages: &Ages, number: u32) {
        let which = usize::from(entries.list(number)) % self.lists.count();
        entries.set_list(number, which as u8);
        let age = whole(entries.age(number), ages.now());
        self.lists.get(Cpu(which as u32)).lock().push(entries, number, age);
    }

    /// Takes an entry out of its list, if it is in one.
    pub(crate) fn leave(&self, entries: &Entries, number: u32) {
        // An entry joins before it can be found, if at all, and always the same list.
        if !entries.is_linked(number) {
            return;
        }
        let mut list = self.lists.get(Cpu(u32::from(entries.list(number)))).lock();
        entries.set_unlinked(number);
        list.take_out(entries, number);
    }

    /// Passes at most `want` of the oldest entries to `found`, and moves them to the end of their
    /// lists. An entry that was read since it came only moves to the end. It visits `most` entries
    /// at most, and none twice. The caller must keep the entries from reuse. Returns the number of
    /// visited entries.
    pub(crate) fn oldest(
        &self,
        entries: &Entries,
        ages: &Ages,
        (mut want, most): (usize, u64),
        mut found: impl FnMut(Word),
    ) -> u64 {
        let (mut left, mut passed) = ([0; MOST_LISTS], 0);
        for (left, list) in left.iter_mut().zip(self.lists.iter()) {
            *left = list.lock().count;
        }
        while want > 0 && passed < most {
            let Some(which) = self.oldest_list(&left) else { break };
            let mut list = self.lists.get(Cpu(which as u32)).lock();
            let (age, left) = (list.oldest, &mut left[which]);
            // While the head has the age at which the list was chosen, no other list has an older
            // one.
            while want > 0 && passed < most && *left > 0 && list.first != 0 && list.oldest == age {
                let number = list.first;
                (*left, passed) = (*left - 1, passed + 1);
                list.take_out(entries, number);
                list.push(entries, number, ages.now());
                if entries.take_reference(number) {
                    continue;
                }
                if let Some(word) = entries.word(number) {
                    found(word);
                    want -= 1;
                }
            }
        }
        passed
    }

    /// The list with the oldest head, among the lists with entries left to visit.
    fn oldest_list(&self, left: &[u64]) -> Option<usize> {
        let lists = self.lists.iter().enumerate().filter(|(which, _)| left[*which] > 0);
        let ages = lists.filter_map(|(which, list)| {
            let list = list.lock();
            (list.first != 0).then_some((list.oldest, which))
        });
        ages.min().map(|(_, which)| which)
    }
}

impl List {
    fn push(&mut self, entries: &Entries, number: u32, age: u64) {
        entries.set_age(number, (age % AGES) as u32);
        entries.set_links(number, self.last, 0);
        self.youngest = age;
        match self.last {
            0 => (self.first, self.oldest) = (number, age),
            last => {
                let (before, _) = entries.links(last);
                entries.set_links(last, before, number);
            }
        }
        self.last = number;
        self.count += 1;
    }

    fn take_out(&mut self, entries: &Entries, number: u32) {
        let (before, after) = entries.links(number);
        match before {
            0 => {
                self.first = after;
                if after != 0 {
                    self.oldest = whole(entries.age(after), self.youngest);
                }
            }
            _ => {
                let (first, _) = entries.links(before);
                entries.set_links(before, first, after);
            }
        }
        match after {
            0 => self.last = before,
            _ => {
                let (_, last) = entries.links(after);
                entries.set_links(after, before, last);
            }
        }
        self.count -= 1;
    }
}

#[cfg(test)]
mod tests;
