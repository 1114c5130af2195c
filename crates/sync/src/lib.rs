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
mod owned;
mod owner;
mod park;
mod percpu;
mod prefetch;
mod published;
mod reader_epochs;
mod retired;
mod rwlock;
mod shared;
mod system;

pub use backoff::Backoff;
pub use bitlock::{LOCKED, WAITED, WORD_BITS, WaitQueues};
pub use counter::PerCpuCounters;
pub use crossbeam_utils::CachePadded;
pub use event_count::{EventCount, Ticket};
pub use mutex::{Mutex, MutexGuard};
pub use owned::{disown, own};
pub use owner::{OwnerGuard, OwnerMutex};
pub use percpu::PerCpu;
pub use prefetch::{prefetch, prefetch_bytes, touch};
pub use published::Published;
pub use reader_epochs::{Reader, ReaderEpochs};
pub use retired::Retired;
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use shared::SharedWaitQueues;
pub use system::{SystemGuard, SystemMutex};

#[cfg(test)]
mod tests;
