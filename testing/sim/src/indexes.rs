//! What every index of a swap area must pass, alone and under many threads.
//!
//! The parts can be called one by one; [`index`] calls all of them. Each panics with what it found,
//! and with the seed where chance is involved.
//!
//! * [`against_model`], [`small_scenarios`], [`vast`]: one thread, and a map that says what is
//!   right.
//! * [`owners`]: every word that was put in comes out once, whoever takes it.
//! * [`neighbours`]: what nobody touches is found, whatever happens beside it.
//! * [`versions`]: a lookup gives what was there between its beginning and its end.
//! * [`histories`]: of a few calls at once, results that some order of them explains.

mod alone;
mod crowd;
mod history;
mod make;
mod numbers;

pub use alone::{against_model, small_scenarios, vast};
pub use crowd::{neighbours, owners, versions};
pub use history::{Call, History, Outcome, histories};
pub use make::{Make, edges};
pub use numbers::{Numbers, word};

/// The whole suite.
///
/// # Panics
/// When the index breaks the contract of [`Index`].
pub fn index(seed: u64, make: Make<'_>) {
    small_scenarios(make);
    vast(make);
    against_model(seed, make);
    owners(seed, make);
    neighbours(seed, make);
    versions(seed, make);
    histories(seed, make);
}
