//! Where each page of a [`LogDevice`](crate::LogDevice) is: one word a page.
//!
//! | bits | what |
//! |---|---|
//! | 0–31 | the place in the log, or the fill pattern |
//! | 32–44 | the bytes of the object; 0 of a page that is not in the log |
//! | 45–49 | the codec of a compressed page, less one: 0 is that of the device |
//! | 62 | lost: the page cannot be read until it is written again |
//! | 63 | same-filled: the page repeats the pattern |
//!
//! A page whose word is 0 was never written, or was discarded: it reads as zeroes.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use units::PAGE_SIZE;

use crate::backed::{Backed, Coded};
use crate::codecs::{LAST, NONE};

const LOST: u64 = 1 << 62;
const FILLED: u64 = 1 << 63;

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whereabouts {
    /// Nowhere: it reads as zeroes.
    Hole,
    /// Here: it repeats a pattern, both of whose halves are equal.
    Filled(u64),
    /// In the log.
    Logged(Backed),
    /// It was said to be where nothing can be: it cannot be read.
    Lost,
}

impl Whereabouts {
    /// A page that repeats `pattern`; `None` unless both halves of the pattern are equal.
    pub(crate) const fn filled(pattern: u64) -> Option<Whereabouts> {
        match pattern as u32 == (pattern >> 32) as u32 {
            true => Some(Whereabouts::Filled(pattern)),
            false => None,
        }
    }

    const fn word(self) -> u64 {
        match self {
            Whereabouts::Hole => 0,
            Whereabouts::Filled(pattern) => pattern & u32::MAX as u64 | FILLED,
            Whereabouts::Logged(Backed { at, form }) => {
                let codec = form.codec.saturating_sub(1);
                Backed { at, form: Coded { codec, ..form } }.word()
            }
            Whereabouts::Lost => LOST,
        }
    }

    /// Of a word that no process can have written, a lost page is made.
    fn of(word: u64) -> Whereabouts {
        let (low, Backed { at, form }) = (word as u32 as u64, Backed::from_word(word));
        let codec = form.codec + 1;
        let logged = |codec| Whereabouts::Logged(Backed { at, form: Coded { codec, ..form } });
        let whereabouts = match (word & FILLED, form.length as usize) {
            (0, 0) => Whereabouts::Hole,
            (0, 1..PAGE_SIZE) if codec <= LAST => logged(codec),
            (0, PAGE_SIZE) => logged(NONE),
            (0, _) => Whereabouts::Lost,
            (_, _) => Whereabouts::Filled(low | low << 32),
        };
        if whereabouts.word() == word { whereabouts } else { Whereabouts::Lost }
    }
}

/// The words of all pages. Any number of threads may call every method at once.
pub(crate) struct Table(LazyTable<AtomicU64>);

impl Table {
    /// A table of holes, or what another process left in the memory of the provider. All of its
    /// memory is there.
    pub(crate) fn new(provider: &dyn MemoryProvider, pages: u64) -> Result<Table, NoMemory> {
        let pages = usize::try_from(pages).map_err(|_| NoMemory { bytes: usize::MAX })?;
        Ok(Table(LazyTable::provided(provider, pages)?))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, index: usize) -> Whereabouts {
        // Acquire pairs with the Release in `set` and `replace`: the object has been written.
        Whereabouts::of(self.0.get(index).load(Ordering::Acquire))
    }

    /// Whether a page was noted as lost, rather than found to be.
    pub(crate) fn is_lost(&self, index: usize) -> bool {
        // Relaxed: nothing is read by it.
        self.0.get(index).load(Ordering::Relaxed) == LOST
    }

    /// Lets a page be elsewhere from now on. Returns where it was.
    pub(crate) fn set(&self, index: usize, to: Whereabouts) -> Whereabouts {
        // Release pairs with the Acquire in `get`. Acquire: what is freed then was written before.
        Whereabouts::of(self.0.get(index).swap(to.word(), Ordering::AcqRel))
    }

    /// Lets a page that is at `old` be at `new`. Returns false if it is not there any more.
    pub(crate) fn replace(&self, index: usize, old: Backed, new: Backed) -> bool {
        let [old, new] = [old, new].map(|place| Whereabouts::Logged(place).word());
        // Release pairs with the Acquire in `get`.
        let swapped =
            self.0.get(index).compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
        swapped.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH_SHIFT: u32 = 32;
    const CODEC_SHIFT: u32 = 45;

    fn form(block: u32, length: u16, codec: u8) -> Backed {
        let at = Backed::from_word(block.into()).at;
        Backed { at, form: Coded { length, codec, huge: false } }
    }

    #[test]
    fn a_word_says_all_of_its_page() {
        let filled = |low: u64| Whereabouts::filled(low << 32 | low).expect("two halves");
        for whereabouts in [
            Whereabouts::Hole,
            filled(0),
            filled(u64::from(u32::MAX)),
            Whereabouts::Logged(form(0, 1, 1)),
            Whereabouts::Logged(form(u32::MAX, 4095, LAST)),
            Whereabouts::Logged(form(7, 4096, NONE)),
            Whereabouts::Lost,
        ] {
            assert_eq!(Whereabouts::of(whereabouts.word()), whereabouts);
        }
        let logged = Whereabouts::Logged(form(7, 4096, NONE)).word();
        let last = Whereabouts::Logged(form(7, 4095, LAST)).word();
        for wrong in [
            1,
            LOST | 1,
            LOST | FILLED,
            FILLED | 1 << 32,
            logged + (1 << 32),
            logged | 1 << CODEC_SHIFT,
            last + (1 << CODEC_SHIFT),
            1 << CODEC_SHIFT,
            1 << 50,
        ] {
            assert_eq!(Whereabouts::of(wrong), Whereabouts::Lost, "{wrong:#x}");
        }
        assert_eq!(Whereabouts::filled(1), None);
        // The words of layout 1 have no codec: that of the device is meant.
        assert_eq!(Whereabouts::of(4095 << LENGTH_SHIFT), Whereabouts::Logged(form(0, 4095, 1)));
    }
}
