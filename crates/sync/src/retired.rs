//! Words that were displaced and wait until no reader can hold what they name.
//!
//! Readers enter; a writer displaces a word with one atomic read-modify-write and retires it. It
//! goes into the bag of the writer's CPU with the number of times that readers had been seen to
//! leave (an epoch). Two more of these, each begun after it was displaced, and it is ripe: the
//! reader who could have found it would have been seen. Bags are of a fixed size; a full one is
//! emptied by waiting for readers, and nothing here allocates after it was made.

use units::Cpu;

use crate::atomic::barrier_after_rmw;
use crate::{Mutex, PerCpu, Reader, ReaderEpochs};

/// How many epochs after its own a word is ripe. The epoch may be a number that is already out of
/// date when the word is displaced, so one more than there are phases to see.
const RIPE: u32 = 3;

/// How often readers are looked for while a bag fills. Where readers come and go all the time, one
/// look turns the phase and the next finds it left, so that an epoch takes two: a bag of which six
/// eighths are filled meanwhile has no need to wait for anybody.
const LOOKS: usize = 8;

/// Words that wait, and the readers they wait for.
pub struct Retired {
    readers: ReaderEpochs,
    bags: PerCpu<Mutex<Bag>>,
}

/// The words of a CPU, the oldest first: a ring.
struct Bag {
    words: Box<[Waiting]>,
    first: usize,
    count: usize,
}

#[derive(Clone, Copy, Default)]
struct Waiting {
    word: u64,
    epoch: u32,
}

impl Retired {
    /// Nothing retired, for `cpus` CPUs with room for `room` words each, at least one.
    #[must_use]
    pub fn new(cpus: usize, room: usize) -> Retired {
        let words = || vec![Waiting::default(); room.max(1)].into();
        let bag = |_| Mutex::new(Bag { words: words(), first: 0, count: 0 });
        Retired { readers: ReaderEpochs::new(cpus), bags: PerCpu::new(cpus, bag) }
    }

    /// Begins to read: what is found from now on stays until the reader is dropped. Never waits. A
    /// thread with a reader must not call the other methods.
    #[inline]
    pub fn read(&self, cpu: Cpu) -> Reader<'_> {
        self.readers.enter(cpu)
    }

    /// Takes a word that was displaced just now, and calls `free` with words that no reader can
    /// hold any more. Waits for readers when there is no room.
    #[inline]
    pub fn retire(&self, cpu: Cpu, word: u64, free: impl FnMut(u64)) {
        let mut bag = self.bags.get(cpu).lock();
        // Taking the lock was a read-modify-write. Pairs with the fences in `ReaderEpochs`: who
        // looks for readers in a later epoch sees those who may have found the word before it was
        // displaced.
        barrier_after_rmw();
        let epoch = self.readers.epoch();
        bag.push(Waiting { word, epoch });
        if bag.count.is_multiple_of(bag.words.len().div_ceil(LOOKS)) {
            self.tidy(&mut bag, free);
        }
    }

    /// Frees what is ripe, and everything if there is no room left.
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
        if bag.count == bag.words.len() {
            self.empty(bag, free);
        }
    }

    /// Waits for readers and frees everything in a bag. Its lock keeps others from adding to it
    /// meanwhile; readers never want that lock.
    fn empty(&self, bag: &mut Bag, mut free: impl FnMut(u64)) {
        self.readers.wait_for_readers();
        while let Some(oldest) = bag.oldest() {
            bag.pop();
            free(oldest.word);
        }
    }

    /// Waits for readers and frees every word that was retired before the call. Tells whether
    /// there was any.
    pub fn quiesce(&self, mut free: impl FnMut(u64)) -> bool {
        let mut any = false;
        for bag in self.bags.iter() {
            let mut bag = bag.lock();
            if bag.count > 0 {
                any = true;
                self.empty(&mut bag, &mut free);
            }
        }
        any
    }
}

impl Bag {
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
    }
}
