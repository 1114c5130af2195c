//! Lists of entries in the order they came, one for each CPU of a memcg, and who is to go first.
//!
//! An entry joins the end of its CPU's list. Whoever wants the oldest looks at the heads of all
//! lists, of which each has an age; an entry that was read since it came is given a second chance
//! (F. J. Corbató, "A Paging Experiment with the Multics System", 1968): it goes to the end.

use sync::atomic::{AtomicU32, Ordering};
use sync::{Mutex, PerCpu};
use units::Cpu;

use crate::Word;
use crate::entry::{Entries, older_by};

/// Entries that join between two ages: ages order lists among each other, roughly; a list orders
/// its own entries exactly.
const PER_AGE: u32 = if cfg!(shuttle) { 1 } else { 64 };

/// Lists a memcg can have: an entry has a byte for the number of its own.
const MOST_LISTS: usize = 256;

/// What all lists share: the time by which entries are old.
#[derive(Default)]
pub(crate) struct Ages {
    now: AtomicU32,
}

impl Ages {
    fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }
}

/// The lists of a memcg. Every method may be called by any number of threads at once.
pub(crate) struct Lru {
    lists: PerCpu<Mutex<List>>,
}

#[derive(Default)]
struct List {
    first: u32,
    last: u32,
    count: u64,
    joined: u32,
}

impl Lru {
    pub(crate) fn new(cpus: usize) -> Lru {
        Lru { lists: PerCpu::new(cpus.clamp(1, MOST_LISTS), |_| Mutex::new(List::default())) }
    }

    /// Entries in all lists.
    pub(crate) fn count(&self) -> u64 {
        self.lists.iter().map(|list| list.lock().count).sum()
    }

    /// An entry that is in no list joins the end of the CPU's.
    pub(crate) fn join(&self, entries: &Entries, ages: &Ages, cpu: Cpu, number: u32) {
        let which = cpu.index(self.lists.count());
        let mut list = self.lists.get(Cpu(which as u32)).lock();
        entries.set_linked(number, which as u8);
        list.joined = list.joined.wrapping_add(1);
        if list.joined.is_multiple_of(PER_AGE) {
            ages.now.fetch_add(1, Ordering::Relaxed);
        }
        entries.set_age(number, ages.now());
        list.push(entries, number);
    }

    /// An entry leaves its list, if it is in one.
    pub(crate) fn leave(&self, entries: &Entries, number: u32) {
        // It joined before it could be found, if at all, and always the same list.
        if !entries.is_linked(number) {
            return;
        }
        let mut list = self.lists.get(Cpu(u32::from(entries.list(number)))).lock();
        entries.set_unlinked(number);
        list.take_out(entries, number);
    }

    /// Gives `found` the oldest entries, at most `want`, and sends them to the end of their lists;
    /// those that were read since they came go to the end instead. No entry is passed twice.
    /// Whoever is given an entry holds what keeps entries from being used again. Tells how many
    /// were passed.
    pub(crate) fn oldest(
        &self,
        entries: &Entries,
        ages: &Ages,
        mut want: usize,
        mut found: impl FnMut(Word),
    ) -> u64 {
        let (mut left, mut passed) = ([0; MOST_LISTS], 0);
        for (left, list) in left.iter_mut().zip(self.lists.iter()) {
            *left = list.lock().count;
        }
        while want > 0 {
            let Some(which) = self.oldest_list(entries, &left) else { break };
            let mut list = self.lists.get(Cpu(which as u32)).lock();
            let (age, left) = (entries.age(list.first), &mut left[which]);
            // As long as the head is as old as when the list was chosen, no other is older.
            while want > 0 && *left > 0 && list.first != 0 && entries.age(list.first) == age {
                let number = list.first;
                (*left, passed) = (*left - 1, passed + 1);
                list.take_out(entries, number);
                entries.set_age(number, ages.now());
                list.push(entries, number);
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

    /// The list with the oldest head, of those of which some are left to be passed.
    fn oldest_list(&self, entries: &Entries, left: &[u64]) -> Option<usize> {
        let mut oldest: Option<(usize, u32)> = None;
        for (which, list) in self.lists.iter().enumerate().filter(|(which, _)| left[*which] > 0) {
            let list = list.lock();
            if list.first == 0 {
                continue;
            }
            let age = entries.age(list.first);
            if oldest.is_none_or(|(_, other)| older_by(age, other) > 0) {
                oldest = Some((which, age));
            }
        }
        oldest.map(|(which, _)| which)
    }
}

impl List {
    fn push(&mut self, entries: &Entries, number: u32) {
        entries.set_links(number, self.last, 0);
        match self.last {
            0 => self.first = number,
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
            0 => self.first = after,
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
