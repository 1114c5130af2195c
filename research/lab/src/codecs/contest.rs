//! Rounds in which the codecs take turns.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;
use units::{PAGE_SIZE, Page};
use zcomp::Context;

use crate::interrupt;
use crate::page::page_mut;
use crate::sys::{Memory, thread_time};

/// Pages decompressed in turn, over and over. More pages would not fit in a cache.
const TARGETS: usize = 64;

/// A codec in the contest, and its results so far.
pub struct Contestant {
    /// Its name.
    pub name: String,
    /// Its level, unless it is the default.
    pub level: Option<i32>,
    /// Whether it is not one of rampack's codecs.
    pub is_peer: bool,
    context: Box<dyn Context>,
    /// Time to compress a page, one value for each round.
    pub compress: Vec<Taken>,
    /// Time to decompress a page, one value for each round.
    pub decompress: Vec<Taken>,
    /// Length of each compressed page, at most a page.
    pub lengths: Vec<u16>,
}

/// Nanoseconds for a page.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// By the wall clock.
    pub wall: f64,
    /// By the CPU time.
    pub cpu: f64,
}

impl Contestant {
    /// A contestant of rampack's.
    pub fn ours(name: &str, level: Option<i32>, context: Box<dyn Context>) -> Contestant {
        Contestant {
            name: name.to_owned(),
            level,
            is_peer: false,
            context,
            compress: Vec::new(),
            decompress: Vec::new(),
            lengths: Vec::new(),
        }
    }

    /// A contestant of somebody else's.
    pub fn peer(name: &str, context: Box<dyn Context>) -> Contestant {
        Contestant { is_peer: true, ..Contestant::ours(name, None, context) }
    }

    /// Whether this is the codec with this name and level.
    pub fn is(&self, name: &str, level: Option<i32>) -> bool {
        self.name == name && self.level == level
    }

    /// Bytes of all compressed pages. A page that did not shrink counts whole.
    pub fn bytes(&self) -> u64 {
        self.lengths.iter().map(|&length| u64::from(length)).sum()
    }

    /// Compresses all pages to `log`, one behind the other.
    fn compress(&mut self, pages: &[&Page], log: &mut [u8]) {
        self.lengths.clear();
        let mut end = 0;
        let started = Stopwatch::start();
        for page in pages {
            let room = &mut log[end..end + 2 * PAGE_SIZE];
            let taken = match self.context.compress(page, room) {
                Some(taken) if taken < PAGE_SIZE => taken,
                _ => {
                    room[..PAGE_SIZE].copy_from_slice(&**page);
                    PAGE_SIZE
                }
            };
            self.lengths.push(taken as u16);
            end += taken;
        }
        self.compress.push(started.per(pages.len()));
    }

    /// Decompresses the pages that [`compress`](Contestant::compress) left in `log`.
    fn decompress(&mut self, log: &[u8], targets: &mut [u8]) -> Result<()> {
        let mut end = 0;
        let started = Stopwatch::start();
        for (number, &length) in self.lengths.iter().enumerate() {
            let object = &log[end..end + usize::from(length)];
            end += object.len();
            decompress(&mut *self.context, object, page_mut(targets, number % TARGETS))
                .with_context(|| format!("{} made page {number} of the order", self.name))?;
        }
        self.decompress.push(started.per(self.lengths.len()));
        Ok(())
    }

    /// Decompresses `log` with `reader` and compares the result with the pages.
    fn verify(&self, reader: &mut dyn Context, pages: &[&Page], log: &[u8]) -> Result<()> {
        let mut target = [0; PAGE_SIZE];
        let mut end = 0;
        for (number, (page, &length)) in pages.iter().zip(&self.lengths).enumerate() {
            let object = &log[end..end + usize::from(length)];
            end += object.len();
            let result = decompress(reader, object, &mut target);
            result.with_context(|| format!("{} made page {number} of the order", self.name))?;
            if target != **page {
                bail!("{}: page {number} of the order comes back as another", self.name);
            }
        }
        Ok(())
    }
}

