//! The versions of the pages that one worker owns.
//!
//! A page has a version that it is sure to have, and the last one that was tried. While a change is
//! under way, or after it failed, the page may have either, whole. The next change waits until a
//! read has told which.
//!
//! The versions of a worker that may be killed are in a file, too: before each change and after it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The number of a version, with [`ZEROES`] if the page is all zeroes. 0 is a page nobody wrote.
pub type Version = u32;

/// The page was discarded.
pub const ZEROES: Version = 1 << 31;
/// It is not known whether the page has this version.
const UNDER_WAY: Version = 1 << 30;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Record {
    sure: Version,
    tried: Version,
}

/// The versions of the pages of a worker.
pub struct Versions {
    records: Vec<Record>,
    file: Option<File>,
    bytes: Vec<u8>,
}

const BYTES: usize = 8;

impl Versions {
    /// The versions of pages that nobody wrote.
    pub fn new(pages: usize) -> Versions {
        Versions { records: vec![Record::default(); pages], file: None, bytes: Vec::new() }
    }

    /// The versions in `path`; a new file if it is not there.
    ///
    /// # Errors
    /// The error of the system.
    pub fn in_file(pages: usize, path: &Path) -> io::Result<Versions> {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len((pages * BYTES) as u64)?;
        let mut bytes = vec![0; pages * BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let word = |bytes: &[u8; 4]| Version::from_le_bytes(*bytes);
        let records = bytes.as_chunks::<4>().0.as_chunks::<2>().0.iter();
        let records =
            records.map(|[sure, tried]| Record { sure: word(sure), tried: word(tried) }).collect();
        Ok(Versions { records, file: Some(file), bytes })
    }

    /// Does every page of the range have a known version?
    pub fn are_sure(&self, pages: Range<usize>) -> bool {
        self.records[pages].iter().all(|record| record.tried & UNDER_WAY == 0)
    }

    /// Begins a change of the pages, each to its next version.
    ///
    /// # Errors
    /// The error of the file.
    pub fn begin(&mut self, pages: Range<usize>, zeroes: bool) -> io::Result<()> {
        let flags = if zeroes { ZEROES | UNDER_WAY } else { UNDER_WAY };
        for record in &mut self.records[pages.clone()] {
            // A version that was tried and did not come is not used again.
            let last = record.tried & !(ZEROES | UNDER_WAY);
            record.tried = (last + 1) | flags;
        }
        self.log(pages)
    }

    /// The version that a page gets by the change that has begun.
    pub fn next(&self, page: usize) -> Version {
        self.records[page].tried & !UNDER_WAY
    }

    /// The change has succeeded.
    ///
    /// # Errors
    /// The error of the file.
    pub fn done(&mut self, pages: Range<usize>) -> io::Result<()> {
        for record in &mut self.records[pages.clone()] {
            record.tried &= !UNDER_WAY;
            record.sure = record.tried;
        }
        self.log(pages)
    }

    /// The versions that a page may have: one, or two after a change that may have failed.
    pub fn possible(&self, page: usize) -> (Version, Option<Version>) {
        let Record { sure, tried } = self.records[page];
        (sure, (tried & UNDER_WAY != 0).then_some(tried & !UNDER_WAY))
    }

    /// A read has found this version.
    ///
    /// # Errors
    /// The error of the file.
    pub fn settle(&mut self, page: usize, found: Version) -> io::Result<()> {
        let record = &mut self.records[page];
        record.tried &= !UNDER_WAY;
        record.sure = found;
        self.log(page..page + 1)
    }

    fn log(&mut self, pages: Range<usize>) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        self.bytes.clear();
        for record in &self.records[pages.clone()] {
            self.bytes.extend(record.sure.to_le_bytes());
            self.bytes.extend(record.tried.to_le_bytes());
        }
        file.write_all_at(&self.bytes, (pages.start * BYTES) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_failed_leaves_two_versions() {
        let mut versions = Versions::new(4);
        versions.begin(1..3, false).unwrap();
        assert_eq!(versions.possible(1), (0, Some(1)));
        versions.done(1..2).unwrap();
        assert_eq!([versions.possible(1), versions.possible(2)], [(1, None), (0, Some(1))]);
        assert!(versions.are_sure(0..2) && !versions.are_sure(0..3));
        // It has the old version: the number of the other one is not given again.
        versions.settle(2, 0).unwrap();
        assert_eq!(versions.possible(2), (0, None));
        versions.begin(2..3, true).unwrap();
        assert_eq!(versions.next(2), 2 | ZEROES);
        assert_eq!(versions.possible(2), (0, Some(2 | ZEROES)));
    }

    #[test]
    fn the_file_has_what_was_known() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("versions");
        let mut versions = Versions::in_file(8, &path).unwrap();
        versions.begin(2..5, false).unwrap();
        versions.done(2..4).unwrap();
        versions.begin(3..4, true).unwrap();
        let again = Versions::in_file(8, &path).unwrap();
        for page in 0..8 {
            assert_eq!(again.possible(page), versions.possible(page), "page {page}");
        }
        assert_eq!(again.possible(3), (1, Some(2 | ZEROES)));
        assert_eq!(again.possible(4), (0, Some(1)));
    }
}
