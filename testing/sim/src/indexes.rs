//! The tests that every index of a swap area must pass, under one thread and under many.
//!
//! A test may call the parts one by one; [`index`] calls all of them. A part panics with the fault
//! it found, and with the seed if it uses random numbers.
//!
//! * [`against_model`], [`small_scenarios`], [`vast`]: one thread, and a map with the right
//!   answers.
//! * [`owners`]: every inserted word comes out once, whichever thread takes it.
//! * [`neighbours`]: lookups find untouched entries while other threads change the entries beside
//!   them.
//! * [`versions`]: a lookup returns a word that was present between its beginning and its end.
//! * [`histories`]: some order of a few concurrent calls explains all of their results.

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
/// When the index breaks the contract of `zswap::Index`.
pub fn index(seed: u64, make: Make<'_>) {
    small_scenarios(make);
    vast(make);
    against_model(seed, make);
    owners(seed, make);
    neighbours(seed, make);
    versions(seed, make);
    histories(seed, make);
}
