//! The trait of a target: the work stores pages to it and loads them.

use anyhow::Result;
use serde::Serialize;
use units::Page;

/// A store for pages by number. All threads may call it at any time, each for pages of its own.
pub trait Target: Sync {
    /// Stores `page` under `index`, in place of an earlier page.
    ///
    /// # Errors
    /// The error of the target, with the page's number.
    fn store(&self, index: u64, page: &Page) -> Result<()>;

    /// Loads the page last stored under `index`. `page` begins at a page boundary.
    ///
    /// # Errors
    /// The error of the target, with the page's number.
    fn load(&self, index: u64, page: &mut Page) -> Result<()>;

    /// The figures of the target now.
    fn figures(&self) -> Figures;

    /// Does the background work of a daemon between two passes.
    fn rest(&self) {}
}

/// The figures of a target, in bytes. `None` where the target does not report one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Figures {
    /// Uncompressed bytes of the pages it keeps.
    #[serde(rename = "orig_bytes")]
    pub orig: Option<u64>,
    /// Compressed bytes of the pages it keeps.
    #[serde(rename = "compressed_bytes")]
    pub compressed: Option<u64>,
    /// Memory of the compressed pages.
    #[serde(rename = "pool_bytes")]
    pub pool: Option<u64>,
    /// Memory of the tables that find the pages.
    #[serde(rename = "metadata_bytes")]
    pub metadata: Option<u64>,
}
