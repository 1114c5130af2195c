//! The files of a mount and the devices behind them.

use std::mem;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use block::BlockDevice;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{Mutex, Published, Reader, ReaderEpochs};
use units::Cpu;

use crate::Error;

/// No file has this name: see [`crate::Mount::numbers`].
pub const NEXT: &str = ".next";

/// The number of the first file; smaller numbers are for the directory, or reserved.
const FIRST: u64 = 16;
/// A limit above the numbers that an earlier process gave. There is a place for each number below a
/// given one.
const LARGEST: u64 = 1 << 20;

/// How long [`Table::remove`] waits for requests under way.
const LEAVING: Duration = Duration::from_secs(10);

/// A file: one device under one name. Its number is never used again, and is also the handle of its
/// opens.
pub(crate) struct Served {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) opens: AtomicU64,
    /// An earlier process served it: opens from then do not count.
    pub(crate) is_taken_over: bool,
    /// The size of the device at the last query, in bytes.
    bytes: AtomicU64,
}

/// All files of a mount, in the order of their numbers. A lookup by name takes a lock; a reader
/// looks up a number without one.
pub(crate) struct Table {
    state: Mutex<Listed>,
    places: Places,
    readers: Arc<ReaderEpochs>,
    /// The table is closed: no lookup by number finds a file.
    closed: AtomicBool,
}

struct Listed {
    next: u64,
    files: Vec<Arc<Served>>,
}

/// What serves a number, or nothing.
type Cell = Published<Arc<Served>>;

/// A cell for each number ever used, in pieces that never move. Each piece is twice as long as the
/// one before.
struct Places([OnceLock<Box<[Cell]>>; PIECES]);

const PIECES: usize = 48;

impl Places {
    fn at(number: u64) -> Option<(usize, usize)> {
        let nth = number.checked_sub(FIRST - 1).filter(|nth| *nth > 0)?;
        let piece = nth.ilog2();
        Some((piece as usize, usize::try_from(nth - (1 << piece)).ok()?))
    }

    #[inline]
    fn get(&self, number: u64) -> Option<&Cell> {
        let (piece, index) = Places::at(number)?;
        self.0.get(piece)?.get()?.get(index)
    }

    /// The place of a new number.
    fn make(&self, number: u64, readers: &Arc<ReaderEpochs>) -> Option<&Cell> {
        let (piece, index) = Places::at(number)?;
        let places = || (0..1usize << piece).map(|_| Published::new(readers.clone())).collect();
        self.0.get(piece)?.get_or_init(places).get(index)
    }

    fn iter(&self) -> impl Iterator<Item = &Cell> {
        self.0.iter().filter_map(OnceLock::get).flatten()
    }
}

impl Table {
    /// No files; readers run on `cpus` CPUs.
    pub(crate) fn new(cpus: usize) -> Table {
        Table {
            state: Mutex::new(Listed { next: FIRST, files: Vec::new() }),
            places: Places([const { OnceLock::new() }; PIECES]),
            readers: Arc::new(ReaderEpochs::new(cpus)),
            closed: AtomicBool::new(false),
        }
    }

