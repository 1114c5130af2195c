//! The end of threads that go on until they are told.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag when it is dropped, also by a test that fails: a scope waits for all its threads,
/// and one that nobody tells to end would hold up the whole run.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
