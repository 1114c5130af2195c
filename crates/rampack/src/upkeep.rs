//! Work that is done beside the program's: huge pages, pages that move to smaller forms, and a look
//! at how much memory there is.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use host::{PressureEnd, Waited};
use machine::Machine;
use sync::Mutex;
use units::PAGE_SIZE;

use crate::held::Held;
use crate::{Error, MemoryStats};

/// Who does upkeep. Without any, everything works, a few percent slower, and no page moves to a
/// smaller form by itself.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Upkeep {
    /// A thread of its own, once a second and when memory gets short.
    #[default]
    Thread,
    /// The program, which calls [`Rampack::upkeep`](crate::Rampack::upkeep).
    Manual,
}

/// Why memory is short.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// Compressed data takes seven eighths of [`Builder::memory`](crate::Builder::memory), or more.
    Limit(MemoryStats),
    /// Programs of this system wait for memory.
    System,
}

/// The callback of a builder.
pub(crate) type OnPressure = Box<dyn Fn(Pressure) + Send + Sync>;

const EACH: Duration = Duration::from_secs(1);
/// Blocks of 2 MiB for which huge pages are asked in a round.
const BLOCKS: u32 = 8;
/// Places of a store that are looked at in a round: some milliseconds.
const LOOKS: usize = 16_384;

/// What all clones of a [`Rampack`](crate::Rampack), its disks and its thread share.
pub(crate) struct Inner {
    pub machine: Machine,
    memory: u64,
    on_pressure: Option<OnPressure>,
    stores: Mutex<Vec<Weak<Held>>>,
    /// When upkeep was done last, and when the callback was called.
    last: Mutex<(Instant, Option<Instant>)>,
    /// Ends the thread.
    _end: Option<PressureEnd>,
}

impl Inner {
    pub fn new(machine: Machine, memory: u64, on_pressure: Option<OnPressure>) -> Inner {
        machine.set_clock(host::seconds_since_start());
        let last = Mutex::new((Instant::now(), None));
        let stores = Mutex::new(Vec::new());
        Inner { machine, memory, on_pressure, stores, last, _end: None }
    }

    /// Does upkeep of a store too, as long as it is there.
    pub fn keep_up(&self, store: &Arc<Held>) {
        let mut stores = self.stores.lock();
        stores.retain(|store| store.strong_count() > 0);
        stores.push(Arc::downgrade(store));
    }

    fn stores(&self) -> Vec<Arc<Held>> {
        self.stores.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The most bytes of memory.
    pub fn limit(&self) -> u64 {
        self.memory
    }

    pub fn upkeep(&self) -> Result<bool, Error> {
        let Some(mut last) = self.last.try_lock() else { return Ok(false) };
        let elapsed = last.0.elapsed();
        last.0 += elapsed;
        self.machine.set_clock(host::seconds_since_start());
        self.machine.frames().maintain(BLOCKS);
        let waits = self.machine.move_pages(elapsed);
        self.stores().iter().for_each(|store| store.upkeep(LOOKS));
        let memory = self.memory();
        if memory.used_bytes >= memory.limit_bytes / 8 * 7 {
            self.tell(&mut last.1, Pressure::Limit(memory));
        }
        Ok(waits?)
    }

    pub fn memory(&self) -> MemoryStats {
        let frames = self.machine.frames().stats().allocated;
        let kept: u64 = self.stores().iter().map(|store| store.kept_bytes()).sum();
        MemoryStats { used_bytes: frames * PAGE_SIZE as u64 + kept, limit_bytes: self.memory }
    }

    fn tell(&self, last: &mut Option<Instant>, pressure: Pressure) {
        let Some(call) = &self.on_pressure else { return };
        if last.is_none_or(|last| last.elapsed() >= EACH) {
            call(pressure);
            *last = Some(Instant::now());
        }
    }
}

/// Starts the thread of `inner`. It ends with the last user of `inner`.
///
/// # Errors
/// [`Error::NoMemory`] when the process can have no thread, or no descriptor for it.
pub(crate) fn begin(inner: Inner) -> Result<Arc<Inner>, Error> {
    let refused = |error: io::Error| {
        Error::NoMemory(format!("the thread of upkeep did not start: {error}").into())
    };
    let (mut pressure, end) = host::Pressure::new().map_err(refused)?;
    let inner = Arc::new(Inner { _end: Some(end), ..inner });
    let weak = Arc::downgrade(&inner);
    let run = move || {
        while let Some(inner) = next(&weak, pressure.wait(EACH)) {
            // What fails now is tried again.
            let _ = inner.upkeep();
        }
    };
    thread::Builder::new().name("rampack-upkeep".into()).spawn(run).map_err(refused)?;
    Ok(inner)
}

/// What the thread works on next; `None` when it ends.
fn next(weak: &Weak<Inner>, waited: Waited) -> Option<Arc<Inner>> {
    let inner = weak.upgrade()?;
    match waited {
        Waited::Ended => None,
        Waited::Quiet => Some(inner),
        Waited::Short => {
            if let Some(mut last) = inner.last.try_lock() {
                inner.tell(&mut last.1, Pressure::System);
            }
            Some(inner)
        }
    }
}
