//! Pages that are to be read from a backing device.

use block::IoError;
use units::Page;

use crate::backed::Backed;

/// The most pages that are read together.
pub const AT_ONCE: usize = 32;

/// A page that is to be read.
pub struct Wanted<'a> {
    /// The number of the page.
    pub index: usize,
    /// Where it was when the reader looked.
    pub place: Backed,
    /// Where its bytes go, as they were written: compressed or not.
    pub into: &'a mut Page,
    /// What became of it.
    pub result: Result<(), IoError>,
}
