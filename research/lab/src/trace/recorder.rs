//! A layer that records which pages are used, and in which second.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use block::{
    Abilities, BlockDevice, Context, Geometry, IoError, Operation, RemoteStats, Scrubbed, Visit,
};
use sync::Mutex;
use units::{Cpu, PAGE_SIZE};

/// The most uses that are recorded.
pub const MOST_USES: usize = 1 << 22;

/// A use of a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Use {
    /// The second.
    pub second: u32,
    /// Whether the page is written, or else read. Reads come first in a second.
    pub writes: bool,
    /// The page.
    pub page: u32,
}

/// What was recorded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recorded {
    /// The uses, as they came.
    pub uses: Vec<Use>,
    /// How long it was recorded.
    pub seconds: u32,
}

/// A device in front of another one, whose requests it records.
pub struct Recorder {
    next: Arc<dyn BlockDevice>,
    seen: Mutex<Seen>,
}

struct Seen {
    /// `None` while nothing is recorded.
    begun: Option<Instant>,
    uses: Vec<Use>,
    /// Of each page the last use: its second plus one, twice, and one more if it was a write.
    last: Vec<u32>,
}

impl Seen {
    /// Notes a use of some pages in a second. Of several uses in one second one is enough: the
    /// write if there is one before or after a read, as a write brings the page up.
    fn note(&mut self, second: u32, pages: impl Iterator<Item = u64>, writes: bool) {
        for page in pages {
            let Some(last) = self.last.get_mut(page as usize) else { return };
            let code = (second + 1) * 2 + u32::from(writes);
            // A page that was never written holds nothing that could be read.
            if *last >= code || (*last == 0 && !writes) {
                continue;
            }
            *last = code;
            if self.uses.len() <= MOST_USES {
                self.uses.push(Use { second, writes, page: page as u32 });
            }
        }
    }
}

impl Recorder {
    /// A layer above `next`, which records nothing yet.
    pub fn new(next: Arc<dyn BlockDevice>) -> Recorder {
        let pages = next.geometry().bytes / PAGE_SIZE as u64;
        let seen = Seen { begun: None, uses: Vec::new(), last: vec![0; pages as usize] };
        Recorder { next, seen: Mutex::new(seen) }
    }

    /// Begins to record.
    pub fn begin(&self) {
        self.seen.lock().begun = Some(Instant::now());
    }

    /// Whether nothing was recorded yet.
    pub fn is_empty(&self) -> bool {
        self.seen.lock().uses.is_empty()
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// Nothing was used, or too much.
    pub fn end(&self) -> Result<Recorded> {
        let mut seen = self.seen.lock();
        let seconds = seen.begun.take().map_or(0, |begun| begun.elapsed().as_secs() as u32 + 1);
        let uses = std::mem::take(&mut seen.uses);
        match uses.len() {
            0 => bail!("nothing was swapped; raise --size or lower --limit"),
            many if many > MOST_USES => {
                bail!("more than {MOST_USES} uses; record for fewer --seconds")
            }
            _ => Ok(Recorded { uses, seconds }),
        }
    }

    fn record(&self, (offset, length): (u64, u64), writes: bool) {
        let page = PAGE_SIZE as u64;
        let pages = offset / page..offset.saturating_add(length).div_ceil(page);
        let mut seen = self.seen.lock();
        if let Some(begun) = seen.begun {
            seen.note(begun.elapsed().as_secs() as u32, pages, writes);
        }
    }
}

impl BlockDevice for Recorder {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }

    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (range, writes) = (operation.range(), operation.changes());
        // The kernel tells a swap device of no page that it frees, so discards do not come.
        let is_use = matches!(operation, Operation::Read { .. } | Operation::Write { .. });
        let done = self.next.perform(context, operation);
        if is_use && done.is_ok() {
            self.record(range, writes);
        }
        done
    }

    fn scrub(&self, cpu: Cpu, bad: &mut dyn FnMut(u64)) -> Result<Scrubbed, IoError> {
        self.next.scrub(cpu, bad)
    }

    fn remote(&self) -> Option<RemoteStats> {
        self.next.remote()
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_use_of_a_page_in_a_second() {
        let mut seen = Seen { begun: None, uses: Vec::new(), last: vec![0; 4] };
        seen.note(0, 0..3, false);
        assert_eq!(seen.uses, [], "nothing was written yet");
        seen.note(0, 1..3, true);
        seen.note(0, 0..4, false);
        seen.note(0, 1..2, true);
        seen.note(7, 1..2, false);
        seen.note(7, 1..2, false);
        seen.note(7, 1..9, true);
        let written = |second, page| Use { second, writes: true, page };
        let read = |second, page| Use { second, writes: false, page };
        let expected =
            [written(0, 1), written(0, 2), read(7, 1), written(7, 1), written(7, 2), written(7, 3)];
        assert_eq!(seen.uses, expected);
    }
}
