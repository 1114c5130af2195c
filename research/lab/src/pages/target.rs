//! The trait of a target: the work stores pages to it and loads them.

use anyhow::Result;
use serde::Serialize;
use units::{PAGE_SIZE, Page};

use crate::page::{pages, pages_mut};

/// A store for pages by number. All threads may call it at any time. An error names the page.
pub trait Target: Send + Sync {
    /// Stores `page` under `index`, in place of an earlier page.
    fn store(&self, index: u64, page: &Page) -> Result<()>;

    /// Loads the page last stored under `index`. `page` begins at a page boundary.
    fn load(&self, index: u64, page: &mut Page) -> Result<()>;

    /// Stores whole pages from `offset` on, in one call if it can.
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        (offset / PAGE_SIZE as u64..).zip(pages(from)).try_for_each(|(n, page)| self.store(n, page))
    }

    /// Loads whole pages from `offset` on, in one call if it can.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut pages = (offset / PAGE_SIZE as u64..).zip(pages_mut(into));
        pages.try_for_each(|(n, page)| self.load(n, page))
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
