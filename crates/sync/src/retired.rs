//! Displaced words that wait until no reader can hold what they name.
//!
//! Readers enter. A writer displaces a word with one atomic read-modify-write and retires it. The
//! word goes into the bag of the writer's CPU, with the present epoch: the number of times that
//! readers were seen to leave. The word is ripe after two more epochs that began after it was
//! displaced: every reader that could have found it has left. Bags have a fixed size. A full bag is
//! emptied after a wait for readers. No call allocates after the bags were made.

use units::Cpu;

use crate::atomic::barrier_after_rmw;
use crate::{Mutex, PerCpu, Reader, ReaderEpochs};

/// A word is ripe this many epochs after its own. The recorded epoch may be out of date when the
/// word is displaced, so the number is one more than the two phases.
const RIPE: u32 = 3;

/// How often readers are checked while a bag fills. If readers come and go all the time, one check
/// flips the phase and the next finds the old phase left, so an epoch takes two checks. So a bag
/// never has to wait if readers leave in time: the words are ripe after six of the eight checks.
const LOOKS: usize = 8;

/// Retired words, and the readers they wait for.
pub struct Retired {
    readers: ReaderEpochs,
    bags: PerCpu<Mutex<Bag>>,
    /// Held by the thread that quiesces, while `due` is set in the bags. Taken before the lock of a
    /// bag.
    quiescing: Mutex<()>,
}

/// The words of a CPU, the oldest first, in a ring.
struct Bag {
    words: Box<[Waiting]>,
    first: usize,
    count: usize,
    /// Of the oldest words, the number that are ripe when the present wait of `quiesce` ends.
    due: usize,
}

#[derive(Clone, Copy, Default)]
struct Waiting {
    word: u64,
    epoch: u32,
}

impl Retired {
    /// Makes empty bags for `cpus` CPUs, with room for `room` words each, at least one.
    #[must_use]
    pub fn new(cpus: usize, room: usize) -> Retired {
        let words = || vec![Waiting::default(); room.max(1)].into();
        let bag = |_| Mutex::new(Bag { words: words(), first: 0, count: 0, due: 0 });
        let (readers, bags) = (ReaderEpochs::new(cpus), PerCpu::new(cpus, bag));
        Retired { readers, bags, quiescing: Mutex::new(()) }
    }

    /// Enters a reader: everything found from now on stays until the reader is dropped. Never
    /// waits. A thread with a reader must not call the other methods.
    #[inline]
    pub fn read(&self, cpu: Cpu) -> Reader<'_> {
        self.readers.enter(cpu)
    }

    /// Takes a word that was just displaced, and calls `free` with words that no reader can hold
    /// any more. Waits for readers when the bag is full.
    #[inline]
    pub fn retire(&self, cpu: Cpu, word: u64, free: impl FnMut(u64)) {
        let mut bag = self.bags.get(cpu).lock();
        // The lock was taken with a read-modify-write. Pairs with the fences in `ReaderEpochs`: a
        // thread that checks for readers in a later epoch sees the readers that may have found the
        // word before it was displaced.
        barrier_after_rmw();
        let epoch = self.readers.epoch();
        bag.push(Waiting { word, epoch });
        if bag.is_full() || bag.count.is_multiple_of(bag.words.len().div_ceil(LOOKS)) {
            self.tidy(&mut bag, free);
        }
    }

    /// Frees the ripe words, or all words if the bag is full.
    #[cold]
    fn tidy(&self, bag: &mut Bag, mut free: impl FnMut(u64)) {
        self.readers.try_flip();
        let epoch = self.readers.epoch();
        while let Some(oldest) = bag.oldest()
            && epoch.wrapping_sub(oldest.epoch) >= RIPE
        {
            bag.pop();
            free(oldest.word);
        }
        if bag.is_full() {
            self.empty(bag, free);
        }
    }

    /// Waits for readers and frees all words of a bag. The lock of the bag keeps other threads from
    /// adding words meanwhile; readers never take that lock.
    fn empty(&self, bag: &mut Bag, mut free: impl FnMut(u64)) {
        self.readers.wait_for_readers();
        while let Some(oldest) = bag.oldest() {
            bag.pop();
            free(oldest.word);
        }
    }

    /// Waits for readers and frees every word that was retired before the call. Returns whether
    /// there were any. One wait serves all bags, and no bag is locked meanwhile: other threads may
    /// retire words.
    pub fn quiesce(&self, mut free: impl FnMut(u64)) -> bool {
        let _quiescing = self.quiescing.lock();
        let mut any = false;
        for bag in self.bags.iter() {
            let mut bag = bag.lock();
            bag.due = bag.count;
            any |= bag.due > 0;
        }
        if !any {
            return false;
        }
        // The words that are due were displaced before this call, and their bags were locked after
        // that. Words that are added meanwhile are not due.
        self.readers.wait_for_readers();
        for bag in self.bags.iter() {
            let mut bag = bag.lock();
            while bag.due > 0
                && let Some(oldest) = bag.oldest()
            {
                bag.pop();
                free(oldest.word);
            }
        }
        true
    }

    /// The epoch of the readers.
    #[cfg(test)]
    pub(crate) fn epoch(&self) -> u32 {
        self.readers.epoch()
    }
}

impl Bag {
    fn is_full(&self) -> bool {
        self.count == self.words.len()
    }

    /// There is room for a word.
    fn push(&mut self, waiting: Waiting) {
        let at = (self.first + self.count) % self.words.len();
        self.words[at] = waiting;
        self.count += 1;
    }

    fn oldest(&self) -> Option<Waiting> {
        (self.count > 0).then(|| self.words[self.first])
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % self.words.len();
        self.count -= 1;
        self.due = self.due.saturating_sub(1);
    }
}
