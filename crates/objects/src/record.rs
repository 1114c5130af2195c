//! The record of what outlives its process: what its other tables do not say.
//!
//! | word | what |
//! |---|---|
//! | 0 | eight letters: whose record it is |
//! | 1 | the layout of this record and of the tables |
//! | | for each priority the number of its codec plus one, or 0 |
//! | | a part for each codec number |
//! | | what its owner keeps |
//!
//! A [`Form`] says where these are. A part for a codec with parameters:
//!
//! | word | what |
//! |---|---|
//! | 0 | a checksum of the words that follow, never 0; 0 while they are written |
//! | 1 | the priority |
//! | 2 | the level, in the lower 32 bits, and 1 above them if there is one |
//! | 3 | the window, likewise |
//! | 4 | the bytes of the name |
//! | 5–8 | the name |
//! | 9 | the bytes of the dictionary; 0 if there is none |
//! | 16 … | the dictionary |
//!
//! A part for a codec without parameters is a checksum of the number and of the words that follow,
//! the bytes of the name, and the name.
//!
//! What a word says holds as soon as it is written, and each word is written before something
//! depends on it. A checksum is written last.

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::ops::RangeInclusive;

use pagealloc::{LazyTable, MemoryProvider};
use sync::atomic::{AtomicU64, Ordering};
use zcomp::{Chosen, CodecError, PRIORITIES, Params, Register};

const MAGIC_AT: usize = 0;
const LAYOUT_AT: usize = 1;

const WORD: usize = size_of::<u64>();
/// The longest name of a codec, in bytes.
const NAME_BYTES: usize = 32;
/// The longest dictionary that is kept, in bytes.
const MOST_DICTIONARY: usize = 1 << 20;

const SUM_AT: usize = 0;
const PRIORITY_AT: usize = 1;
const LEVEL_AT: usize = 2;
const WINDOW_AT: usize = 3;
const DICTIONARY_LENGTH_AT: usize = 9;
const DICTIONARY: usize = 16;
/// The words of the part of a codec with parameters.
pub const CODEC_WORDS: usize = DICTIONARY + MOST_DICTIONARY / WORD;
/// The words of the part of a codec without.
pub const NAMED_CODEC_WORDS: usize = 8;
const _: () = assert!(2 + NAME_BYTES / WORD <= NAMED_CODEC_WORDS);

/// Where things are in a record.
pub struct Form {
    /// Its letters.
    pub letters: [u8; 8],
    /// The layouts that this program reads.
    pub layouts: RangeInclusive<u32>,
    /// The first word of the numbers of current codecs.
    pub current: usize,
    /// The first word of codec 0.
    pub codecs: usize,
    /// Whether parameters of codecs are kept: [`CODEC_WORDS`], not [`NAMED_CODEC_WORDS`].
    pub parameters: bool,
    /// All words.
    pub words: usize,
}

/// A codec as it was kept.
pub struct KeptCodec {
    /// Its priority.
    pub priority: u8,
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub params: Params,
}

/// A record, which all clones share. One thread at a time writes a word, and one the codecs.
#[derive(Clone)]
pub struct Record {
    words: Arc<LazyTable<AtomicU64>>,
    form: &'static Form,
}

impl Record {
    /// Makes a record of the oldest layout that the form has, with these words.
    ///
    /// # Errors
    /// Says that there is no memory, or that the memory has contents.
    pub fn create(
        provider: &dyn MemoryProvider,
        form: &'static Form,
        first: &[(usize, u64)],
    ) -> Result<Record, String> {
        let record = Record::map(provider, form)?;
        if record.get(MAGIC_AT) != 0 {
            return Err("the memory for its record has contents".into());
        }
        record.set(LAYOUT_AT, u64::from(*form.layouts.start()));
        first.iter().for_each(|(at, word)| record.set(*at, *word));
        record.set(MAGIC_AT, u64::from_ne_bytes(form.letters));
        Ok(record)
    }

