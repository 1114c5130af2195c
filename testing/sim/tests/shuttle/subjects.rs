//! The engines that are put under shuttle: the stack's own by name, and broken ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use block::{Abilities, BlockDevice, Geometry, IoError, Operation, Plain, Visit};
use control::Fault;
use pagealloc::Frames;
use shuttle::current;
use stack::{Machine, MachineOptions, Variants};
use sync::Reader;
use sync::atomic::{AtomicU64, Ordering};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::OneStream;
use zram::slots::{BitLock, SlotTable};
use zram::{
    Backed, Backing, Chosen, Disk, Export, Loaded, PageStore, Recompressed, Recompression, Slot,
};
use zsmalloc::Pool;

use crate::bench::{Bench, CPUS, FRAMES, Shelf};
use crate::delegate;

/// Makes disks of one kind, on a shelf of so many blocks.
#[derive(Clone)]
pub struct Subject {
    /// What it is.
    pub name: &'static str,
    /// The policy of streams, where the stack makes it.
    streams: &'static str,
    make: fn(&Subject, usize) -> Made,
    flaw: Flaw,
}

/// A disk without a size, and the memory it takes.
pub struct Made {
    pub disk: Arc<Disk>,
    pub frames: Arc<dyn Frames>,
    _machine: Option<Machine>,
}

impl Subject {
    pub fn make(&self, blocks: usize) -> Made {
        (self.make)(self, blocks)
    }
}

/// What is wrong with an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    None,
    /// Whoever reads the backing device is waited for by nobody, so that a block is free as soon
    /// as no slot names it.
    FreesBlocksAtOnce,
    /// A page that was found on the backing device is fetched from there without another look.
    LooksOnce,
    /// A part of a page is read, changed and stored, as three steps.
    ChangesInSteps,
    /// A page is compressed again from what it was, whoever stored it anew meanwhile.
    CompressesOldPages,
    /// Compaction waits for no reader.
    MovesAtOnce,
}

/// A disk of the stack, with the slot scheme of this name.
pub fn scheme(slots: &'static str) -> Subject {
    policy(slots, stack::STREAM_POLICIES[0])
}

/// A disk of the stack, with the slot scheme and the policy of streams of these names.
pub fn policy(slots: &'static str, streams: &'static str) -> Subject {
    let make = |subject: &Subject, blocks| {
        let options = MachineOptions {
            cpus: CPUS,
            memory: u64::from(FRAMES) * PAGE_SIZE as u64,
            variants: Variants {
                slots: subject.name.into(),
                streams: subject.streams.into(),
                ..Variants::default()
            },
            files: Arc::new(Shelf(shelf(blocks))),
            swap_world: Arc::new(host::Mmap),
            track_access: false,
        };
        let machine = Machine::new(Arc::new(host::Mmap), options).expect("there are addresses");
        let disk = machine.add().expect("there are numbers");
        Made { disk, frames: machine.frames().clone(), _machine: Some(machine) }
    };
    Subject { name: slots, streams, make, flaw: Flaw::None }
}

/// A disk with a slot table that the stack does not know.
pub fn table<T: SlotTable + 'static>() -> Subject {
    Subject { name: T::NAME, streams: "", make: bench::<T>, flaw: Flaw::None }
}

/// A disk with the default scheme and a flaw elsewhere.
pub fn flawed(flaw: Flaw) -> Subject {
    Subject { name: "flawed", streams: "", make: bench::<BitLock>, flaw }
}

fn bench<T: SlotTable + 'static>(subject: &Subject, blocks: usize) -> Made {
    let (flaw, shelf) = (subject.flaw, shelf(blocks));
    let over = Flawed::over(flaw, shelf.clone());
    let pool_waits = flaw != Flaw::MovesAtOnce;
    let bench = Bench { pool_waits, over_engine: Box::new(over), ..Bench::new(shelf) };
    let (disk, frames) = bench.disk::<T>();
    Made { disk, frames, _machine: None }
}

