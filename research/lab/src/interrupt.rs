//! Stops the lab on request, as the soak does.

#[path = "../../../testing/soak/src/interrupt.rs"]
mod soak;

pub use soak::{check, wait_for, watch};
