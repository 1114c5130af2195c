//! A disk whose slot table lets a test in at a certain moment of a request.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use block::{BlockDevice, Plain};
use control::ControlError;
use pagealloc::{MemoryProvider, NoMemory, Zone, ZoneOptions};
use units::{Cpu, PAGE_SIZE};
use zram::slots::{AnySlots, BitLock, SlotTable};
use zram::{Disk, HostFiles, Resources, Slot};

const CPUS: usize = 2;

/// What the test does at a moment, once.
pub type Action = Box<dyn FnOnce() + Send>;

/// What is to be done, and when.
#[derive(Default)]
pub struct SyncPoints {
    /// After the page was looked at by a reader, and found on the backing device.
    pub found_elsewhere: Mutex<Option<Action>>,
    /// Before a marked page is copied out to be written back.
    pub exporting: Mutex<Option<Action>>,
    /// After the contents were read that a part is changed of.
    pub editing: Mutex<Option<Action>>,
    /// Before a page is stored.
    pub storing: Mutex<Option<Action>>,
}

fn now(action: &Mutex<Option<Action>>) {
    let action = action.lock().unwrap().take();
    if let Some(action) = action {
        action();
    }
}

/// A disk with a backing device of `blocks` blocks.
pub fn disk(sync_points: &Arc<SyncPoints>, blocks: usize) -> Arc<Disk> {
    let zone = Arc::new(Zone::new(&host::Mmap, ZoneOptions::new(CPUS, 1 << 14)).unwrap());
    let files = Arc::new(FaultyDevice(Arc::new(Plain::new(blocks * PAGE_SIZE))));
    let sync_points = sync_points.clone();
    let resources = Resources {
        slots: Some(Box::new(move |provider, slots, cpus| {
            let sync_points = sync_points.clone();
            Ok(AnySlots::of(Hooked { sync_points, ..Hooked::new(provider, slots, cpus)? }))
        })),
        ..Resources::new(Arc::new(host::Mmap), zone, CPUS, files)
    };
    let disk = Disk::new(0, Arc::new(resources));
    disk.set_backing("/backing").unwrap();
    disk.set_disksize(64 * PAGE_SIZE as u64).unwrap();
    disk
}

struct FaultyDevice(Arc<Plain>);

impl HostFiles for FaultyDevice {
    fn open_backing(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Ok(self.0.clone())
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::invalid(path))
    }
}

/// The product's slot table, with sync points.
pub struct Hooked {
    table: BitLock,
    sync_points: Arc<SyncPoints>,
    /// At a page that is on the backing device, by those who change a part of it.
    looks: AtomicU32,
}

// SAFETY: it does what the product's does.
unsafe impl SlotTable for Hooked {
    const NAME: &'static str = "hooked";
    const BYTES: usize = BitLock::BYTES;

    fn new(provider: &dyn MemoryProvider, slots: usize, cpus: usize) -> Result<Hooked, NoMemory> {
        let table = BitLock::new(provider, slots, cpus)?;
        Ok(Hooked { table, sync_points: Arc::default(), looks: AtomicU32::new(0) })
    }
    fn count(&self) -> usize {
        self.table.count()
    }
    fn load<R>(&self, cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        // Whoever writes back loads a page that it has marked.
        if self.table.peek(index).is_marked() {
            now(&self.sync_points.exporting);
        }
        let mut seen = Slot::EMPTY;
        let result = self.table.load(cpu, index, |slot| {
            seen = slot;
            read(slot)
        });
        if seen.is_backed() {
            now(&self.sync_points.found_elsewhere);
        }
        // Whoever changes a part of a page loads it under a claim; one that is on the backing
        // device a second time with the right to fetch it, and a third time when it is there.
        if seen.is_claimed() {
            let looks = self.looks.fetch_add(1, SeqCst) + 1;
            if !seen.is_backed() || looks == 3 {
                self.looks.store(0, SeqCst);
                now(&self.sync_points.editing);
            }
        }
        result
    }
    fn update(&self, index: usize, next: impl FnMut(Slot) -> Option<Slot>) -> Result<Slot, Slot> {
        self.table.update(index, next)
    }
    fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot)) {
        self.table.retire(cpu, displaced, free);
    }
    fn peek(&self, index: usize) -> Slot {
        self.table.peek(index)
    }
    fn next_touched(&self, from: usize, end: usize) -> usize {
        self.table.next_touched(from, end)
    }
    fn touched(&self, end: usize) -> u64 {
        self.table.touched(end)
    }
    fn prefetch(&self, index: usize) {
        // The first that a store does.
        now(&self.sync_points.storing);
        self.table.prefetch(index);
    }
}
