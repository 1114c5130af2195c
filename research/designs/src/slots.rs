//! Schemes that guard slots. The product's own scheme is `bit-spinlock`.

mod cas;
mod epoch;
mod global_rw_lock;
mod lock_beside;

pub use cas::Cas;
pub use epoch::Epoch;
pub use global_rw_lock::GlobalRwLock;
pub use lock_beside::{LockBeside, RwLock, SpinLock, WordLock};
