//! A worker: it writes, discards and reads the pages that it owns, and compares what it reads.

use std::ops::{Deref, DerefMut, Range};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sync::atomic::{AtomicU64, Ordering};
use units::PAGE_SIZE;

use super::contents::Contents;
use super::target::{Kind, Refusal, Request, Target};
use super::versions::{Version, Versions};

/// Pages of the longest request: 1 MiB.
const LONGEST: usize = 256;
/// Requests of a page each that are under way together.
const TOGETHER: usize = 16;
/// How often the same page may be refused in the end, when every page is read.
const PATIENCE: u32 = 1000;
/// EIO, ENOMEM, ENOSPC: what devices answer when something below them fails or is full.
const REFUSALS: [i32; 3] = [5, 12, 28];
const EOPNOTSUPP: i32 = 95;

/// Counts of a worker, in pages.
#[derive(Default)]
pub struct Tally {
    read: AtomicU64,
    written: AtomicU64,
    discarded: AtomicU64,
    refused: AtomicU64,
    settled: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct Counts {
    /// Pages that were read and compared.
    pub read: u64,
    /// Pages that were written.
    pub written: u64,
    /// Pages that were discarded.
    pub discarded: u64,
    /// Pages of requests that were refused.
    pub refused: u64,
    /// Pages whose version a read told, after a change that was refused or killed.
    pub settled: u64,
}

impl Counts {
    /// Operations on pages that were carried out.
    pub fn operations(&self) -> u64 {
        self.read + self.written + self.discarded
    }

    /// The sums.
    #[must_use]
    pub fn and(&self, other: &Counts) -> Counts {
        Counts {
            read: self.read + other.read,
            written: self.written + other.written,
            discarded: self.discarded + other.discarded,
            refused: self.refused + other.refused,
            settled: self.settled + other.settled,
        }
    }
}

impl Tally {
    /// The counts now.
    pub fn counts(&self) -> Counts {
        // Relaxed: the counts are for people, and publish nothing.
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            read: of(&self.read),
            written: of(&self.written),
            discarded: of(&self.discarded),
            refused: of(&self.refused),
            settled: of(&self.settled),
        }
    }
}

fn add(count: &AtomicU64, pages: usize) {
    count.fetch_add(pages as u64, Ordering::Relaxed);
}

/// The pages that a worker owns, and what it draws its actions from.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub struct Share {
    /// The number of the device, a part of the contents of its pages.
    pub device: u32,
    /// The first page.
    pub first: u64,
    /// The number of pages.
    pub pages: usize,
    pub seed: u64,
}

/// Bytes at an address that is a multiple of a page, as reads and writes past the page cache want.
struct Aligned {
    bytes: Box<[u8]>,
    start: usize,
}

impl Aligned {
    fn new(length: usize) -> Aligned {
        let bytes = vec![0; length + PAGE_SIZE].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(PAGE_SIZE);
        Aligned { bytes, start }
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.bytes.len() - PAGE_SIZE]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        let length = self.bytes.len() - PAGE_SIZE;
        &mut self.bytes[self.start..][..length]
    }
}

/// A worker on one way to a device.
pub struct Worker {
    share: Share,
    target: Box<dyn Target>,
    versions: Versions,
    contents: Contents,
    random: fastrand::Rng,
    buffer: Aligned,
    expected: Aligned,
    discards: bool,
    /// Its counts.
    pub tally: Arc<Tally>,
}

