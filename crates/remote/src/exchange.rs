//! What goes to the stores and what comes from them. Only the thread of the device calls this.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use block::IoError;
use opendal::Buffer;
use sync::Mutex;
use sync::atomic::{AtomicU64, Ordering};
use tiers::Allowance;
use twox_hash::XxHash3_64;

use crate::breaker::Breaker;
use crate::chunks::{Check, Copy, Object};
use crate::options::Options;
use crate::store::{Failure, Store};

/// The bytes of a block: what is read at least, and has a checksum.
pub(crate) const BLOCK: usize = 4096;

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;

/// The stores of a device.
pub(crate) struct Exchange {
    stores: Vec<Store>,
    /// All objects of this device are in it.
    directory: String,
    copies: usize,
    /// Bytes a second, and requests an hour.
    bandwidth: Mutex<Option<Budget>>,
    requests: Mutex<Option<Budget>>,
    /// Objects that a store does not have any more, by their version and its number.
    lost: Mutex<HashMap<(u64, usize), Breaker>>,
    pub(crate) counts: Counts,
}

/// What may be spent, and when it earned last.
type Budget = (Allowance, Instant);

/// What has happened so far.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) uploaded: AtomicU64,
    pub(crate) downloaded: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) wrong: AtomicU64,
}

fn add(count: &AtomicU64, more: u64) {
    // Relaxed: only the sums matter.
    count.fetch_add(more, Ordering::Relaxed);
}

impl Exchange {
    pub(crate) fn new(stores: Vec<Store>, options: &Options, now: Instant) -> Exchange {
        let budget = |amount: Option<u64>, period| {
            let full = Allowance::new(amount?, period, amount?).full();
            Some((full, now))
        };
        Exchange {
            stores,
            directory: format!("rampack-{:016x}", fastrand::u64(..)),
            copies: options.copies,
            bandwidth: Mutex::new(budget(options.bandwidth, SECOND)),
            requests: Mutex::new(budget(options.requests, HOUR)),
            lost: Mutex::new(HashMap::new()),
            counts: Counts::default(),
        }
    }

    /// The directory of the objects of this device.
    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    /// The stores.
    pub(crate) fn stores(&self) -> &[Store] {
        &self.stores
    }

    fn name(&self, object: &Object) -> String {
        format!("{}/{:08x}-{:x}", self.directory, object.chunk, object.version)
    }

    /// Whether the budgets allow to write something now.
    pub(crate) fn may_write(&self, now: Instant) -> bool {
        let has_some = |budget| left(budget, now).is_none_or(|(left, _)| left > 0);
        has_some(&self.bandwidth) && has_some(&self.requests)
    }

    /// Whether something may be deleted now that can wait: half of the requests that may be saved
    /// up are for writes.
    pub(crate) fn may_delete(&self, now: Instant) -> bool {
        left(&self.requests, now).is_none_or(|(left, most)| left > most / 2)
    }

    /// Whether this many stores take writes now as must have a copy.
    pub(crate) fn enough_stores(&self, now: Instant) -> bool {
        self.stores.iter().filter(|store| store.may_write(now)).count() >= self.copies
    }

    /// Notes a request, and how it went.
    fn note<T>(&self, result: &Result<T, Failure>) {
        if matches!(result, Err(Failure::LeftAlone)) {
            return;
        }
        add(&self.counts.requests, 1);
        if let Some(budget) = &mut *self.requests.lock() {
            budget.0.spend(1);
        }
        if result.is_err() {
            add(&self.counts.failed, 1);
        }
    }

    /// Whether a store may be asked for an object now. One that it has lost is left alone for a
    /// while; its other objects are not.
    fn may_ask(&self, which: (u64, usize)) -> bool {
        let mut lost = self.lost.lock();
        lost.get_mut(&which).is_none_or(|breaker| breaker.allows(Instant::now()))
    }

    /// Notes that a store returned what was written in an object, or why not. What is wrong with
    /// one block says nothing of the others.
    fn judge_read(&self, which: (u64, usize), failure: Option<&Failure>) {
        self.stores[which.1].judge_read(failure.is_none());
        let mut lost = self.lost.lock();
        match failure {
            None => _ = lost.remove(&which),
            Some(Failure::Wrong) => {}
            Some(_) => _ = lost.entry(which).or_default().failed(Instant::now()),
        }
    }

