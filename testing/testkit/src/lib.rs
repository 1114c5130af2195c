//! What the tests of every crate share. Only dev-dependencies name this crate.
//!
//! * [`Need`] and [`met`]: a test that wants root, FUSE, loop devices or a foreign program says so
//!   in its first line. Where something is missing the test prints what and which package brings
//!   it, and returns; under `RAMPACK_STRICT=1` it fails instead, so CI skips nothing unnoticed.
//!   What uses root runs under `cargo xtask test`, not under `cargo test` by itself.
//! * [`seed`] and [`Rng`]: random tests print the seed they ran with and repeat it from
//!   `RAMPACK_SEED`.
//! * [`TempDir`]: a directory that is gone after the test.
//! * [`dies`]: what must end the process, in a process of its own.
//! * [`CountingHeap`]: how often the heap is called.
//! * [`run`] and [`try_run`]: a foreign program whose failure shows its output.
//!
//! ```text
//! #[test]
//! fn fio_verifies_random_writes() {
//!     if !testkit::met("fio_verifies_random_writes", &[Need::program("fio", "fio")]) {
//!         return;
//!     }
//!     let mut rng = testkit::Rng::new(testkit::seed("fio_verifies_random_writes"));
//!     ...
//! }
//! ```

mod command;
mod dies;
mod heap;
mod need;
mod rng;
mod scratch;

pub use command::{Output, run, try_run};
pub use dies::dies;
pub use heap::CountingHeap;
pub use need::{Need, met};
pub use rng::{Rng, seed};
pub use scratch::TempDir;

#[cfg(test)]
mod tests;
