//! The files of a mount and the devices behind them.

use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use block::BlockDevice;
use sync::Mutex;
use sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// The number of the first file; smaller ones are the directory's and reserved.
const FIRST: u64 = 16;

/// A file: one device under one name. Its number is never given to another.
pub(crate) struct Served {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) opens: AtomicU64,
}

/// Every file of a mount, in the order of their numbers.
pub(crate) struct Table {
    state: Mutex<State>,
}

struct State {
    next: u64,
    files: Vec<Arc<Served>>,
}

impl Table {
    pub(crate) fn new() -> Table {
        Table { state: Mutex::new(State { next: FIRST, files: Vec::new() }) }
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
        state.next += 1;
        let opens = AtomicU64::new(0);
        state.files.push(Arc::new(Served { number, name: name.to_owned(), device, opens }));
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
        // A request holds the file only while it is served, which for memory is microseconds, and
        // for a slower device below it milliseconds.
        loop {
            match Arc::try_unwrap(file) {
                Ok(served) => return Some(served.device),
                Err(held) => file = held,
            }
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Takes every file away, without waiting.
    pub(crate) fn clear(&self) {
        let files = mem::take(&mut self.state.lock().files);
        drop(files);
    }

    pub(crate) fn numbered(&self, number: u64) -> Option<Arc<Served>> {
        let state = self.state.lock();
        let at = state.files.binary_search_by_key(&number, |file| file.number).ok()?;
        Some(state.files[at].clone())
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
