//! Every atomic, lock, reader epoch and per-CPU counter of the workspace.
//!
//! No other crate names `core::sync::atomic`: they use the types of [`atomic`]. So `--cfg loom`
//! puts this crate under loom, and `--cfg shuttle` puts the whole engine under shuttle. Every
//! waiter spins for a moment and then parks, because in userspace the holder of a lock may have
//! been preempted.

pub mod atomic;
mod backoff;
mod bitlock;
mod counter;
mod event_count;
mod mutex;
pub mod park;
mod percpu;
mod prefetch;
mod published;
mod reader_epochs;
mod retired;

pub use backoff::Backoff;
pub use bitlock::{LOCKED, WAITED, WORD_BITS, WaitQueues};
pub use counter::PerCpuCounters;
pub use crossbeam_utils::CachePadded;
pub use event_count::{EventCount, Ticket};
pub use mutex::{Mutex, MutexGuard};
pub use percpu::{PerCpu, lock_one};
pub use prefetch::{prefetch, prefetch_bytes, touch};
pub use published::Published;
pub use reader_epochs::{Reader, ReaderEpochs};
pub use retired::Retired;
pub use std::sync::OnceLock;

#[cfg(test)]
mod tests;
