//! Calls of a function of the caller. They are over when he has freed what the function came with.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The calls of a function.
#[derive(Default)]
pub struct Calls {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    are_over: bool,
    /// The threads that are in a call.
    under_way: Vec<ThreadId>,
}

impl Calls {
    /// Calls the function with `call`, unless its calls are over. It does not unwind.
    pub fn make(&self, call: impl FnOnce()) {
        let thread = thread::current().id();
        let mut state = self.state();
        if state.are_over {
            return;
        }
        state.under_way.push(thread);
        drop(state);
        call();
        let mut state = self.state();
        if let Some(at) = state.under_way.iter().position(|it| *it == thread) {
            state.under_way.swap_remove(at);
        }
        self.ended.notify_all();
    }

    /// Waits for the calls of other threads; the function itself may free what it came with. Later
    /// there are none.
    fn end(&self) {
        let mut state = self.state();
        state.are_over = true;
        let thread = thread::current().id();
        while state.under_way.iter().any(|it| *it != thread) {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the caller has and the function came with. The calls are over when it is dropped.
#[derive(Default)]
pub struct Owner(Arc<Calls>);

impl Owner {
    /// The calls of the function.
    pub fn calls(&self) -> Arc<Calls> {
        self.0.clone()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn an_owner_ends_after_the_call_that_is_under_way_and_then_there_is_none() {
        let owner = Owner::default();
        let calls = owner.calls();
        let ((begun, has_begun), (end, may_end)) = (channel(), channel());
        let (done, is_done) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                calls.make(move || {
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    done.send("call").unwrap();
                });
            });
            has_begun.recv().unwrap();
            let ends = scope.spawn(move || drop(owner));
            // Calls are refused from when the owner waits.
            while !calls.state().are_over {
                thread::yield_now();
            }
            assert!(!ends.is_finished(), "it did not wait");
            end.send(()).unwrap();
            ends.join().unwrap();
            assert_eq!(is_done.try_recv(), Ok("call"));
        });
        calls.make(|| panic!("a call after its end"));
    }

    #[test]
    fn a_function_may_free_what_it_came_with() {
        let owner = Owner::default();
        let calls = owner.calls();
        calls.make(move || drop(owner));
        calls.make(|| panic!("a call after its end"));
    }
}
