//! The designs that are tested here: the product's.

use crate::design::{Design, PRODUCT};

/// Every design.
pub const DESIGNS: &[Design] = &[PRODUCT];