    /// Begins a request. A file that it finds stays until the reader is dropped.
    #[inline]
    pub(crate) fn enter(&self, cpu: Cpu) -> Reader<'_> {
        self.readers.enter(cpu)
    }

    pub(crate) fn add(&self, name: &str, device: Arc<dyn BlockDevice>) -> Result<(), Error> {
        self.add_numbered(name, None, device)
    }

    /// Adds a file under `number`, which the kernel knows it by from an earlier process. None:
    /// under the next number.
    pub(crate) fn add_numbered(
        &self,
        name: &str,
        number: Option<u64>,
        device: Arc<dyn BlockDevice>,
    ) -> Result<(), Error> {
        let refuse = |why| Err(Error::Name { name: name.to_owned(), why });
        if name.is_empty() || [".", "..", NEXT].contains(&name) {
            return refuse("a file must have a name of its own");
        }
        if name.len() > 255 || name.contains(['/', '\0']) {
            return refuse("a file name has at most 255 bytes, none of them '/' or NUL");
        }
        let mut state = self.state.lock();
        if state.files.iter().any(|file| file.name == name) {
            return refuse("another device has it");
        }
        if number.is_some_and(|number| number >= LARGEST) {
            return refuse("no mount ever had as many files as its number says");
        }
        let (number, is_taken_over) = (number.unwrap_or(state.next), number.is_some());
        let opens = AtomicU64::new(0);
        let bytes = AtomicU64::new(device.geometry().bytes);
        let name = name.to_owned();
        let file = Arc::new(Served { number, name, device, opens, is_taken_over, bytes });
        let place = self.places.make(number, &self.readers);
        if place.is_none_or(|place| place.publish(Box::new(file.clone())).is_err()) {
            return refuse("its number is taken, or there is no such number");
        }
        state.next = state.next.max(number.saturating_add(1));
        state.files.push(file);
        Ok(())
    }

    /// Removes the file, then waits until no request uses it: for ten seconds at most, and not once
    /// the table is closed. After that a request may still use the device. A thread that serves
    /// requests must not call it.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        let mut file = {
            let mut state = self.state.lock();
            let at = state.files.iter().position(|file| file.name == name)?;
            state.files.remove(at)
        };
        // A request is a reader while it is served: microseconds for a device in memory.
        drop(self.places.get(file.number).and_then(|place| place.withdraw()));
        // A request that waits for a slower device holds the `Arc` itself, for milliseconds. That
        // device may also never answer.
        let end = Instant::now() + LEAVING;
        loop {
            match Arc::try_unwrap(file) {
                Ok(served) => return Some(served.device),
                Err(held) => file = held,
            }
            if self.closed.load(Ordering::Relaxed) || Instant::now() > end {
                return Some(file.device.clone());
            }
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Removes every file without waiting. No file may be added after it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let files = mem::take(&mut self.state.lock().files);
        drop(files);
    }

    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Drops the devices of a closed table. No request may be under way.
    pub(crate) fn clear(&self) {
        for place in self.places.iter() {
            drop(place.withdraw());
        }
    }

    #[inline]
    pub(crate) fn numbered<'r>(
        &'r self,
        reader: &'r Reader<'_>,
        number: u64,
    ) -> Option<&'r Arc<Served>> {
        if self.closed.load(Ordering::Relaxed) {
            return None;
        }
        self.places.get(number)?.get(reader)
    }

    pub(crate) fn named(&self, name: &Path) -> Option<Arc<Served>> {
        let state = self.state.lock();
        state.files.iter().find(|file| Path::new(&file.name) == name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Served>> {
        self.state.lock().files.clone()
    }

    /// The number of the next file, and all files.
    pub(crate) fn numbers(&self) -> (u64, Vec<Arc<Served>>) {
        let state = self.state.lock();
        (state.next, state.files.clone())
    }

    /// Gives no number below `next` to a new file.
    pub(crate) fn begin_at(&self, next: u64) {
        let mut state = self.state.lock();
        state.next = state.next.max(next);
    }
}

impl Served {
    /// The size of the file now, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.device.geometry().bytes;
        self.bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    /// The number of bytes of the file among `length` bytes from `offset` on. It asks the device
    /// only if the range passes the known end.
    #[inline]
    pub(crate) fn part(&self, offset: u64, length: u64) -> u64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        match offset.checked_add(length) {
            Some(end) if end <= bytes => length,
            _ => self.part_now(offset, length),
        }
    }

    /// As [`Served::part`], with the size that the device has now.
    #[cold]
    pub(crate) fn part_now(&self, offset: u64, length: u64) -> u64 {
        self.bytes().saturating_sub(offset).min(length)
    }

    pub(crate) fn opened(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.opens.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn open_count(&self) -> u64 {
        // The close of a file that an earlier process opened takes one away.
        self.opens.load(Ordering::Relaxed).cast_signed().max(0).cast_unsigned()
    }
}
