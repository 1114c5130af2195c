//! A backing device in its layout: what is above it does not ask which that is.

use core::fmt;
use core::ops::Range;

use alloc::collections::TryReserveError;
use block::{BlockDevice, IoError};
use pagealloc::{MemoryProvider, NoMemory};
use segments::Misplaced;
use sync::Reader;
use units::Cpu;

use crate::backed::Backed;
use crate::log::LogStats;
use crate::room::Places;
use crate::run::Run;
use crate::wanted::Wanted;
use crate::words::NotLeft;

/// A backing device: [`BackingBlocks`](crate::BackingBlocks), with a page in each block, or
/// [`PageLog`](crate::PageLog). What only a log has is nothing by default. Any number of threads
/// may call every method at once.
///
/// Only the backing device that gave a place knows what it means.
pub trait Backing: Send + Sync {
    /// The device itself.
    fn device(&self) -> &dyn BlockDevice;

    /// The path it was opened as.
    fn path(&self) -> &str;

    /// Enters a reader: what a slot names from now on stays while the reader lives.
    fn reading(&self, cpu: Cpu) -> Reader<'_>;

    /// Reads pages, at most [`AT_ONCE`](crate::AT_ONCE), and sets the result of each. The caller is
    /// a reader since before it found the places in slots.
    fn read(&self, cpu: Cpu, wanted: &mut [Option<Wanted<'_>>]);

    /// The number of pages that are best written together; `None` if any is as good.
    fn batch(&self) -> Option<usize> {
        None
    }

    /// Whether objects take as much of the device as they are long, and are checked when they are
    /// read.
    fn is_log(&self) -> bool {
        false
    }

    /// Whether a page may be written: false if all is in use. A log says so only when it writes.
    fn has_room(&self) -> bool {
        true
    }

    /// Memory to write `pages` pages together, or `pages` of a batch. `used` is given back if it is
    /// of use.
    ///
    /// # Errors
    /// Memory is out.
    fn run(&self, pages: usize, used: Option<Run>) -> Result<Run, TryReserveError>;

    /// Writes the objects of a run, dated `now`, and makes room for them if need be. `places` knows
    /// where other pages are. `commit` gets the run each time some of it was written: it lets slots
    /// name the places ([`Entry::written`]), and notes which it did ([`Entry::is_named`]). Objects
    /// that are left in the run afterwards were not written. The calling thread may wait, and is no
    /// reader, neither of the device nor of whoever has the slots.
    ///
    /// # Errors
    /// `NoSpace` if the device is full, or the first error of the device.
    ///
    /// [`Entry::written`]: crate::Entry::written
    /// [`Entry::is_named`]: crate::Entry::is_named
    fn write(
        &self,
        places: &dyn Places,
        cpu: Cpu,
        run: &mut Run,
        now: u32,
        commit: &mut dyn FnMut(&mut Run),
    ) -> Result<(), IoError>;

    /// No slot names this place any more.
    fn retire(&self, place: Backed);

    /// The bytes of the blocks that a place lies in.
    fn span(&self, place: Backed) -> Range<u64>;

    /// Bytes that were written so far.
    fn written_bytes(&self) -> u64;

    /// The state of the log, if it is one.
    fn log_stats(&self) -> Option<LogStats> {
        None
    }

    /// Lets what slots do not say outlive the process from now on, in the memory of `provider`, if
    /// there is such a thing. Until now it did not, and the device is empty.
    ///
    /// # Errors
    /// Memory is out; then it ends with the process.
    fn keep(&self, provider: &dyn MemoryProvider) -> Result<(), NoMemory> {
        let _ = provider;
        Ok(())
    }

    /// Begins to recover what another process left, in the memory of `provider` among others.
    /// Nothing was written yet. `bad` is told of segments of which nothing is known; no object is
    /// there.
    ///
    /// # Errors
    /// See [`NotLeft`]; nothing has changed.
    fn recover(
        &self,
        provider: &dyn MemoryProvider,
        bad: &mut dyn FnMut(u32),
    ) -> Result<(), NotLeft> {
        let _ = (provider, bad);
        Ok(())
    }

    /// A slot names this place, which another process wrote.
    ///
    /// # Errors
    /// Says why no page, or not this page alone, can have it.
    fn claim(&self, place: Backed) -> Result<(), Misclaimed>;

    /// Goes on with what another process left, after all places were claimed.
    fn adopt(&self) {}
}

/// Why a page cannot have a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misclaimed {
    /// Another page has this block.
    Taken(u32),
    /// The backing device has this many blocks, and no such one.
    Outside(u32, u64),
    /// It is no place of the log.
    Log(Misplaced),
    /// There is no log to recover.
    NothingLeft,
}

impl fmt::Display for Misclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misclaimed::Taken(block) => {
                write!(f, "another page has block {block} of the backing device too (K19)")
            }
            Misclaimed::Outside(block, blocks) => {
                write!(f, "block {block} is none of the {blocks} of the backing device (K18)")
            }
            Misclaimed::Log(why) => write!(f, "{why} (K25)"),
            Misclaimed::NothingLeft => write!(f, "nothing was kept of its log (K24)"),
        }
    }
}

impl core::error::Error for Misclaimed {}
