//! The table of what a daemon keeps, in a file in memory.
//!
//! A kill at any instant leaves the contents of the last [`Table::write`] that had returned, or of
//! the one under way. The file has two copies, and a word that says which of them is current. A
//! write fills the other copy, and then changes the word. The word has 8 bytes within a page, so
//! the kernel writes it as a whole or not at all.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | the letters `rampack` and a newline |
//! | 8 | 4 | the layout of this file and of all regions |
//! | 12 | 4 | the number 0x01020304: the byte order of the machine |
//! | 16 | 4 | bytes in a page of the system |
//! | 24 | 8 | the current sequence number; 0 before the first write |
//! | 4096 | 512 Ki | the copy of even sequence numbers |
//! | 4096 + 512 Ki | 512 Ki | the copy of odd ones |
//!
//! A copy is its sequence number (8 bytes), the length of its text (4), the CRC-32 of the text (4)
//! and the text, [`Contents`] in JSON. Numbers are in the byte order of the machine: other parts of
//! the state are too, so no other machine can use it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use crate::contents::Contents;

/// The layout that this program writes.
pub const LAYOUT: u32 = 2;
/// The oldest layout that this program reads.
pub const OLDEST_LAYOUT: u32 = 1;

const MAGIC: &[u8; 8] = b"rampack\n";
const BYTE_ORDER: u32 = 0x0102_0304;
/// The offset of the layout.
const LAYOUT_AT: usize = 8;
/// The offset of the current sequence number.
const CURRENT: usize = 24;
/// Bytes before the first copy.
const HEADER: usize = 4096;
/// Bytes of a copy.
const COPY: usize = 512 << 10;
/// Bytes of a copy before its text.
const BEFORE_TEXT: usize = 16;
/// Bytes of the file.
const BYTES: usize = HEADER + 2 * COPY;

/// Why a table cannot be read or written.
#[derive(Debug)]
pub enum TableError {
    /// The file has no table.
    NotATable,
    /// It is of another program version; the layout it has.
    Layout(u32),
    /// It is of a machine with the other byte order.
    ByteOrder,
    /// It is of a system with pages of another size.
    PageBytes {
        /// The size there.
        there: u32,
        /// The size here.
        here: u32,
    },
    /// What it says cannot be.
    Damaged(String),
    /// The contents do not fit; the bytes they need.
    TooLong(usize),
    /// The system refused.
    System(io::Error),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATable => write!(f, "the file has no table of kept state"),
            Self::Layout(found) => {
                let age = if *found > LAYOUT { "a newer" } else { "an older" };
                write!(f, "the kept state has {age} layout, {found}; this program reads ")?;
                match OLDEST_LAYOUT {
                    LAYOUT => write!(f, "layout {LAYOUT}"),
                    oldest => write!(f, "layouts {oldest} to {LAYOUT}"),
                }
            }
            Self::ByteOrder => {
                write!(f, "the kept state is of a machine with the other byte order")
            }
            Self::PageBytes { there, here } => write!(
                f,
                "the kept state is of a system with pages of {there} bytes; they have {here} here"
            ),
            Self::Damaged(why) => write!(f, "the table of kept state is damaged: {why}"),
            Self::TooLong(bytes) => {
                let most = COPY - BEFORE_TEXT;
                write!(f, "the table of kept state needs {bytes} bytes, and has room for {most}")
            }
            Self::System(error) => write!(f, "the table of kept state: {error}"),
        }
    }
}

impl std::error::Error for TableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for TableError {
    fn from(error: io::Error) -> TableError {
        TableError::System(error)
    }
}

/// A table. One process writes it.
#[derive(Debug)]
pub struct Table {
    file: File,
    sequence: u64,
    layout: u32,
}

impl Table {
    /// Makes a table without contents in `file`, an empty file in memory of a length that the
    /// caller chose to be [`Table::BYTES`]. `page` is the size of a page of the system.
    ///
    /// # Errors
    /// [`TableError::System`].
    pub fn create(file: File, page: u32) -> Result<Table, TableError> {
        let mut table = Table { file, sequence: 0, layout: OLDEST_LAYOUT };
        table.file.write_all_at(&header(page, OLDEST_LAYOUT, 0), 0)?;
        table.write(&Contents::default())?;
        Ok(table)
    }

    /// Bytes of the file of a table.
    pub const BYTES: u64 = BYTES as u64;

