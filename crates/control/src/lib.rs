//! What an operator can see and turn: attribute rows, and the errors they answer with.
//!
//! An attribute is defined once, as a [`Row`] beside the data it reads, with the kernel's name,
//! format and error numbers. A [`tree`] of directories holds them. Frontends (the CLI, a control
//! socket, files in a FUSE mount) render the tree and define nothing.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod errno;
mod row;
pub mod tree;

pub use errno::{Errno, Fault};
pub use row::{Access, Bound, Object, Row, RowInfo};

#[cfg(test)]
mod tests;
