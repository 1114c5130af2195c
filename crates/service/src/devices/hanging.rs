//! Whether an end by force waits for something that hangs: for lack of progress alone, because a
//! flush may take long.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use sync::Mutex;
use sync::atomic::{AtomicBool, Ordering};

/// So many looks whether something was written meanwhile.
const LOOKS: u32 = 10;

/// What an end by force waits for, and what became of that.
pub(super) struct Waits {
    /// The number of the disk that is unmounted or detached, now or last: it gets what the kernel
    /// has not written yet.
    flushed: Mutex<Option<u32>>,
    was_cut: AtomicBool,
}

impl Waits {
    pub(super) fn new() -> Waits {
        Waits { flushed: Mutex::new(None), was_cut: AtomicBool::new(false) }
    }

    pub(super) fn note_flushed(&self, id: u32) {
        *self.flushed.lock() = Some(id);
    }

    pub(super) fn flushed(&self) -> Option<u32> {
        *self.flushed.lock()
    }

    /// Were requests to devices cut off? Then some of what was written is missing.
    pub(super) fn was_cut(&self) -> bool {
        self.was_cut.load(Ordering::Relaxed)
    }

    pub(super) fn note_cut(&self) {
        self.was_cut.store(true, Ordering::Relaxed);
    }
}

/// Waits until `is_done` ends. True once `progress` has been the same for `patience`.
pub(super) fn hangs<T: PartialEq>(
    is_done: &Receiver<()>,
    patience: Duration,
    mut progress: impl FnMut() -> T,
) -> bool {
    let (mut before, mut end) = (progress(), Instant::now() + patience);
    while is_done.recv_timeout(patience / LOOKS) == Err(RecvTimeoutError::Timeout) {
        let now = progress();
        if now != before {
            (before, end) = (now, Instant::now() + patience);
        } else if Instant::now() >= end {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_goes_on_does_not_hang() {
        const ALL: u32 = 50;
        let patience = Duration::from_millis(20);
        let (_done, is_done) = channel();
        let mut written = 0;
        let write = || {
            written = ALL.min(written + 1);
            written
        };
        assert!(hangs(&is_done, patience, write));
        assert_eq!(written, ALL);
        // What ends does not hang.
        let (done, is_done) = channel();
        let mut done = Some(done);
        let mut written = 0;
        let write = || {
            written += 1;
            if written == ALL {
                done = None;
            }
            written
        };
        assert!(!hangs(&is_done, patience, write));
    }
}
