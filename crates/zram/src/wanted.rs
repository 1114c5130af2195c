//! Pages that are to be read from a backing device.

use block::IoError;
use units::Page;

use crate::slot::Backed;

/// The most pages that are read together.
pub(crate) const AT_ONCE: usize = 32;

/// A page that is to be read.
pub(crate) struct Wanted<'a> {
    /// The number of the page.
    pub(crate) index: usize,
    /// Where it was when the reader looked.
    pub(crate) place: Backed,
    /// Where its bytes go, as they were written: compressed or not.
    pub(crate) into: &'a mut Page,
    /// What became of it.
    pub(crate) result: Result<(), IoError>,
}
