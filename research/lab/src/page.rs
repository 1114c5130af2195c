//! Splits bytes into pages.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use units::{PAGE_SIZE, Page};

use crate::sys::Memory;

/// The pages of `bytes`, without a rest shorter than a page.
pub fn pages(bytes: &[u8]) -> impl ExactSizeIterator<Item = &Page> {
    bytes.chunks_exact(PAGE_SIZE).map(|chunk| chunk.try_into().expect("a chunk is a page long"))
}

/// Page `index` of `bytes`. Panics if `index` is out of range.
#[inline]
pub fn page(bytes: &[u8], index: usize) -> &Page {
    bytes[index * PAGE_SIZE..][..PAGE_SIZE].try_into().expect("a slice is a page long")
}

/// Page `index` of `bytes`, writable. Panics if `index` is out of range.
#[inline]
pub fn page_mut(bytes: &mut [u8], index: usize) -> &mut Page {
    (&mut bytes[index * PAGE_SIZE..][..PAGE_SIZE]).try_into().expect("a slice is a page long")
}

/// The whole pages of a file, in memory of our own.
pub fn read(path: &Path) -> Result<Memory> {
    let shown = path.display();
    let mut file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let bytes = usize::try_from(file.metadata()?.len())?;
    let bytes = bytes - bytes % PAGE_SIZE;
    if bytes == 0 {
        bail!("{shown} is no corpus: it has not even one page of {PAGE_SIZE} bytes");
    }
    let mut memory = Memory::new(bytes).with_context(|| format!("no memory for {shown}"))?;
    file.read_exact(&mut memory).with_context(|| format!("cannot read {shown}"))?;
    Ok(memory)
}
