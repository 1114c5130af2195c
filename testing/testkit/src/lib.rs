//! The helpers that the tests of every crate share. Only dev-dependencies name this crate.
//!
//! * [`Need`] and [`met`]: a test that needs root, FUSE, loop devices or a foreign program says so
//!   in its first line. If something is missing, the test prints its name and its package, and
//!   returns. Under `RAMPACK_STRICT=1` the test fails instead, so CI skips no test unnoticed. Tests
//!   that use root run under `cargo xtask test`, not under plain `cargo test`.
//! * [`seed`] and [`Rng`]: random tests print their seed, and `RAMPACK_SEED` repeats a run.
//! * [`cases`]: how many cases such a test tries, and [`asked`], which a variable sets.
//! * [`TempDir`]: a directory that is removed after the test.
//! * [`dies`]: runs code that must end its process in a child process.
//! * [`Ends`]: tells threads to end, also when the test fails.
//! * [`CountingHeap`]: counts the calls of the heap.
//! * [`run`] and [`try_run`]: run a foreign program and show its output on failure.
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

mod amount;
mod command;
mod dies;
mod ends;
mod heap;
mod need;
mod rng;
mod scratch;

pub use amount::{asked, cases, is_long};
pub use command::{Output, attach_loop, copy_program, run, script, try_run};
pub use dies::dies;
pub use ends::Ends;
pub use heap::CountingHeap;
pub use need::{Need, met};
pub use rng::{Rng, seed};
pub use scratch::TempDir;

#[cfg(test)]
mod tests;
