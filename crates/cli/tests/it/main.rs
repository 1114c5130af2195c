//! The built program: what it says, what it makes, and that nothing is left of it.

mod common;

mod bad_input;
mod commands;
mod filesystem;
mod killed;
mod nbd_doors;
mod trim;
