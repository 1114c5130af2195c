//! Pages by how well they shrink.
#![allow(dead_code, reason = "each benchmark uses some of this")]

use rampack::{PAGE_SIZE, Page};

/// Pages of a store. Those of a content repeat after [`DISTINCT`] of them.
pub const PAGES: u64 = 1024;
/// What a benchmark does at most between two readings of the clock: less than [`PAGES`].
pub const AT_ONCE: u32 = 256;
const DISTINCT: usize = 64;

/// How well a page shrinks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Words, as in text: to a third or less.
    Compressible,
    /// Random in one half.
    Half,
    /// Random: it is kept as it is.
    Incompressible,
    /// The same eight bytes over and over.
    SameFilled,
}

/// Pages with a content.
pub struct Pages(Vec<Page>);

impl Pages {
    /// The same each time.
    pub fn of(content: Content) -> Pages {
        let mut numbers = fastrand::Rng::with_seed(1);
        Pages((0..DISTINCT).map(|_| page(content, &mut numbers)).collect())
    }

    /// What page `index` of a store holds.
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