    /// Opens the table of an earlier process, and reads it.
    ///
    /// # Errors
    /// [`TableError`] says what is wrong with it. The file is as it was.
    pub fn open(file: File, page: u32) -> Result<(Table, Contents), TableError> {
        let length = file.metadata()?.len();
        if length != Table::BYTES {
            return Err(TableError::NotATable);
        }
        let mut bytes = vec![0; BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let (sequence, contents) = decode(&bytes, page)?;
        let layout = word(&bytes, LAYOUT_AT).unwrap_or(LAYOUT);
        Ok((Table { file, sequence, layout }, contents))
    }

    /// Replaces the contents.
    ///
    /// # Errors
    /// [`TableError::TooLong`], [`TableError::Damaged`] if a name is there twice, and
    /// [`TableError::System`]. The old contents stay then.
    pub fn write(&mut self, contents: &Contents) -> Result<(), TableError> {
        let next = self.sequence + 1;
        let layout = self.layout.max(contents.layout());
        for (offset, bytes) in steps(next, layout, contents)? {
            self.file.write_all_at(&bytes, offset)?;
        }
        (self.sequence, self.layout) = (next, layout);
        Ok(())
    }

    /// How often it was written.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Its layout, which is also that of the regions.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.layout
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The writes that make `contents` current under the number `sequence`, in their order. What was
/// there before is read the same in a later `layout`.
pub(crate) fn steps(
    sequence: u64,
    layout: u32,
    contents: &Contents,
) -> Result<[(u64, Vec<u8>); 3], TableError> {
    if let Some(twice) = contents.twice() {
        return Err(TableError::Damaged(twice));
    }
    let text = serde_json::to_vec(contents).map_err(io::Error::other)?;
    let copy = copy(sequence, &text)?;
    let (layout, current) = (layout.to_ne_bytes().to_vec(), sequence.to_ne_bytes().to_vec());
    Ok([(place(sequence) as u64, copy), (LAYOUT_AT as u64, layout), (CURRENT as u64, current)])
}

fn place(sequence: u64) -> usize {
    if sequence.is_multiple_of(2) { HEADER } else { HEADER + COPY }
}

fn copy(sequence: u64, text: &[u8]) -> Result<Vec<u8>, TableError> {
    if text.len() > COPY - BEFORE_TEXT {
        return Err(TableError::TooLong(text.len()));
    }
    let mut bytes = sequence.to_ne_bytes().to_vec();
    bytes.extend((text.len() as u32).to_ne_bytes());
    bytes.extend(crc32fast::hash(text).to_ne_bytes());
    bytes.extend(text);
    Ok(bytes)
}

fn header(page: u32, layout: u32, sequence: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for number in [layout, BYTE_ORDER, page, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.extend(sequence.to_ne_bytes());
    bytes
}

/// The bytes of a table whose only write was of `text`, which may be anything: for fuzzing.
///
/// # Errors
/// [`TableError::TooLong`].
pub fn image(page: u32, text: &[u8]) -> Result<Vec<u8>, TableError> {
    let mut bytes = header(page, LAYOUT, 1);
    bytes.resize(BYTES, 0);
    let (at, copy) = (place(1), copy(1, text)?);
    bytes[at..at + copy.len()].copy_from_slice(&copy);
    Ok(bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// The sequence number and the contents of a table in memory, for a system whose pages have `page`
/// bytes. Any bytes are contents or an error.
///
/// # Errors
/// [`TableError`] says what is wrong.
pub fn decode(bytes: &[u8], page: u32) -> Result<(u64, Contents), TableError> {
    if !bytes.starts_with(MAGIC) {
        return Err(TableError::NotATable);
    }
    let number = |at| word(bytes, at).ok_or(TableError::NotATable);
    match number(12)? {
        BYTE_ORDER => {}
        swapped if swapped == BYTE_ORDER.swap_bytes() => return Err(TableError::ByteOrder),
        _ => return Err(TableError::NotATable),
    }
    let layout = number(LAYOUT_AT)?;
    if !(OLDEST_LAYOUT..=LAYOUT).contains(&layout) {
        return Err(TableError::Layout(layout));
    }
    let there = number(16)?;
    if there != page {
        return Err(TableError::PageBytes { there, here: page });
    }
    let damaged = |why: &str| TableError::Damaged(why.to_owned());
    let cut = || damaged("it is cut off");
    let sequence = long(bytes, CURRENT).ok_or_else(cut)?;
    if sequence == 0 {
        return Err(damaged("it was never written"));
    }
    let copy = bytes.get(place(sequence)..).ok_or_else(cut)?;
    let copy = &copy[..copy.len().min(COPY)];
    if long(copy, 0).ok_or_else(cut)? != sequence {
        return Err(damaged("the current copy has another sequence number"));
    }
    let length = word(copy, 8).ok_or_else(cut)? as usize;
    let text = copy.get(BEFORE_TEXT..).and_then(|text| text.get(..length)).ok_or_else(cut)?;
    if word(copy, 12) != Some(crc32fast::hash(text)) {
        return Err(damaged("the checksum of the current copy is wrong"));
    }
    let contents: Contents =
        serde_json::from_slice(text).map_err(|error| damaged(&error.to_string()))?;
    match contents.twice() {
        Some(twice) => Err(TableError::Damaged(twice)),
        None => Ok((sequence, contents)),
    }
}

#[cfg(test)]
mod tests;
