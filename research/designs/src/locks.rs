//! Locks that only experiments need. They wait as the product's do, by [`sync::park`].

mod owned;
mod owner;
mod rwlock;
mod shared;
mod system;

pub use owned::{disown, own};
pub use owner::{OwnerGuard, OwnerMutex};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use shared::SharedWaitQueues;
pub use system::{SystemGuard, SystemMutex};

#[cfg(test)]
mod tests;