fn shelf(blocks: usize) -> Arc<dyn BlockDevice> {
    Arc::new(Slow(Plain::new(blocks * PAGE_SIZE), AtomicU64::new(0)))
}

/// A device that others may come before, often, when it is asked for something.
struct Slow(Plain, AtomicU64);

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn submit(&self, cpu: Cpu, operation: Operation<'_>) -> Result<(), IoError> {
        for _ in 0..12 {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        self.0.submit(cpu, operation)
    }
    fn extents(&self, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.0.extents(offset, length, visit)
    }
}

/// An engine with a flaw put over it.
struct Flawed {
    engine: Arc<dyn PageStore>,
    flaw: Flaw,
    /// The same device, of which nobody waits for the readers.
    unwatched: Arc<Backing>,
    /// By thread: where the page is that it has found on the backing device just now.
    found: Mutex<BTreeMap<usize, (usize, Backed)>>,
}

impl Flawed {
    fn over(
        flaw: Flaw,
        shelf: Arc<dyn BlockDevice>,
    ) -> impl Fn(Arc<dyn PageStore>) -> Arc<dyn PageStore> {
        move |engine| {
            let unwatched = Backing::new(&host::Mmap, shelf.clone(), "unwatched", CPUS);
            let unwatched = Arc::new(unwatched.expect("there are addresses"));
            Arc::new(Flawed { engine, flaw, unwatched, found: Mutex::default() })
        }
    }

    fn me() -> usize {
        current::me().into()
    }

    fn note(&self, index: usize, loaded: Result<Loaded, IoError>) -> Result<Loaded, IoError> {
        if let Ok(Loaded::Backed(place)) = loaded {
            self.found.lock().unwrap().insert(Flawed::me(), (index, place));
        }
        loaded
    }
}

impl PageStore for Flawed {
    fn load(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &mut Page,
    ) -> Result<Loaded, IoError> {
        if self.flaw == Flaw::LooksOnce {
            let found = self.found.lock().unwrap().remove(&Flawed::me());
            if let Some((_, place)) = found.filter(|(found, _)| *found == index) {
                return Ok(Loaded::Backed(place));
            }
        }
        self.note(index, self.engine.load(reader, cpu, index, page))
    }
    fn modify(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        known: Option<(Backed, &Page)>,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<Loaded, IoError> {
        if self.flaw == Flaw::ChangesInSteps {
            let mut page = [0; PAGE_SIZE];
            let loaded = self.engine.load(reader, cpu, index, &mut page)?;
            if loaded == Loaded::Page {
                edit(&mut page);
                self.engine.store(reader, cpu, index, &page)?;
                return Ok(loaded);
            }
        }
        self.note(index, self.engine.modify(reader, cpu, index, known, edit))
    }
    fn backing(&self) -> Option<&Arc<Backing>> {
        let backing = self.engine.backing()?;
        let reads = self.found.lock().unwrap().contains_key(&Flawed::me());
        if self.flaw == Flaw::FreesBlocksAtOnce && reads {
            return Some(&self.unwatched);
        }
        Some(backing)
    }

    fn store(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &Page,
    ) -> Result<(), IoError> {
        self.engine.store(reader, cpu, index, page)
    }
    fn export(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        to: Export<'_>,
    ) -> Result<Option<Backed>, IoError> {
        self.engine.export(reader, cpu, index, to)
    }
    fn recompress(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        how: Recompression,
    ) -> Result<Recompressed, IoError> {
        if self.flaw != Flaw::CompressesOldPages {
            return self.engine.recompress(reader, cpu, index, how);
        }
        let mut page = [0; PAGE_SIZE];
        let loaded = self.engine.load(reader, cpu, index, &mut page)?;
        let done = self.engine.recompress(reader, cpu, index, how)?;
        if (loaded, done) == (Loaded::Page, Recompressed::Smaller) {
            self.engine.store(reader, cpu, index, &page)?;
        }
        Ok(done)
    }

    delegate::to_engine!();
}
