//! A device whose pages can be held: an operation on a held page waits until it is released.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use units::{Cpu, PAGE_SIZE};

/// A RAM disk that can be resized up to its first size.
pub struct Gated {
    inner: Plain,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bytes: u64,
    slow: BTreeSet<u64>,
    /// Discards take as long as pages are held, also if they may not wait.
    long_discards: bool,
    waiting: usize,
}

const PATIENCE: Duration = Duration::from_secs(60);

fn pages(offset: u64, length: u64) -> Range<u64> {
    let page = PAGE_SIZE as u64;
    offset / page..(offset + length).div_ceil(page)
}

impl Gated {
    pub fn new(bytes: usize) -> Gated {
        let state = State { bytes: bytes as u64, ..State::default() };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Gated { inner: Plain::new(bytes), state, changed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn resize(&self, bytes: u64) -> String {
        self.state().bytes = bytes;
        String::new()
    }

    pub fn hold(&self, page: u64) -> String {
        self.state().slow.insert(page);
        String::new()
    }

    pub fn lengthen_discards(&self) -> String {
        self.state().long_discards = true;
        String::new()
    }

    pub fn release(&self) -> String {
        let mut state = self.state();
        (state.slow, state.long_discards) = (BTreeSet::new(), false);
        drop(state);
        self.changed.notify_all();
        String::new()
    }

    pub fn until_waiting(&self, count: usize) -> Result<String, &'static str> {
        let few = |state: &mut State| state.waiting < count;
        let waited = self.changed.wait_timeout_while(self.state(), PATIENCE, few);
        let timed_out = waited.unwrap_or_else(PoisonError::into_inner).1;
        if timed_out.timed_out() { Err("they never came to wait") } else { Ok(String::new()) }
    }
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.state().bytes, ..self.inner.geometry() }
    }

    fn abilities(&self) -> Abilities {
        Abilities { flush: true, ..self.inner.abilities() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        let mut state = self.state();
        let is_discard =
            matches!(operation, Operation::Discard { .. } | Operation::WriteZeroes { .. });
        let is_held = |state: &State| state.slow.range(pages(offset, length)).next().is_some();
        let is_slow = |state: &mut State| is_held(state) || is_discard && state.long_discards;
        if is_held(&state) {
            context.may_wait()?;
        }
        state.waiting += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, PATIENCE, is_slow);
        let (mut state, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        drop(state);
        if timed_out.timed_out() {
            return Err(IoError::Failed);
        }
        self.inner.perform(context, operation)
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.inner.extents(cpu, offset, length, visit)
    }
}