    /// Opens the record that another process left.
    ///
    /// # Errors
    /// Says that there is no memory, or why it is no record that this program can read.
    pub fn open(provider: &dyn MemoryProvider, form: &'static Form) -> Result<Record, String> {
        let record = Record::map(provider, form)?;
        if record.get(MAGIC_AT) != u64::from_ne_bytes(form.letters) {
            return Err("its record is none (K5)".into());
        }
        let (oldest, newest) = (*form.layouts.start(), *form.layouts.end());
        let reads = match oldest == newest {
            true => format!("layout {newest}"),
            false => format!("layouts {oldest} to {newest}"),
        };
        match record.get(LAYOUT_AT) {
            layout if (oldest.into()..=newest.into()).contains(&layout) => Ok(record),
            other => Err(format!("its record has layout {other}; this program reads {reads} (K5)")),
        }
    }

    fn map(provider: &dyn MemoryProvider, form: &'static Form) -> Result<Record, String> {
        let words = LazyTable::provided(provider, form.words);
        let words = Arc::new(words.map_err(|error| format!("its record: {error}"))?);
        Ok(Record { words, form })
    }

    /// The register of its codecs.
    #[must_use]
    pub fn register(&self) -> Arc<dyn Register> {
        Arc::new(self.clone())
    }

    /// A word.
    #[must_use]
    pub fn get(&self, at: usize) -> u64 {
        // Acquire pairs with the Release in `set`.
        self.words.get(at).load(Ordering::Acquire)
    }

    /// Writes a word, after all that was written before it.
    pub fn set(&self, at: usize, word: u64) {
        // Release pairs with the Acquire in `get`, also of another process.
        self.words.get(at).store(word, Ordering::Release);
    }

    /// The layout that it has now.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.get(LAYOUT_AT) as u32
    }

    /// Raises the layout: an older program must not read what comes now.
    pub fn needs_layout(&self, layout: u32) {
        if self.layout() < layout {
            self.set(LAYOUT_AT, layout.into());
        }
    }

    /// The bytes, at most `most`, that are behind their number.
    #[must_use]
    pub fn bytes(&self, at: usize, most: usize) -> Option<Vec<u8>> {
        self.bytes_at(at + 1, self.get(at), most)
    }

    fn bytes_at(&self, at: usize, length: u64, most: usize) -> Option<Vec<u8>> {
        let length = usize::try_from(length).ok().filter(|length| *length <= most)?;
        let words = (at..at + length.div_ceil(WORD)).map(|at| self.get(at));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        bytes.truncate(length);
        Some(bytes)
    }

    /// Writes bytes behind their number.
    pub fn set_bytes(&self, at: usize, bytes: &[u8]) {
        self.set(at, bytes.len() as u64);
        (at + 1..).zip(words(bytes)).for_each(|(at, word)| self.set(at, word));
    }

    /// The number of the codec of a priority.
    #[must_use]
    pub fn current(&self, priority: u8) -> Option<u8> {
        let at = self.form.current + usize::from(priority);
        let number = self.get(at).checked_sub(1).filter(|_| usize::from(priority) < PRIORITIES);
        u8::try_from(number?).ok()
    }

    /// The first word of the part of a codec, and where the number of bytes of its name is.
    fn part(&self, number: u8) -> (usize, usize) {
        let Form { codecs, parameters, .. } = self.form;
        let (words, name) = if *parameters { (CODEC_WORDS, 4) } else { (NAMED_CODEC_WORDS, 1) };
        let first = codecs + usize::from(number) * words;
        (first, first + name)
    }

    /// The checksum of the part of a codec whose name and dictionary have these many bytes.
    fn sum(&self, number: u8, name: usize, dictionary: usize) -> u64 {
        let (first, name_at) = self.part(number);
        if self.form.parameters {
            let end = first + DICTIONARY + dictionary.div_ceil(WORD);
            return sum((first + PRIORITY_AT..end).map(|at| self.get(at)));
        }
        let words = (name_at..=name_at + name.div_ceil(WORD)).map(|at| self.get(at));
        sum([u64::from(number)].into_iter().chain(words))
    }

    /// The codec of a number, if it has one.
    ///
    /// # Errors
    /// Says that what was kept is damaged.
    pub fn codec(&self, number: u8) -> Result<Option<KeptCodec>, String> {
        let (first, name_at) = self.part(number);
        let kept = self.get(first + SUM_AT);
        if kept == 0 {
            return Ok(None);
        }
        let damaged = || format!("what was kept of codec {number} is damaged (K7)");
        let name = self.bytes(name_at, NAME_BYTES).ok_or_else(damaged)?;
        let mut dictionary = Vec::new();
        if self.form.parameters {
            let length = self.get(first + DICTIONARY_LENGTH_AT);
            let found = self.bytes_at(first + DICTIONARY, length, MOST_DICTIONARY);
            dictionary = found.ok_or_else(damaged)?;
        }
        if self.sum(number, name.len(), dictionary.len()) != kept {
            return Err(damaged());
        }
        let name = String::from_utf8(name).map_err(|_| damaged())?;
        let (priority, params) = match self.form.parameters {
            true => {
                let dictionary = (!dictionary.is_empty()).then(|| dictionary.into());
                let [level, window_bits] = [LEVEL_AT, WINDOW_AT].map(|at| {
                    let word = self.get(first + at);
                    (word >> 32 != 0).then_some(word as u32 as i32)
                });
                let priority = u8::try_from(self.get(first + PRIORITY_AT));
                (priority.map_err(|_| damaged())?, Params { level, window_bits, dictionary })
            }
            false => {
                let mut all = 0..PRIORITIES as u8;
                let current = all.find(|priority| self.current(*priority) == Some(number));
                (current.unwrap_or(0), Params::default())
            }
        };
        Ok(Some(KeptCodec { priority, name, params }))
    }
}