    /// Reads blocks of a copy: of the first store that has them as they were written.
    ///
    /// # Errors
    /// `Corrupt` if a store returned something else, `Failed` if none answered or may be asked.
    pub(crate) async fn read(&self, copy: &Copy, blocks: Range<usize>) -> Result<Vec<u8>, IoError> {
        let checks = &copy.checks[blocks.clone()];
        let mut bytes = vec![0; checks.len() * BLOCK];
        let is_there = |check: &Check| *check != Check::Zero;
        let (Some(first), Some(last)) =
            (checks.iter().position(is_there), checks.iter().rposition(is_there))
        else {
            return Ok(bytes);
        };
        let object = copy.object.as_ref().ok_or(IoError::Corrupt)?;
        let (name, skip) = (self.name(object), blocks.start + first);
        let range = (skip * BLOCK) as u64..((blocks.start + last + 1) * BLOCK) as u64;
        let wanted = &mut bytes[first * BLOCK..(last + 1) * BLOCK];
        let mut error = IoError::Failed;
        let having = self.stores.iter().enumerate();
        for (n, store) in having.filter(|(n, _)| object.stores & 1 << n != 0) {
            let which = (object.version, n);
            if !self.may_ask(which) {
                continue;
            }
            let read = store.read(&name, range.clone()).await;
            let read = read.and_then(|read| match fits(&read, &checks[first..=last], skip) {
                true => Ok(read),
                false => Err(Failure::Wrong),
            });
            self.note(&read);
            match read {
                Ok(read) => {
                    self.judge_read(which, None);
                    add(&self.counts.downloaded, read.len() as u64);
                    let blocks = wanted.chunks_exact_mut(BLOCK).zip(read.chunks_exact(BLOCK));
                    let checked = blocks.zip(&checks[first..=last]);
                    for ((into, from), _) in checked.filter(|(_, check)| is_there(check)) {
                        into.copy_from_slice(from);
                    }
                    return Ok(bytes);
                }
                Err(failure @ (Failure::Wrong | Failure::Refused(_))) => {
                    self.judge_read(which, Some(&failure));
                    if matches!(failure, Failure::Wrong) {
                        add(&self.counts.wrong, 1);
                        error = IoError::Corrupt;
                    }
                    store.tell(format_args!("{name}"), &failure);
                }
                Err(_) => {}
            }
        }
        Err(error)
    }

    /// Writes a chunk to the stores. Returns its copy if as many have it as are wanted, and
    /// otherwise the object that some may have.
    pub(crate) async fn write(
        &self,
        chunk: usize,
        version: u64,
        bytes: Vec<u8>,
    ) -> Result<Copy, Object> {
        let checks: Arc<[Check]> =
            bytes.chunks_exact(BLOCK).enumerate().map(|(n, block)| check(n, block)).collect();
        let mut object = Object { chunk, version, stores: 0 };
        let Some(last) = checks.iter().rposition(|check| *check != Check::Zero) else {
            return Ok(Copy { object: None, checks });
        };
        let name = self.name(&object);
        let all = Buffer::from(bytes).slice(..(last + 1) * BLOCK);
        if let Some(budget) = &mut *self.bandwidth.lock() {
            budget.0.spend(all.len() as u64);
        }
        let mut written = 0;
        for (n, store) in self.stores.iter().enumerate() {
            let result = store.write(&name, all.clone()).await;
            self.note(&result);
            match result {
                Ok(()) => {
                    written += 1;
                    object.stores |= 1 << n;
                    add(&self.counts.uploaded, all.len() as u64);
                }
                Err(Failure::LeftAlone) => {}
                // A store that did not answer may have written it all the same.
                Err(failure) => {
                    object.stores |= 1 << n;
                    store.tell(format_args!("{name} is not written"), &failure);
                }
            }
        }
        match written >= self.copies {
            true => Ok(Copy { object: Some(Arc::new(object)), checks }),
            false => Err(object),
        }
    }

    /// Deletes an object from all stores that may have it. Returns whether it is gone.
    pub(crate) async fn delete(&self, object: &Object) -> bool {
        let name = self.name(object);
        let mut gone = true;
        let stores = self.stores.iter().enumerate();
        for (n, store) in stores.filter(|(n, _)| object.stores & 1 << n != 0) {
            let result = store.delete(&name).await;
            self.note(&result);
            gone &= result.is_ok();
            self.lost.lock().remove(&(object.version, n));
        }
        gone
    }

    /// Deletes the directory of the objects, which is empty, where a store has directories.
    pub(crate) async fn delete_directory(&self) {
        for store in &self.stores {
            // It takes no room.
            let _ = store.delete(&format!("{}/", self.directory)).await;
        }
    }
}

/// What is left of a budget now, and the most that may be saved up; `None` if there is no limit.
fn left(budget: &Mutex<Option<Budget>>, now: Instant) -> Option<(u64, u64)> {
    budget.lock().as_mut().map(|(left, at)| {
        left.earn(now.saturating_duration_since(*at).as_nanos() as u64);
        *at = now;
        (left.left(), left.most())
    })
}

/// What block `n` of a chunk must be like. The number is part of the sum: a block at another place
/// is wrong.
fn check(n: usize, block: &[u8]) -> Check {
    match block.iter().all(|byte| *byte == 0) {
        true => Check::Zero,
        false => Check::Sum(XxHash3_64::oneshot_with_seed(n as u64, block)),
    }
}

/// Whether blocks from number `first` on are as they were written.
fn fits(bytes: &[u8], checks: &[Check], first: usize) -> bool {
    let blocks = bytes.chunks_exact(BLOCK).zip(checks).enumerate();
    let mut sums = blocks.filter(|(_, (_, check))| **check != Check::Zero);
    sums.all(|(n, (block, want))| check(first + n, block) == *want)
}
