//! Displaced words that wait for a grace period: until no reader can hold what they name.
//!
//! Readers enter. A writer displaces a word with one atomic read-modify-write and retires it, as
//! `call_rcu` does. The word goes into the queue of the writer's CPU, with the present epoch: the
//! number of times that readers were seen to leave. Its grace period ends after two more epochs
//! that began after it was displaced: every reader that could have found it has left. Queues have a
//! fixed size. A full queue is emptied after a wait for readers, as by `synchronize_rcu`. No call
//! allocates after the queues were made.

use units::Cpu;

use crate::atomic::barrier_after_rmw;
use crate::{Mutex, PerCpu, Reader, ReaderEpochs};

/// The epochs of a grace period. The recorded epoch may be out of date when the word is displaced,
/// so the number is one more than the two phases.
const GRACE_EPOCHS: u32 = 3;

/// How often readers are checked while a queue fills. If readers come and go all the time, one
/// check flips the phase and the next finds the old phase left, so an epoch takes two checks. So a
/// queue never has to wait if readers leave in time: a grace period ends after six of the eight
/// checks.
const CHECKS: usize = 8;

/// Retired words, and the readers they wait for.
pub struct Retired {
    readers: ReaderEpochs,
    queues: PerCpu<Mutex<Queue>>,
    /// Held by the thread that quiesces, while `due` is set in the queues. Taken before the lock of
    /// a queue.
    quiescing: Mutex<()>,
}

/// The words of a CPU, the oldest first, in a ring.
struct Queue {
    words: Box<[Waiting]>,
    first: usize,
    count: usize,
    /// Of the oldest words, the number that are freed when the present wait of `quiesce` ends.
    due: usize,
}

#[derive(Clone, Copy, Default)]
struct Waiting {
    word: u64,
    epoch: u32,
}

impl Retired {
    /// Makes empty queues for `cpus` CPUs, with room for `room` words each, at least one.
    #[must_use]
    pub fn new(cpus: usize, room: usize) -> Retired {
        let words = || vec![Waiting::default(); room.max(1)].into();
        let queue = |_| Mutex::new(Queue { words: words(), first: 0, count: 0, due: 0 });
        let (readers, queues) = (ReaderEpochs::new(cpus), PerCpu::new(cpus, queue));
        Retired { readers, queues, quiescing: Mutex::new(()) }
    }

    /// Enters a reader: everything found from now on stays until the reader is dropped. Never
    /// waits. A thread with a reader must not call the other methods.
    #[inline]
    pub fn read(&self, cpu: Cpu) -> Reader<'_> {
        self.readers.enter(cpu)
    }

    /// Takes a word that was just displaced, and calls `free` with words that no reader can hold
    /// any more. Waits for readers when the queue is full.
    #[inline]
    pub fn retire(&self, cpu: Cpu, word: u64, free: impl FnMut(u64)) {
        let mut queue = self.queues.get(cpu).lock();
        // The lock was taken with a read-modify-write. Pairs with the fences in `ReaderEpochs`: a
        // thread that checks for readers in a later epoch sees the readers that may have found the
        // word before it was displaced.
        barrier_after_rmw();
        let epoch = self.readers.epoch();
        queue.push(Waiting { word, epoch });
        if queue.is_full() || queue.count.is_multiple_of(queue.words.len().div_ceil(CHECKS)) {
            self.free_old(&mut queue, free);
        }
    }

    /// Frees the words whose grace period is over, or all words if the queue is full.
    #[cold]
    fn free_old(&self, queue: &mut Queue, mut free: impl FnMut(u64)) {
        self.readers.try_flip();
        let epoch = self.readers.epoch();
        while let Some(oldest) = queue.oldest()
            && epoch.wrapping_sub(oldest.epoch) >= GRACE_EPOCHS
        {
            queue.pop();
            free(oldest.word);
        }
        if queue.is_full() {
            self.empty(queue, free);
        }
    }

    /// Waits for readers and frees all words of a queue. The lock of the queue keeps other threads
    /// from adding words meanwhile; readers never take that lock.
    fn empty(&self, queue: &mut Queue, mut free: impl FnMut(u64)) {
        self.readers.wait_for_readers();
        while let Some(oldest) = queue.oldest() {
            queue.pop();
            free(oldest.word);
        }
    }

    /// Waits for readers and frees every word that was retired before the call. Returns whether
    /// there were any, as `rcu_barrier` does. One wait serves all queues, and no queue is locked
    /// meanwhile: other threads may retire words.
    pub fn quiesce(&self, mut free: impl FnMut(u64)) -> bool {
        let _quiescing = self.quiescing.lock();
        let mut any = false;
        for queue in self.queues.iter() {
            let mut queue = queue.lock();
            queue.due = queue.count;
            any |= queue.due > 0;
        }
        if !any {
            return false;
        }
        // The words that are due were displaced before this call, and their queues were locked
        // after that. Words that are added meanwhile are not due.
        self.readers.wait_for_readers();
        for queue in self.queues.iter() {
            let mut queue = queue.lock();
            while queue.due > 0
                && let Some(oldest) = queue.oldest()
            {
                queue.pop();
                free(oldest.word);
            }
        }
        true
    }

    /// Waits until every reader from before this call has left. The calling thread must not be a
    /// reader.
    pub fn wait_for_readers(&self) {
        self.readers.wait_for_readers();
    }

    /// The epoch of the readers.
    #[cfg(test)]
    pub(crate) fn epoch(&self) -> u32 {
        self.readers.epoch()
    }
}

impl Queue {
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
