//! Locks that only experiments need. They wait as the product's do, by [`sync::park`].

mod owned;
mod rwlock;
mod shared;

pub use owned::{disown, own};
pub use rwlock::{Guard, ReadGuard, RwLock, WriteGuard};
pub use shared::SharedWaitQueues;

#[cfg(test)]
mod tests;
