//! The commands of swap devices.

pub mod commands;
pub mod progress;
pub mod selftest;
pub(crate) mod status;
