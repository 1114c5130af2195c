//! Layers: devices that own the next device.
//!
//! They are part of the product: a user can put a fault layer into a chain, as the tests do.

mod fault;
mod part;

pub use fault::{Fault, FaultPlan};
pub use part::Part;
