//! What another process is told of a store before it looks at its tables.

use alloc::{format, string::String, vec::Vec};

use twox_hash::XxHash3_64;
use units::PAGE_SIZE;

use crate::NoStore;
use crate::scratch::judge_unit;

const LETTERS: u64 = u64::from_ne_bytes(*b"rampvals");
/// The layout of the record, of the tables and of heads that this program reads and writes.
const LAYOUT: u64 = 1;
/// The longest name of a codec.
const NAME: usize = 32;
/// Words before the name, and after it that of the checksum.
const WORDS: usize = 7;

/// The record of a store that outlives its process. All numbers have this machine's byte order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Bytes of a unit.
    pub unit: usize,
    /// [`crate::Parts::seed`].
    pub seed: u64,
    /// The most frames. The sizes of the tables follow from it.
    pub frames: u32,
    /// The name of the codec.
    pub codec: String,
}

impl Record {
    /// The bytes of a record.
    pub const BYTES: usize = (WORDS + 1) * 8 + NAME;

    /// As it is kept. A longer name of a codec than 32 bytes is cut off.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let name = &self.codec.as_bytes()[..self.codec.len().min(NAME)];
        let mut bytes = Vec::with_capacity(Record::BYTES);
        let words = [self.unit as u64, self.seed, self.frames.into(), name.len() as u64];
        for word in [LETTERS, LAYOUT, PAGE_SIZE as u64].into_iter().chain(words) {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(name);
        bytes.resize(Record::BYTES - 8, 0);
        bytes.extend(XxHash3_64::oneshot(&bytes).to_ne_bytes());
        bytes
    }

    /// Reads what [`Record::to_bytes`] made, in this program or another one.
    ///
    /// # Errors
    /// [`NoStore::Left`] for what is no record, damaged, or of another layout.
    pub fn from_bytes(bytes: &[u8]) -> Result<Record, NoStore> {
        let left = |text: String| NoStore::Left(text);
        let word = |at: usize| {
            let bytes = bytes.get(at * 8..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        match (word(0), word(1)) {
            (Some(LETTERS), Some(LAYOUT)) => {}
            (Some(LETTERS), Some(other)) => {
                let reads = format!("it has layout {other}; this program reads layout {LAYOUT}");
                return Err(left(reads));
            }
            _ => return Err(left("its record is none".into())),
        }
        let damaged = || left("its record is damaged".into());
        let (told, sum) = bytes.split_last_chunk().ok_or_else(damaged)?;
        if bytes.len() != Record::BYTES || XxHash3_64::oneshot(told) != u64::from_ne_bytes(*sum) {
            return Err(damaged());
        }
        let number = |at: usize| word(at).ok_or_else(damaged);
        if number(2)? != PAGE_SIZE as u64 {
            let page = number(2)?;
            return Err(left(format!("it has pages of {page} bytes, not of {PAGE_SIZE}")));
        }
        let unit = usize::try_from(number(3)?).map_err(|_| damaged())?;
        judge_unit(unit).map_err(|_| damaged())?;
        let frames = u32::try_from(number(5)?).map_err(|_| damaged())?;
        let name = usize::try_from(number(6)?).ok();
        let name = name.and_then(|name| told[WORDS * 8..].get(..name)).ok_or_else(damaged)?;
        let codec = String::from_utf8(name.to_vec()).map_err(|_| damaged())?;
        Ok(Record { unit, seed: number(4)?, frames, codec })
    }

    /// Whether a store of these options can have what is kept.
    ///
    /// # Errors
    /// [`NoStore::Left`] names what is not the same.
    pub fn judge(&self, unit: usize, codec: &str) -> Result<(), NoStore> {
        if self.codec != codec {
            let text = format!("its values are compressed by {}, not by {codec}", self.codec);
            return Err(NoStore::Left(text));
        }
        if self.unit != unit {
            let text = format!("its units have {} bytes, not {unit}", self.unit);
            return Err(NoStore::Left(text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    fn record() -> Record {
        Record { unit: 16384, seed: u64::MAX - 7, frames: 12_345, codec: "zstd".into() }
    }

    #[test]
    fn a_record_says_what_it_was_made_of() {
        let record = record();
        assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record.clone()));
        assert_eq!(record.judge(16384, "zstd"), Ok(()));
        let said = |judged: Result<(), NoStore>| judged.expect_err("another").to_string();
        assert!(said(record.judge(4096, "zstd")).contains("4096"));
        let other = said(record.judge(16384, "lz4"));
        assert!(other.contains("zstd") && other.contains("lz4"), "{other}");
    }

    #[test]
    fn a_byte_that_changed_is_refused() {
        let bytes = record().to_bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert!(Record::from_bytes(&other).is_err(), "bit {bit} of byte {at}");
            }
            assert!(Record::from_bytes(&bytes[..at]).is_err());
        }
        let mut newer = bytes;
        newer[8..16].copy_from_slice(&2u64.to_ne_bytes());
        let said = Record::from_bytes(&newer).expect_err("a newer one").to_string();
        assert!(said.contains("layout 2") && said.contains("reads layout 1"), "{said}");
    }
}
