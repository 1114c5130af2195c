//! The trait of a target: the work stores pages to it and loads them.

use anyhow::Result;
use serde::Serialize;
use units::{PAGE_SIZE, Page};

/// A store for pages by number. All threads may call it at any time. An error names the page.
pub trait Target: Send + Sync {
    /// Stores whole pages from `offset` on.
    fn write(&self, offset: u64, from: &[u8]) -> Result<()>;

    /// Loads whole pages from `offset` on. `into` begins at a page boundary.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Stores `page` under `index`, in place of an earlier page.
    #[inline]
    fn store(&self, index: u64, page: &Page) -> Result<()> {
        self.write(index * PAGE_SIZE as u64, page)
    }

    /// Loads the page last stored under `index`. `page` begins at a page boundary.
    #[inline]
    fn load(&self, index: u64, page: &mut Page) -> Result<()> {
        self.read(index * PAGE_SIZE as u64, page)
    }

    /// The figures of the target now.
    fn figures(&self) -> Figures {
        Figures::default()
    }

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