#[inline]
fn decompress(context: &mut dyn Context, object: &[u8], into: &mut Page) -> Result<()> {
    if object.len() == PAGE_SIZE {
        into.copy_from_slice(object);
    } else if context.decompress(object, into).is_err() {
        bail!("it cannot be decompressed");
    }
    Ok(())
}

struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch { cpu: thread_time(), wall: Instant::now() }
    }

    fn per(&self, pages: usize) -> Taken {
        let (wall, cpu) = (self.wall.elapsed(), thread_time().saturating_sub(self.cpu));
        let nanoseconds = |time: Duration| time.as_nanos() as f64 / pages.max(1) as f64;
        Taken { wall: nanoseconds(wall), cpu: nanoseconds(cpu) }
    }
}

/// A contest on some pages.
pub struct Contest<'a> {
    pages: &'a [&'a Page],
    contestants: Vec<Contestant>,
    log: Memory,
    targets: Memory,
}

impl<'a> Contest<'a> {
    /// Allocates all that the contest of `pages` needs.
    ///
    /// # Errors
    /// No memory.
    pub fn new(pages: &'a [&'a Page], contestants: Vec<Contestant>) -> Result<Contest<'a>> {
        let memory = |pages: usize| Memory::new(pages * PAGE_SIZE).context("no memory for pages");
        // A codec may use two pages for the last one.
        let (log, targets) = (memory(pages.len() + 1)?, memory(TARGETS)?);
        Ok(Contest { pages, contestants, log, targets })
    }

    /// Number of steps of `rounds` rounds and the verified round before them.
    pub fn steps(&self, rounds: u32) -> u64 {
        u64::from(rounds + 1) * self.contestants.len() as u64
    }

    /// Runs one round that verifies everything, then `rounds` that count.
    ///
    /// # Errors
    /// A page comes back changed, or the run is interrupted.
    pub fn run(mut self, rounds: u32, bar: &ProgressBar) -> Result<Vec<Contestant>> {
        for round in 0..=rounds {
            for at in 0..self.contestants.len() {
                interrupt::check()?;
                let contestant = &mut self.contestants[at];
                bar.set_message(contestant.name.clone());
                contestant.compress(self.pages, &mut self.log);
                contestant.decompress(&self.log, &mut self.targets)?;
                if round == 0 {
                    self.verify(at)?;
                    let contestant = &mut self.contestants[at];
                    contestant.compress.clear();
                    contestant.decompress.clear();
                }
                bar.inc(1);
            }
        }
        Ok(self.contestants)
    }

    /// Verifies what a contestant has just compressed. The contestant reads it itself; our lzo also
    /// reads liblzo2's pages, and liblzo2 ours.
    fn verify(&mut self, at: usize) -> Result<()> {
        let mut writer = self.contestants.remove(at);
        let mut own = std::mem::replace(&mut writer.context, Box::new(Nobody));
        let mut result = writer.verify(&mut *own, self.pages, &self.log);
        let reads_it = |other: &&mut Contestant| {
            let lzo = |one: &Contestant| one.is_peer || one.name == zcomp::LZO;
            lzo(&writer) && lzo(other)
        };
        for reader in self.contestants.iter_mut().filter(reads_it) {
            let and = format!("read by {}", reader.name);
            let read = writer.verify(&mut *reader.context, self.pages, &self.log).context(and);
            result = result.and(read);
        }
        writer.context = own;
        self.contestants.insert(at, writer);
        result
    }
}

/// Takes the place of a context while that is in use.
struct Nobody;

impl Context for Nobody {
    fn compress(&mut self, _page: &Page, _into: &mut [u8]) -> Option<usize> {
        None
    }

    fn decompress(&mut self, _bytes: &[u8], _page: &mut Page) -> Result<(), zcomp::Corrupt> {
        Err(zcomp::Corrupt)
    }
}
