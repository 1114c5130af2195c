//! Splits bytes into pages.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use units::{PAGE_SIZE, Page};

use crate::sys::{Memory, memory};

/// The seed of all that is drawn at random of a dump.
pub const SEED: u64 = 1;

/// A dump, and how many pages of it are used. More than it has are its own over and over.
pub struct Corpus {
    /// The name of its file.
    pub name: String,
    dump: Memory,
    pub pages: usize,
}

impl Corpus {
    /// The whole pages of a file.
    pub fn read(path: &Path) -> Result<Corpus> {
        let name = path.file_stem().map_or_else(String::new, |it| it.to_string_lossy().into());
        let dump = read(path)?;
        Ok(Corpus { name, pages: dump.len() / PAGE_SIZE, dump })
    }

    /// Its first pages, as many as are used.
    pub fn used(&self) -> &[u8] {
        &self.dump[..self.bytes()]
    }

    /// The bytes of its pages.
    pub fn bytes(&self) -> usize {
        self.pages * PAGE_SIZE
    }

    pub fn page(&self, index: usize) -> &Page {
        page(&self.dump, index % (self.dump.len() / PAGE_SIZE))
    }

    /// Compares a page that came back.
    pub fn check(&self, index: usize, found: &[u8]) -> Result<()> {
        if found[..PAGE_SIZE] != self.page(index)[..] {
            bail!("page {index} of {} is not what was stored", self.name);
        }
        Ok(())
    }
}

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
    let mut memory = memory(bytes).with_context(|| format!("no memory for {shown}"))?;
    file.read_exact(&mut memory).with_context(|| format!("cannot read {shown}"))?;
    Ok(memory)
}
