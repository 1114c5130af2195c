//! The standard library's mutex, for comparison in measurements. No model checker knows it.

use std::sync::Mutex;

/// The guard of a [`SystemMutex`].
pub type SystemGuard<'a, T> = std::sync::MutexGuard<'a, T>;

/// The standard library's mutex, which ignores poisoning: a panic of a holder does not spoil it.
pub struct SystemMutex<T>(Mutex<T>);

impl<T> SystemMutex<T> {
    /// Makes a free lock around `value`.
    pub fn new(value: T) -> SystemMutex<T> {
        SystemMutex(Mutex::new(value))
    }

    /// Takes the lock, and waits for it if necessary. Not fair, not re-entrant.
    #[inline]
    pub fn lock(&self) -> SystemGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
