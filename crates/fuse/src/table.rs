//! The files of a mount and the devices behind them.

use std::mem;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use block::BlockDevice;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{Mutex, Published, Reader, ReaderEpochs};
use units::Cpu;

use crate::Error;

/// The number of the first file; smaller ones are the directory's and reserved.
const FIRST: u64 = 16;

/// A file: one device under one name. Its number is never given to another; it is also the handle
/// of the file while it is open.
pub(crate) struct Served {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) opens: AtomicU64,
    /// Bytes the device had when it was last asked.
    bytes: AtomicU64,
}

/// Every file of a mount, in the order of their numbers. Names are looked up under a lock, numbers
/// by readers without one.
pub(crate) struct Table {
    state: Mutex<State>,
    places: Places,
    readers: Arc<ReaderEpochs>,
    /// No file is found by its number any more.
    closed: AtomicBool,
}

struct State {
    next: u64,
    files: Vec<Arc<Served>>,
}

type Place = Published<Arc<Served>>;

/// A place for each number there ever was, in pieces that stay where they are: each has twice as
/// many as the one before.
struct Places([OnceLock<Box<[Place]>>; PIECES]);

const PIECES: usize = 48;

impl Places {
    fn at(number: u64) -> Option<(usize, usize)> {
        let nth = number.checked_sub(FIRST - 1).filter(|nth| *nth > 0)?;
        let piece = nth.ilog2();
        Some((piece as usize, usize::try_from(nth - (1 << piece)).ok()?))
    }

    #[inline]
    fn get(&self, number: u64) -> Option<&Place> {
        let (piece, index) = Places::at(number)?;
        self.0.get(piece)?.get()?.get(index)
    }

    /// The place of a new number.
    fn make(&self, number: u64, readers: &Arc<ReaderEpochs>) -> Option<&Place> {
        let (piece, index) = Places::at(number)?;
        let places = || (0..1usize << piece).map(|_| Place::new(readers.clone())).collect();
        self.0.get(piece)?.get_or_init(places).get(index)
    }

    fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.iter().filter_map(OnceLock::get).flatten()
    }
}

impl Table {
    /// No files; readers run on `cpus` CPUs.
    pub(crate) fn new(cpus: usize) -> Table {
        Table {
            state: Mutex::new(State { next: FIRST, files: Vec::new() }),
            places: Places([const { OnceLock::new() }; PIECES]),
            readers: Arc::new(ReaderEpochs::new(cpus)),
            closed: AtomicBool::new(false),
        }
    }

    /// Begins a request: files that it finds stay until the reader is dropped.
    #[inline]
    pub(crate) fn enter(&self, cpu: Cpu) -> Reader<'_> {
        self.readers.enter(cpu)
    }

    pub(crate) fn add(&self, name: &str, device: Arc<dyn BlockDevice>) -> Result<(), Error> {
        let refuse = |why| Err(Error::Name { name: name.to_owned(), why });
        if name.is_empty() || name == "." || name == ".." {
            return refuse("a file must have a name of its own");
        }
        if name.len() > 255 || name.contains(['/', '\0']) {
            return refuse("a file name has at most 255 bytes, none of them '/' or NUL");
        }
        let mut state = self.state.lock();
        if state.files.iter().any(|file| file.name == name) {
            return refuse("another device has it");
        }
        let number = state.next;
        let opens = AtomicU64::new(0);
        let bytes = AtomicU64::new(device.geometry().bytes);
        let file = Arc::new(Served { number, name: name.to_owned(), device, opens, bytes });
        let place = self.places.make(number, &self.readers);
        if place.is_none_or(|place| place.publish(Box::new(file.clone())).is_err()) {
            return refuse("there were more files than there are numbers");
        }
        state.next += 1;
        state.files.push(file);
        Ok(())
    }

    /// Takes the file away, then waits until no request is being served from it. Must not be
    /// called by a thread that serves requests.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        let mut file = {
            let mut state = self.state.lock();
            let at = state.files.iter().position(|file| file.name == name)?;
            state.files.remove(at)
        };
        // A request is a reader only while it is served, which for memory is microseconds.
        drop(self.places.get(file.number).and_then(|place| place.withdraw()));
        // Those that wait for a slower device below have the file itself, for milliseconds.
        loop {
            match Arc::try_unwrap(file) {
                Ok(served) => return Some(served.device),
                Err(held) => file = held,
            }
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Takes every file away, without waiting. Nothing may be added after it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let files = mem::take(&mut self.state.lock().files);
        drop(files);
    }

    /// Lets go of the devices of a table that was closed, when no request is served any more.
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
}

impl Served {
    /// Its size at this moment, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.device.geometry().bytes;
        self.bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    /// How many of `length` bytes from `offset` on it has. The device is asked only if they pass
    /// the end that is known.
    #[inline]
    pub(crate) fn part(&self, offset: u64, length: u64) -> u64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        match offset.checked_add(length) {
            Some(end) if end <= bytes => length,
            _ => self.part_now(offset, length),
        }
    }

    /// The same, of this moment.
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
        self.opens.load(Ordering::Relaxed)
    }
}
