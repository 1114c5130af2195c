//! Room is made at the limit: values that were not read lately go.
//!
//! The clock has two hands, because a value in a group gives no memory back alone. One goes over
//! the buckets, and takes out values with heads of their own. The other goes over the groups: what
//! was read lately of one goes into the next group, and the rest goes with the group. Both are as
//! far on their ways: that which is behind moves next.

use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Room};

use super::{Count, Displaced, Values};
use crate::head::HEAD_BYTES;
use crate::outcome::{Evicted, PutError, Reason};
use crate::state::Apart;
use crate::word::{Place, Word};
use crate::{At, MAX_KEY};

/// A whole way of a hand.
const ROUND: u64 = 1 << 40;
/// How often a store makes room before it is refused.
const ATTEMPTS: u32 = 64;
/// Values that are taken out of a bucket in one step.
const STEP: usize = 32;
/// Groups that are made anew for one store.
const REMADE: usize = 8;

impl Values {
    /// Makes room for about `bytes` bytes, for a store that was refused `attempt` times before.
    pub(super) fn make_room(&self, at: At, bytes: usize, attempt: u32) -> Result<(), PutError> {
        let limit = self.pool.limit(Room::Open).saturating_mul(PAGE_SIZE as u64);
        if attempt >= ATTEMPTS || bytes as u64 > limit {
            return Err(PutError::Full);
        }
        if attempt == 0 && self.quiesce(at.cpu) {
            return Ok(());
        }
        let remakes = !self.evict || attempt < ATTEMPTS / 4;
        if remakes && self.remake_sparse(at, REMADE) > 0 && self.quiesce(at.cpu) {
            return Ok(());
        }
        if self.compacts_for(at.cpu, bytes) {
            return Ok(());
        }
        if !self.evict {
            return Err(PutError::Full);
        }
        let wanted = bytes << (attempt / 4).min(16);
        let (mut gone, mut steps) = (0, 0);
        // Two rounds take the marks and what had them; the third is for groups made meanwhile.
        let most = 3 * (self.index.count() + u64::from(self.groups.end()));
        while gone < wanted && steps < most {
            gone += self.sweep(at);
            steps += 1;
        }
        let freed = self.quiesce(at.cpu);
        if gone == 0 && !freed { Err(PutError::Full) } else { Ok(()) }
    }

    /// Moves the hand that is behind. Returns about how many bytes of memory its step gave up.
    fn sweep(&self, at: At) -> usize {
        let hands = &self.hands;
        let behind = hands.by_group.load(Ordering::Relaxed);
        let ahead = hands.by_bucket.load(Ordering::Relaxed);
        if self.groups.count() > 0 && (ahead.wrapping_sub(behind) as i64) >= 0 {
            let groups = u64::from(self.groups.end() - 1).max(1);
            let number = 1 + hands.group.fetch_add(1, Ordering::Relaxed) % groups;
            hands.by_group.fetch_add(ROUND / groups, Ordering::Relaxed);
            return self.take_apart(at, number as u32, Apart::Evict).gone;
        }
        let buckets = self.index.count();
        let number = hands.bucket.fetch_add(1, Ordering::Relaxed) % buckets;
        let ahead = hands.by_bucket.fetch_add(ROUND / buckets, Ordering::Relaxed) + ROUND / buckets;
        if self.groups.count() == 0 {
            hands.by_group.store(ahead, Ordering::Relaxed);
        }
        self.sweep_bucket(at, number)
    }

    fn sweep_bucket(&self, at: At, number: u64) -> usize {
        let (mut words, mut count) = ([None; STEP], 0);
        {
            let _reader = self.retired.read(at.cpu);
            let is_head = |word: Word| matches!(word.place(), Place::Head(_));
            self.index.visit(number, is_head, |word| {
                if count < STEP {
                    words[count] = Some(word);
                    count += 1;
                }
            });
        }
        words.into_iter().flatten().map(|word| self.evict_word(at, word)).sum()
    }

    /// Takes a value with a head of its own out. Returns the bytes of its objects.
    fn evict_word(&self, at: At, word: Word) -> usize {
        let Some((displaced, head)) = self.take_word(at.cpu, word, |_| true) else { return 0 };
        let Place::Head(handle) = displaced.word.place() else { return 0 };
        let (mut bytes, is_over) = (head.object_bytes(), head.is_over(at.now));
        {
            let reader = self.retired.read(at.cpu);
            self.each_part(&reader, handle, &mut |_, length| bytes += length);
        }
        let reason = if is_over { Reason::Expired } else { Reason::Evicted };
        self.let_go(at.cpu, displaced, handle, reason);
        bytes
    }

    /// Tells the user of a value with a head of its own that left by itself, and passes it on to be
    /// freed. The calling thread holds no lock and is no reader.
    pub(super) fn let_go(&self, cpu: Cpu, left: Displaced, handle: Handle, reason: Reason) {
        self.count_left(cpu, reason);
        if let Some(evicted) = &self.evicted {
            let mut bytes = [0; HEAD_BYTES + MAX_KEY];
            // The value was taken out and not retired: only this thread can free it.
            let (head, key) = self.head_with_key(cpu, handle, &mut bytes);
            let read = |into: &mut [u8]| {
                let reader = self.retired.read(cpu);
                self.read_head(&reader, cpu, handle, head, 0, into)
            };
            evicted(&Evicted { key, length: head.value, reason, read: &read });
        }
        self.dispose(cpu, left);
    }

    pub(super) fn count_left(&self, cpu: Cpu, reason: Reason) {
        let count = if reason == Reason::Evicted { Count::Evicted } else { Count::Expired };
        self.count(cpu, count, 1);
    }
}
