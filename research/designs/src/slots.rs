//! Schemes that guard slots. The product's own scheme is `bit-spinlock`.

mod epoch;
mod locked;

pub use epoch::Epoch;
pub use locked::{Cas, GlobalRwLock, Guard, Locked, RwLock, SpinLock};
