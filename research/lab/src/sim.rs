//! A simulated machine of more CPUs than there are: what `locks-sim`, `index` and `zone-sim` stand
//! on.
//!
//! * [`machine`]: CPUs with a thread each, and events in the order of time.
//! * [`lines`]: cache lines, and what moving one costs; [`lock`], [`locking`]: the product's locks.

pub mod lines;
pub mod lock;
mod locking;
pub mod machine;
