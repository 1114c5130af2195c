//! Pages that are written as they were compressed.

use units::{Cpu, Page};

use crate::IoError;

/// A page on its way to a device of [`PackedPages`].
pub struct Packed<'a> {
    /// The number of the page on the device.
    pub page: u64,
    /// The name of the codec that made the bytes; `None` if they are the page itself.
    pub codec: Option<&'static str>,
    /// The compressed page, or the whole page.
    pub bytes: &'a [u8],
    /// The result, set when the page is written.
    pub result: Result<(), IoError>,
}

impl<'a> Packed<'a> {
    /// A page as it is.
    #[must_use]
    pub const fn whole(page: u64, bytes: &'a Page) -> Packed<'a> {
        Packed { page, codec: None, bytes, result: Ok(()) }
    }
}

/// A device that takes pages as they were compressed, and expands them when they are read. Any
/// number of threads may call every method at once.
pub trait PackedPages: Send + Sync {
    /// Whether it takes pages now that the codec of this name has compressed without a dictionary.
    fn takes(&self, codec: &str) -> bool;

    /// Writes pages before it returns, each atomically, and sets the result of each. A compressed
    /// page is of a codec that the device has said to take, and is shorter than a page. May wait.
    fn write_packed(&self, cpu: Cpu, pages: &mut [Packed<'_>]);
}
