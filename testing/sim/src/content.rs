//! The contents of writes, in a short form that a test can print and repeat.

use testkit::Rng;
use units::{PAGE_SIZE, Page};

/// The contents of a write, for any length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Zeroes.
    Zeroes,
    /// These eight bytes, little-endian, repeated.
    Words(u64),
    /// [`Fill::Words`] with one different byte, at `at` modulo the length.
    Spoiled {
        /// The eight bytes.
        words: u64,
        /// The place of the different byte.
        at: u32,
    },
    /// Words of a small language: shrinks to about a third.
    Text(u64),
    /// A text with a few changed bytes, as a program changes a page between two stores.
    Edited {
        /// The text.
        text: u64,
        /// The changed bytes and their new values.
        edits: u64,
    },
    /// Random bytes: does not shrink.
    Noise(u64),
    /// Noise in `parts` 64ths, then zeroes: gives objects of every size class.
    Partly {
        /// The noise.
        noise: u64,
        /// The part of the length that is noise, in 64ths.
        parts: u8,
    },
}

const WORDS: [&str; 16] = [
    "page ",
    "frame ",
    "the ",
    "object ",
    "0x7fff",
    "of ",
    "slot ",
    "\0\0\0\0\0\0",
    "zspage ",
    "and ",
    "handle ",
    "\n",
    "class ",
    "is ",
    "stored ",
    "in ",
];

impl Fill {
    /// Draws random contents.
    pub fn draw(rng: &mut Rng) -> Fill {
        match rng.below(16) {
            0 | 1 => Fill::Zeroes,
            // One repeated byte, four repeated bytes, and eight bytes whose halves differ.
            2 => Fill::Words(rng.below(256) * 0x0101_0101_0101_0101),
            3 => Fill::Words(rng.below(1 << 32) * 0x1_0000_0001),
            4 => Fill::Words(rng.next_u64()),
            5 => Fill::Words(1 << rng.below(64)),
            6 => Fill::Spoiled { words: 0, at: rng.next_u64() as u32 },
            7 => Fill::Spoiled { words: rng.next_u64(), at: rng.next_u64() as u32 },
            8..=10 => Fill::Text(rng.next_u64()),
            11 | 12 => Fill::Noise(rng.next_u64()),
            _ => Fill::Partly { noise: rng.next_u64(), parts: rng.below(65) as u8 },
        }
    }

    /// Fills `into`.
    pub fn render(self, into: &mut [u8]) {
        match self {
            Fill::Zeroes => into.fill(0),
            Fill::Words(words) => {
                let bytes = words.to_le_bytes();
                into.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&bytes[..chunk.len()]));
            }
            Fill::Spoiled { words, at } => {
                Fill::Words(words).render(into);
                if !into.is_empty() {
                    let at = at as usize % into.len();
                    into[at] ^= 1 << (at % 8);
                }
            }
            Fill::Text(seed) => {
                let (mut rng, mut rest) = (Rng::new(seed), into);
                while !rest.is_empty() {
                    let word = rng.pick(&WORDS).as_bytes();
                    let (now, later) = rest.split_at_mut(word.len().min(rest.len()));
                    now.copy_from_slice(&word[..now.len()]);
                    rest = later;
                }
            }
            Fill::Edited { text, edits } => {
                Fill::Text(text).render(into);
                let mut rng = Rng::new(edits);
                for _ in 0..=rng.below(4) {
                    let at = rng.below(into.len() as u64) as usize;
                    if let Some(byte) = into.get_mut(at) {
                        *byte = rng.next_u64() as u8;
                    }
                }
            }
            Fill::Noise(seed) => Rng::new(seed).fill(into),
            Fill::Partly { noise, parts } => {
                let (front, back) = into.split_at_mut(into.len() * usize::from(parts) / 64);
                Rng::new(noise).fill(front);
                back.fill(0);
            }
        }
    }
}

/// The stamp of a page: it names the writer, so that a reader can detect a torn page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stamp {
    /// The page of the device.
    pub page: u8,
    /// The writer.
    pub writer: u8,
    /// The number of this write among the writer's own.
    pub number: u32,
}

/// The first two bytes of each stamp.
const MARK: u64 = 0x5e1f;

impl Stamp {
    const fn word(self) -> u64 {
        MARK << 48 | (self.page as u64) << 40 | (self.writer as u64) << 32 | self.number as u64
    }

    fn from_word(word: u64) -> Option<Stamp> {
        (word >> 48 == MARK).then_some(Stamp {
            page: (word >> 40) as u8,
            writer: (word >> 32) as u8,
            number: word as u32,
        })
    }

    /// Fills the page with this stamp. The page begins and ends with the stamp. The bytes between
    /// follow from the stamp: text, noise, a mix of both, or the repeated stamp.
    pub fn render(self, into: &mut Page) {
        let word = self.word();
        match Rng::new(word).below(4) {
            0 => Fill::Words(word),
            1 => Fill::Text(word),
            2 => Fill::Noise(word),
            _ => Fill::Partly { noise: word, parts: (word % 64) as u8 },
        }
        .render(into);
        into[..8].copy_from_slice(&word.to_le_bytes());
        into[PAGE_SIZE - 8..].copy_from_slice(&word.to_le_bytes());
    }

    /// Reads the stamp of a page.
    ///
    /// # Errors
    /// The fault of the page, if it has no stamp or is torn.
    pub fn read(page: &Page) -> Result<Stamp, String> {
        let (words, _) = page.as_chunks::<8>();
        let first = u64::from_le_bytes(words[0]);
        let Some(stamp) = Stamp::from_word(first) else {
            return Err(format!("a page begins with {first:#x}, which no writer wrote"));
        };
        let mut whole = [0; PAGE_SIZE];
        stamp.render(&mut whole);
        match page.iter().zip(&whole).position(|(is, was)| is != was) {
            None => Ok(stamp),
            Some(at) => Err(format!("the page begins as {stamp:?} and is another from byte {at}")),
        }
    }
}
