//! Attributes for the operator, and their errors.
//!
//! An [`Attribute`] is defined once, beside the data it reads, with the kernel's name, format and
//! error numbers. A [`tree`] of directories holds them. Frontends (the CLI, a control socket, files
//! in a FUSE mount) render the tree and define nothing.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attribute;
mod errno;
mod switch;
mod text;
pub mod tree;
mod uri;

pub use attribute::{Absolute, Access, Attribute, AttributeInfo, Bound, Number, Object, ValueKind};
pub use errno::{ControlError, Errno};
pub use switch::parse_switch;
pub use text::{bytes_of, text_of};
pub use uri::without_secrets;

#[cfg(test)]
mod tests;
