//! `rampack-lab locks-sim` simulates contention between threads on more CPUs than there are.
//!
//! It simulates what threads do to each other from measurements of the same run: the cost of moving
//! a line and of waking a thread, and the time of one thread. It also measures the engine on two
//! threads and compares the simulation with that, before it is used for more threads.
//!
//! * [`schemes`]: the situations. [`engine`]: the simulated engine.
//! * [`points`], [`primitives`]: the measurements.
//! * [`study`]: measurements and simulation together.

mod engine;
mod points;
mod primitives;
pub mod schemes;
mod study;

pub use study::study as run;

#[cfg(test)]
mod tests;
