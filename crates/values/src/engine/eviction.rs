//! Room is made at the limit: values that were not read lately go.
//!
//! The clock has two hands, because a value in a group gives no memory back alone. One goes over
//! the buckets, and takes out values with heads of their own. The other goes over the groups: what
//! was read lately of one goes into the next group, and the rest goes with the group. Both are as
//! far on their ways: that which is behind moves next.

use alloc::sync::Arc;

use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Room};

use super::{Displaced, Values};
use crate::family::Own;
use crate::head::{HEAD_BYTES, Head};
use crate::outcome::{Evicted, PutError, Reason};
use crate::state::Apart;
use crate::word::{Place, Word};
use crate::{At, MAX_KEY, Tell};

/// A value with a head of its own that left all stores by itself, and that is not freed yet.
pub(super) struct Gone {
    word: Word,
    handle: Handle,
    head: Head,
    reason: Reason,
    /// What a store wants to be told.
    tell: Option<Arc<Tell>>,
}

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
        let buckets = self.stores().iter().map(|own| own.index.count()).sum::<u64>();
        let most = 3 * (buckets + u64::from(self.groups.end()));
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
        let stores = self.stores();
        let buckets = stores.iter().map(|own| own.index.count()).sum::<u64>();
        let mut number = hands.bucket.fetch_add(1, Ordering::Relaxed) % buckets;
        let ahead = hands.by_bucket.fetch_add(ROUND / buckets, Ordering::Relaxed) + ROUND / buckets;
        if self.groups.count() == 0 {
            hands.by_group.store(ahead, Ordering::Relaxed);
        }
        for (place, own) in stores.iter().enumerate() {
            match number.checked_sub(own.index.count()) {
                Some(rest) => number = rest,
                None => return self.sweep_bucket(at, own, &stores[..place], number),
            }
        }
        0
    }

    /// Sweeps a bucket. The hand has met what the stores `before` share with this one.
    fn sweep_bucket(&self, at: At, own: &Own, before: &[Arc<Own>], number: u64) -> usize {
        let (mut words, mut count) = ([None; STEP], 0);
        {
            let _reader = self.retired.read(at.cpu);
            let is_next = |word: Word| {
                matches!(word.place(), Place::Head(_))
                    && before.iter().all(|own| own.index.find_word(word).is_none())
            };
            own.index.visit(number, is_next, |word| {
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
        let when = |head: &Head, found: Word| head.is_over(at.now) || !found.is_referenced();
        let Some(gone) = self.take_from_all(at, word, when) else {
            // It was read in another store.
            let reader = self.write(at.cpu);
            reader.stores().iter().for_each(|own| own.index.unmark(word));
            return 0;
        };
        let mut bytes = gone.head.object_bytes();
        {
            let reader = self.retired.read(at.cpu);
            self.each_part(&reader, gone.handle, &mut |_, length| bytes += length);
        }
        self.let_go(at.cpu, gone);
        bytes
    }

    /// Takes a value with a head of its own out of all stores that have it, because it leaves by
    /// itself, if it is there still and if `when` says so: another one may have come to have the
    /// same word.
    pub(super) fn take_from_all(
        &self,
        at: At,
        word: Word,
        when: impl FnOnce(&Head, Word) -> bool,
    ) -> Option<Gone> {
        let writer = self.write(at.cpu);
        let found = writer.stores().find(word)?;
        let Place::Head(handle) = found.place() else { return None };
        let head = self.head_of(&writer, handle);
        if !when(&head, found) {
            return None;
        }
        let reason = if head.is_over(at.now) { Reason::Expired } else { Reason::Evicted };
        let (mut stores, mut tell) = (0, None);
        writer.stores().at_each(word, |own, chain, slot| {
            if chain.take(slot).is_some() {
                own.count_left(at.cpu, reason, head.data());
                stores += 1;
                tell = tell.take().or_else(|| own.evicted.clone());
            }
        });
        (stores > 0).then_some(Gone { word, handle, head, reason, tell })
    }

    /// Tells the user of a value that left by itself, and passes it on to be freed. The calling
    /// thread holds no lock and is no reader.
    pub(super) fn let_go(&self, cpu: Cpu, gone: Gone) {
        let Gone { word, handle, reason, tell, .. } = gone;
        if let Some(evicted) = tell {
            let mut bytes = [0; HEAD_BYTES + MAX_KEY];
            // The value was taken out and not retired: only this thread can free it.
            let (head, key) = self.head_with_key(cpu, handle, &mut bytes);
            let read = |into: &mut [u8]| {
                let reader = self.retired.read(cpu);
                self.read_head(&reader, cpu, handle, head, 0, into)
            };
            evicted(&Evicted { key, length: head.value, reason, read: &read });
        }
        self.dispose(cpu, Displaced { word, data: gone.head.data(), was_last: true });
    }
}
