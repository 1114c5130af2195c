//! What pages are stored in: the seam between the work and who does it.

use anyhow::Result;
use serde::Serialize;
use units::Page;

/// Something that keeps pages by number. All threads may call it at any time, each for pages of
/// its own.
pub trait Target: Sync {
    /// Keeps `page` under `index`, in place of what was there.
    ///
    /// # Errors
    /// The target's; it names the page.
    fn store(&self, index: u64, page: &Page) -> Result<()>;

    /// Brings back what was last stored under `index`. `page` begins on a page's boundary.
    ///
    /// # Errors
    /// The target's; it names the page.
    fn load(&self, index: u64, page: &mut Page) -> Result<()>;

    /// What the target tells of itself at this moment.
    fn figures(&self) -> Figures;

    /// Does what a daemon does of itself in the time between two passes.
    fn rest(&self) {}
}

/// What a target tells of itself, in bytes; `None` is what it does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Figures {
    /// Pages it keeps, uncompressed.
    #[serde(rename = "orig_bytes")]
    pub orig: Option<u64>,
    /// The same, compressed.
    #[serde(rename = "compressed_bytes")]
    pub compressed: Option<u64>,
    /// Memory it takes to keep them.
    #[serde(rename = "pool_bytes")]
    pub pool: Option<u64>,
    /// Memory it takes to know where they are.
    #[serde(rename = "metadata_bytes")]
    pub metadata: Option<u64>,
}