impl Register for Record {
    fn judge(&self, chosen: &Chosen) -> Result<(), CodecError> {
        let (name, params) = (chosen.compressor.name(), &chosen.params);
        if !self.form.parameters && *params != Params::default() {
            return Err(CodecError(format!("codec {name} is taken without parameters here")));
        }
        let bytes = params.dictionary.as_ref().map_or(0, |dictionary| dictionary.len());
        if bytes > MOST_DICTIONARY {
            let message = format!(
                "the dictionary has {bytes} bytes; a disk that outlives the process takes at most \
                 {MOST_DICTIONARY}"
            );
            return Err(CodecError(message));
        }
        match name.len() {
            0..=NAME_BYTES => Ok(()),
            bytes => Err(CodecError(format!("a name of {bytes} bytes is too long"))),
        }
    }

    fn keep(&self, number: u8, priority: u8, chosen: &Chosen) {
        let (first, name_at) = self.part(number);
        let (params, name) = (&chosen.params, chosen.compressor.name().as_bytes());
        let dictionary: &[u8] = params.dictionary.as_deref().unwrap_or_default();
        self.set(first + SUM_AT, 0);
        if self.form.parameters {
            (first + PRIORITY_AT..first + DICTIONARY).for_each(|at| self.set(at, 0));
            self.set(first + PRIORITY_AT, u64::from(priority));
            let word = |value: Option<i32>| value.map_or(0, |it| 1 << 32 | u64::from(it as u32));
            self.set(first + LEVEL_AT, word(params.level));
            self.set(first + WINDOW_AT, word(params.window_bits));
            self.set(first + DICTIONARY_LENGTH_AT, dictionary.len() as u64);
            let places = first + DICTIONARY..;
            places.zip(words(dictionary)).for_each(|(at, word)| self.set(at, word));
        }
        self.set_bytes(name_at, name);
        self.set(first + SUM_AT, self.sum(number, name.len(), dictionary.len()));
    }

    fn choose(&self, priority: u8, number: u8) {
        self.set(self.form.current + usize::from(priority), u64::from(number) + 1);
    }
}

/// The bytes in words, the last filled up with zeroes.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(WORD).map(|chunk| {
        let mut word = [0; WORD];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    })
}

/// A checksum (FNV-1a) over words; never 0.
#[must_use]
pub fn sum(words: impl Iterator<Item = u64>) -> u64 {
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    words.fold(0xcbf2_9ce4_8422_2325, step) | 1
}