impl Worker {
    /// A worker whose versions are in the file `log`, if it may be killed.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn new(share: Share, target: Box<dyn Target>, log: Option<&Path>) -> Result<Worker> {
        let versions = match log {
            Some(path) => Versions::in_file(share.pages, path).context("the file of versions")?,
            None => Versions::new(share.pages),
        };
        Ok(Worker {
            share,
            target,
            versions,
            contents: Contents::new(),
            random: fastrand::Rng::with_seed(share.seed),
            buffer: Aligned::new(LONGEST * PAGE_SIZE),
            expected: Aligned::new(PAGE_SIZE),
            discards: true,
            tally: Arc::default(),
        })
    }

    /// One action: a long request, or some short ones together.
    ///
    /// # Errors
    /// A page is wrong or lost, a device refuses what it should not, or the way to it is closed.
    pub fn step(&mut self) -> Result<()> {
        let mut ranges = Vec::with_capacity(TOGETHER);
        if self.random.u8(..) < 64 {
            let longest = LONGEST.min(self.share.pages);
            let pages = match self.random.bool() {
                true => longest,
                false => self.random.usize(1..=longest),
            };
            let start = self.random.usize(..=self.share.pages - pages);
            ranges.push(start..start + pages);
        } else {
            for _ in 0..TOGETHER {
                let page = self.random.usize(..self.share.pages);
                if !ranges.contains(&(page..page + 1)) {
                    ranges.push(page..page + 1);
                }
            }
        }
        let batch: Vec<(Kind, Range<usize>)> =
            ranges.into_iter().map(|pages| (self.draw(pages.clone()), pages)).collect();
        self.carry_out(&batch)
    }

    fn draw(&mut self, pages: Range<usize>) -> Kind {
        match self.random.u8(..) {
            _ if !self.versions.are_sure(pages) => Kind::Read,
            0..=12 if self.discards => Kind::Discard,
            0..=120 => Kind::Write,
            _ => Kind::Read,
        }
    }

    /// Reads every page until none is refused.
    ///
    /// # Errors
    /// As [`Worker::step`]; a page that cannot be read at all.
    pub fn read_all(&mut self) -> Result<()> {
        let mut start = 0;
        let mut refused = 0;
        while start < self.share.pages {
            let end = (start + LONGEST).min(self.share.pages);
            let before = self.tally.refused.load(Ordering::Relaxed);
            // After a refusal page by page, so that one page does not hold up the others.
            let length = if refused == 0 { end - start } else { 1 };
            self.carry_out(&[(Kind::Read, start..start + length)])?;
            if self.tally.refused.load(Ordering::Relaxed) == before {
                (start, refused) = (start + length, 0);
                continue;
            }
            refused += 1;
            if refused > PATIENCE {
                bail!("LOST {}: it cannot be read any more", self.name_of(start));
            }
        }
        Ok(())
    }

    fn name_of(&self, page: usize) -> String {
        format!("page {} of device {}", self.share.first + page as u64, self.share.device)
    }

    fn carry_out(&mut self, batch: &[(Kind, Range<usize>)]) -> Result<()> {
        let (device, first) = (self.share.device, self.share.first);
        let mut requests = Vec::with_capacity(batch.len());
        let mut rest = &mut self.buffer[..];
        for (kind, pages) in batch {
            let (data, behind) = rest.split_at_mut(pages.len() * PAGE_SIZE);
            rest = behind;
            let (each, _) = data.as_chunks_mut::<PAGE_SIZE>();
            if *kind != Kind::Read {
                self.versions.begin(pages.clone(), *kind == Kind::Discard)?;
            }
            for (page, into) in pages.clone().zip(each) {
                match kind {
                    Kind::Write => {
                        let number = first + page as u64;
                        self.contents.fill(device, number, self.versions.next(page), into);
                    }
                    // What a read leaves alone is not taken for a page.
                    _ => into[..8].copy_from_slice(&[0xa5; 8]),
                }
            }
            let offset = (first + pages.start as u64) * PAGE_SIZE as u64;
            requests.push(Request { kind: *kind, offset, data, result: Ok(()) });
        }
        self.target.carry_out(&mut requests)?;
        let results: Vec<_> = requests.into_iter().map(|request| request.result).collect();
        let mut at = 0;
        for ((kind, pages), result) in batch.iter().zip(results) {
            self.judge(*kind, pages.clone(), at, result)?;
            at += pages.len() * PAGE_SIZE;
        }
        Ok(())
    }

    /// Judges the answer to a request whose data is at byte `at` of the buffer.
    fn judge(
        &mut self,
        kind: Kind,
        pages: Range<usize>,
        at: usize,
        result: Result<(), Refusal>,
    ) -> Result<()> {
        match (kind, result) {
            (_, Err(Refusal::Corrupt)) => {
                bail!("WRONG {}: it does not decompress any more", self.name_of(pages.start))
            }
            (Kind::Discard, Err(Refusal::Errno(EOPNOTSUPP))) => self.discards = false,
            (_, Err(Refusal::Errno(errno))) if !REFUSALS.contains(&errno) => {
                bail!(
                    "{} and {} more: {kind:?} is refused with error {errno}",
                    self.name_of(pages.start),
                    pages.len() - 1
                );
            }
            (_, Err(_)) => add(&self.tally.refused, pages.len()),
            (Kind::Read, Ok(())) => {
                for (number, page) in pages.clone().enumerate() {
                    self.compare(page, at + number * PAGE_SIZE)?;
                }
                add(&self.tally.read, pages.len());
            }
            (Kind::Write, Ok(())) => {
                self.versions.done(pages.clone())?;
                add(&self.tally.written, pages.len());
            }
            (Kind::Discard, Ok(())) => {
                self.versions.done(pages.clone())?;
                add(&self.tally.discarded, pages.len());
            }
        }
        Ok(())
    }

    fn is(&mut self, page: usize, at: usize, version: Version) -> bool {
        let number = self.share.first + page as u64;
        self.contents.fill(self.share.device, number, version, &mut self.expected);
        self.buffer[at..at + PAGE_SIZE] == self.expected[..]
    }

    fn compare(&mut self, page: usize, at: usize) -> Result<()> {
        let (sure, tried) = self.versions.possible(page);
        if self.is(page, at, sure) {
            if tried.is_some() {
                add(&self.tally.settled, 1);
                self.versions.settle(page, sure)?;
            }
            return Ok(());
        }
        if let Some(tried) = tried
            && self.is(page, at, tried)
        {
            add(&self.tally.settled, 1);
            self.versions.settle(page, tried)?;
            return Ok(());
        }
        bail!("{}", self.what_it_is(page, at))
    }

    /// Says what was found in place of a page.
    fn what_it_is(&mut self, page: usize, at: usize) -> String {
        let (sure, tried) = self.versions.possible(page);
        let name = self.name_of(page);
        let wanted = match tried {
            None => format!("version {:#x}", sure),
            Some(tried) => format!("version {sure:#x} or {tried:#x}"),
        };
        let last = self.versions.next(page) & 0x3fff_ffff;
        if let Some(old) = (0..last.min(1 << 20)).rev().find(|old| self.is(page, at, *old)) {
            return format!("LOST {name}: it has version {old:#x}, and {wanted} was written");
        }
        let found = &self.buffer[at..at + PAGE_SIZE];
        let half = if found.iter().all(|byte| *byte == 0) { "zeroes" } else { "other bytes" };
        format!("WRONG {name}: {half} in place of {wanted}; it begins with {:02x?}", &found[..16])
    }
}
