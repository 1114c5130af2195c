//! A few threads for tasks that may wait, so that these tasks block no other.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::line::Line;

/// How long a thread without a task stays.
const IDLE: Duration = Duration::from_secs(10);

/// Bytes of the stack of a thread: all of it is memory where the process locks its memory.
const STACK: usize = 512 << 10;

/// A task for a waiter.
pub type Task = Box<dyn FnOnce() + Send>;

/// Threads for tasks. A thread starts when there is a task, up to a limit, and ends after some
/// seconds without one. Tasks begin in the order they are given, except that an owner of tasks has
/// at most half of the threads that others leave. Any thread may call every method.
pub struct Waiters {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    most: usize,
    state: Mutex<State>,
    /// Signalled when a task comes, when a thread ends, and at the close.
    changed: Condvar,
}

struct State {
    tasks: Line<Task>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        write!(f, "{}: {} threads, {} tasks", self.shared.name, state.threads, state.tasks.len())
    }
}

impl Waiters {
    /// Allows at most `most` threads (at least one) with the name `name`; it starts none yet.
    #[must_use]
    pub fn new(name: &'static str, most: usize) -> Waiters {
        let most = most.max(1);
        let state = State { tasks: Line::new(0, most), threads: 0, idle: 0, closed: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Waiters { shared: Arc::new(Shared { name, most, state, changed }) }
    }

    /// Runs `task` of nobody in particular on a waiter: see [`Waiters::take_of`].
    ///
    /// # Errors
    /// Those of [`Waiters::take_of`].
    pub fn take(&self, task: Task) -> Result<(), Task> {
        self.take_of(None, task)
    }

    /// Runs `task` of `owner` on a waiter. A panic ends only its own task.
    ///
    /// # Errors
    /// Returns the task when this is closed; or, when there is no thread and none can be started, a
    /// task that does all that wait.
    pub fn take_of(&self, owner: Option<u64>, task: Task) -> Result<(), Task> {
        let shared = &self.shared;
        let mut state = shared.state();
        if state.closed {
            return Err(task);
        }
        state.tasks.put(owner, task);
        let is_one_more = state.tasks.len() > state.idle && state.threads < shared.most;
        // It counts from now on, so that no other thread starts one too many.
        state.threads += usize::from(is_one_more);
        drop(state);
        if is_one_more {
            self.start()?;
        }
        shared.changed.notify_one();
        Ok(())
    }

    /// Starts a thread that is counted already. The system may let it wait for memory, so it
    /// happens without the lock: other tasks find their threads meanwhile.
    fn start(&self) -> Result<(), Task> {
        let (shared, own) = (&self.shared, self.shared.clone());
        let thread = thread::Builder::new().name(shared.name.into()).stack_size(STACK);
        if thread.spawn(move || own.work()).is_ok() {
            return Ok(());
        }
        let mut state = shared.state();
        state.threads -= 1;
        // Without a thread nobody takes the tasks. Two callers may have counted on each other's.
        let left = if state.threads == 0 { state.tasks.drain() } else { Vec::new() };
        drop(state);
        shared.changed.notify_all();
        match left.is_empty() {
            true => Ok(()),
            false => Err(Box::new(move || left.into_iter().for_each(|task| task()))),
        }
    }

    /// The number of threads now.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.state().threads
    }

    /// Takes no more tasks, and waits for the tasks it has, at most for `backoff` if given. False
    /// if some are not done then.
    pub fn close(&self, backoff: Option<Duration>) -> bool {
        let shared = &*self.shared;
        let end = backoff.map(|backoff| Instant::now() + backoff);
        let mut state = shared.state();
        state.closed = true;
        shared.changed.notify_all();
        while state.threads > 0 {
            state = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    let waited = shared.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        self.close(Some(Duration::ZERO));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No task runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some((owner, task)) = state.tasks.take() {
                drop(state);
                // The panic hook has reported a panic; the owner of the task has its own guard.
                let _ = catch_unwind(AssertUnwindSafe(task));
                state = self.state();
                if state.tasks.done(owner) {
                    self.changed.notify_one();
                }
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE);
            let (woken, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.tasks.len() == 0 {
                break;
            }
        }
        state.threads -= 1;
        drop(state);
        self.changed.notify_all();
    }
}
