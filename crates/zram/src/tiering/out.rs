//! Pages that leave memory for the backing device by themselves, and those that come back: what a
//! pass found, and what may be written when. `writeback` does it.

use alloc::vec::Vec;

use pagelog::Run;
use tiers::{Allowance, Memory};
use units::PAGE_SIZE;

/// The most pages that a pass finds for the backing device, and the most that it brings back.
const GOING: usize = 4096;
const COMING: usize = 256;
/// Fewer pages than are written together wait for others, but no longer than this many seconds.
const GATHERS: u32 = 60;
/// The seconds until the next try after a failure. They double with each failure.
const FIRST_WAIT: u32 = 8;
const LONGEST_WAIT: u32 = 3600;
/// What a page may take on the device at most, and what is added to each write.
const LARGEST: u64 = PAGE_SIZE as u64 + 64;
const PADDING: u64 = 2 * PAGE_SIZE as u64;

/// A page that is to leave memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    pub(crate) index: usize,
    /// The second of its last use, as the pass saw it.
    pub(crate) last_used: u32,
    /// What to remember of it once it has left.
    pub(crate) memory: Memory,
}

/// See the module.
pub(crate) struct Out {
    /// In the order of their numbers.
    pub(crate) going: Vec<Going>,
    /// Pages that are to come back, and what to remember of them then.
    pub(crate) coming: Vec<(usize, Memory)>,
    /// Of the pages that leave those that are written together.
    pub(crate) chosen: Vec<usize>,
    /// The memory in which pages go to the device, taken when the first ones do.
    pub(crate) run: Option<Run>,
    pub(crate) allowance: Allowance,
    /// When pages were written last; `None` until then.
    last: Option<u32>,
    /// The second of the next try, and the seconds to wait after another failure.
    next_try: u32,
    wait: u32,
    /// Bytes that were written.
    pub(crate) bytes: u64,
    /// Tries that failed.
    pub(crate) failures: u64,
}

impl Out {
    pub(crate) fn new(a_day: u64) -> Out {
        Out {
            going: Vec::new(),
            coming: Vec::new(),
            chosen: Vec::new(),
            run: None,
            allowance: Allowance::of_a_day(a_day),
            last: None,
            next_try: 0,
            wait: FIRST_WAIT,
            bytes: 0,
            failures: 0,
        }
    }

    /// Begins a pass. Without memory for lists no page leaves or comes back in it.
    pub(crate) fn begin(&mut self) {
        self.going.clear();
        self.coming.clear();
        if self.allowance.amount() > 0 {
            let _ = self.going.try_reserve_exact(GOING);
        }
    }

    /// Adds a page that is to leave, if there is room.
    pub(crate) fn add_going(&mut self, going: Going) {
        if self.going.len() < self.going.capacity() {
            self.going.push(going);
        }
    }

    /// Adds a page that is to come back. Returns false without room: then it comes later.
    pub(crate) fn add_coming(&mut self, index: usize, memory: Memory) -> bool {
        let room = self.coming.try_reserve_exact(COMING - self.coming.len());
        let fits = self.coming.len() < COMING && room.is_ok();
        if fits {
            self.coming.push((index, memory));
        }
        fits
    }

    /// How many pages may be written together now: `batch`, all that are left if these are fewer,
    /// or as many as half of what is ever saved up allows. 0 if fewer pages or bytes are there.
    pub(crate) fn affordable(&mut self, batch: usize, left: usize, now: u32) -> usize {
        let last = *self.last.get_or_insert(now);
        let pages = |bytes: u64| (bytes.saturating_sub(PADDING) / LARGEST) as usize;
        let gathers = left < batch && now.saturating_sub(last) < GATHERS;
        if now < self.next_try || gathers {
            return 0;
        }
        let wanted = batch.min(left).min(pages(self.allowance.most() / 2));
        if pages(self.allowance.left()) >= wanted { wanted } else { 0 }
    }

    /// Counts a write of `bytes`, and how it ended.
    pub(crate) fn count(&mut self, bytes: u64, is_good: bool, now: u32) {
        self.allowance.spend(bytes);
        self.bytes += bytes;
        self.last = Some(now);
        if is_good {
            self.wait = FIRST_WAIT;
            return;
        }
        self.failures += 1;
        self.next_try = now.saturating_add(self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}
