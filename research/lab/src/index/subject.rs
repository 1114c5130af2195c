//! The subject of the calls: an index by itself, or the engine around it.

use std::fs;

use anyhow::{Context, Result, anyhow, bail};
use designs::{Variants, make_index};
use units::{Cpu, PAGE_SIZE, Page};
use zswap::{Index, Key, Word};

use crate::page;
use crate::pages::Swap;

/// Pages of this program that the engine stores, all equally often.
const CONTENTS: usize = 1024;

/// The cache of swap pages, without a backing device.
pub struct Whole {
    cache: Swap,
    contents: Vec<u8>,
}

/// The subject of the calls.
pub enum Subject {
    /// An index by itself.
    Alone(Box<dyn Index>),
    /// The engine with that index.
    Whole(Box<Whole>),
}

impl Subject {
    /// The index of that name, for this many pages and entries.
    pub fn alone(index: &str, pages: u32, cpus: usize) -> Result<Subject> {
        Ok(Subject::Alone(make_index(index, &host::Mmap, (u64::from(pages), pages, cpus))?))
    }

    /// The engine with the index of that name, and an area of this many pages.
    pub fn whole(index: &str, pages: u32) -> Result<Subject> {
        let own = fs::read("/proc/self/exe").context("/proc/self/exe")?;
        let variants = Variants { index: index.to_owned(), alike: true, ..Variants::default() };
        let cache = Swap::new(pages as usize, zcomp::DEFAULT_ALGORITHM, variants)?;
        let mut whole = Whole { cache, contents: Vec::new() };
        // Without a backing device the engine refuses pages that do not compress.
        let (cpu, key) = (host::cpu(), whole.key(0));
        let taken =
            |page: &&Page| whole.cache.zswap.store(cpu, key, &whole.cache.memcg, page).is_ok();
        let contents = page::pages(&own).filter(taken).take(CONTENTS).flatten().copied();
        whole.contents = contents.collect();
        whole.cache.zswap.invalidate_page(cpu, key);
        if whole.contents.len() < CONTENTS * PAGE_SIZE {
            bail!("/proc/self/exe has fewer than {CONTENTS} pages that compress");
        }
        Ok(Subject::Whole(Box::new(whole)))
    }

    /// Looks up a page that is there as `word`. The engine also reads the page.
    pub fn load(&self, cpu: Cpu, offset: u64, word: Word) -> Result<()> {
        match self {
            Subject::Alone(index) => match index.get(cpu, offset) {
                Some(found) if found == word => Ok(()),
                other => bail!("page {offset} gives {other:?} instead of {word:?}"),
            },
            Subject::Whole(whole) => {
                let mut into: Page = [0; PAGE_SIZE];
                let loaded = whole.cache.zswap.load_and_keep(cpu, whole.key(offset), &mut into);
                loaded.map_err(|error| anyhow!("loading page {offset}: {error:?}"))?;
                if into != *whole.content(word) {
                    bail!("page {offset} is not what was stored");
                }
                Ok(())
            }
        }
    }

    /// Stores a page in an empty place.
    pub fn store(&self, cpu: Cpu, offset: u64, word: Word) -> Result<()> {
        match self {
            Subject::Alone(index) => match index.insert(cpu, offset, word) {
                Ok(None) => Ok(()),
                other => bail!("storing at {offset} gives {other:?}"),
            },
            Subject::Whole(whole) => {
                let (key, page) = (whole.key(offset), whole.content(word));
                let stored = whole.cache.zswap.store(cpu, key, &whole.cache.memcg, page);
                stored.map_err(|reject| anyhow!("storing page {offset}: {reject:?}"))
            }
        }
    }

    /// Removes a page that is there as `word`.
    pub fn invalidate(&self, cpu: Cpu, offset: u64, word: Word) -> Result<()> {
        match self {
            Subject::Alone(index) => match index.remove(cpu, offset) {
                Some(found) if found == word => Ok(()),
                other => bail!("invalidating {offset} gives {other:?} instead of {word:?}"),
            },
            Subject::Whole(whole) => {
                whole.cache.zswap.invalidate_page(cpu, whole.key(offset));
                Ok(())
            }
        }
    }

    /// Checks the structure. Panics if it is inconsistent.
    pub fn validate(&self) {
        match self {
            Subject::Alone(index) => index.validate(),
            Subject::Whole(whole) => whole.cache.zswap.validate(),
        }
    }
}

impl Whole {
    fn key(&self, offset: u64) -> Key {
        Key { swap: self.cache.swap, offset }
    }

    fn content(&self, word: Word) -> &Page {
        page::page(&self.contents, word.number() as usize % CONTENTS)
    }
}
