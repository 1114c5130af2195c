//! Test pages by their compressibility.
#![allow(dead_code, reason = "each benchmark uses some of this")]

use units::{PAGE_SIZE, Page};

/// The number of pages of a store. The contents repeat after [`DISTINCT`] pages.
pub const PAGES: u64 = 1024;
/// The most operations between two readings of the clock: less than [`PAGES`].
pub const AT_ONCE: u32 = 256;
const DISTINCT: usize = 64;

/// The compressibility of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Words, as in text: it compresses to a third or less.
    Compressible,
    /// One half is random.
    Half,
    /// Random: it is stored uncompressed.
    Incompressible,
    /// The same eight bytes repeated.
    SameFilled,
}

/// Pages of one kind of content.
pub struct Pages(Vec<Page>);

impl Pages {
    /// Makes the pages; they are the same each time.
    pub fn of(content: Content) -> Pages {
        let mut numbers = fastrand::Rng::with_seed(1);
        Pages((0..DISTINCT).map(|_| page(content, &mut numbers)).collect())
    }

    /// The contents of page `index` of a store.
    pub fn get(&self, index: u64) -> &Page {
        &self.0[index as usize % DISTINCT]
    }
}

fn page(content: Content, numbers: &mut fastrand::Rng) -> Page {
    const WORDS: [&[u8; 8]; 8] = [
        b"memory, ",
        b"pages   ",
        b"swapped ",
        b"the old ",
        b"and new ",
        b"stored, ",
        b"in order",
        b"\0\0\0\0\0\0\0\0",
    ];
    let mut page = [0; PAGE_SIZE];
    match content {
        Content::Compressible => {
            for word in page.chunks_exact_mut(8) {
                word.copy_from_slice(WORDS[numbers.usize(..WORDS.len())]);
            }
        }
        Content::Half => numbers.fill(&mut page[..PAGE_SIZE / 2]),
        Content::Incompressible => numbers.fill(&mut page),
        Content::SameFilled => {
            let pattern = numbers.u64(1..).to_ne_bytes();
            page.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&pattern));
        }
    }
    page
}
