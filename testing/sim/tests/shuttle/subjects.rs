//! The engines that run under shuttle: designs by name, and broken ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use designs::{AnyDisk, Machine, MachineOptions, Variants};
use pagealloc::{Frames, MemoryProvider, NoMemory};
use shuttle::current;
use sync::atomic::{AtomicU64, Ordering};
use units::{Cpu, PAGE_SIZE};
use zram::Slot;
use zram::slots::{BitLock, SlotTable};

use crate::bench::{Bench, CPUS, FRAMES, FaultyDevice};

/// Makes disks of one kind, on a backing device with a given number of blocks.
#[derive(Clone)]
pub struct Subject {
    /// The name of the subject.
    pub name: &'static str,
    /// The policy of streams, if the stack makes the disk.
    streams: &'static str,
    make: fn(&Subject, usize) -> Made,
}

/// A disk without a size, and the memory it takes.
pub struct Made {
    pub disk: Arc<dyn AnyDisk>,
    pub frames: Arc<dyn Frames>,
    /// Sets the clock that dates pages.
    pub set_clock: Box<dyn Fn(u32) + Send + Sync>,
}

impl Subject {
    pub fn make(&self, blocks: usize) -> Made {
        (self.make)(self, blocks)
    }
}

/// A disk of the designs' machine, with the slot scheme of this name.
pub fn scheme(slots: &'static str) -> Subject {
    policy(slots, designs::STREAM_POLICIES[0])
}

/// A disk of the designs' machine, with the slot scheme and the policy of streams of these names.
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
            files: Arc::new(FaultyDevice(device_below(blocks))),
            swap_scenario: Arc::new(host::Mmap),
        };
        let machine = Machine::new(Arc::new(host::Mmap), options).expect("there are addresses");
        let disk = machine.add().expect("there are numbers");
        let frames = machine.frames().clone();
        Made { disk, frames, set_clock: Box::new(move |seconds| machine.set_clock(seconds)) }
    };
    Subject { name: slots, streams, make }
}

/// A disk with a slot table that has no name there.
pub fn table<T: SlotTable + 'static>() -> Subject {
    Subject { name: T::NAME, streams: "", make: bench::<T> }
}

fn bench<T: SlotTable + 'static>(_: &Subject, blocks: usize) -> Made {
    let (disk, frames, clock) = Bench::new(device_below(blocks)).disk::<T>();
    Made { disk, frames, set_clock: Box::new(move |seconds| clock.set(seconds)) }
}

fn device_below(blocks: usize) -> Arc<dyn BlockDevice> {
    Arc::new(Slow(Plain::new(blocks * PAGE_SIZE), AtomicU64::new(0)))
}

/// A device that often lets other threads run before an operation.
struct Slow(Plain, AtomicU64);

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        for _ in 0..12 {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        self.0.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.0.extents(cpu, offset, length, visit)
    }
}

/// Where a thread has found a page.
type Found = BTreeMap<usize, (usize, Slot)>;

/// The product's slot table with a flaw: a second load of a page on the backing device returns the
/// slot of the first load.
pub struct LooksOnce(BitLock, Mutex<Found>);

/// The product's slot table with a flaw: a displaced claim still counts.
pub struct IgnoresClaims(BitLock, Mutex<Found>);

fn me() -> usize {
    current::me().into()
}

/// The methods that both tables take from the product's table.
macro_rules! as_bit_lock {
    () => {
        const NAME: &'static str = "flawed";
        const BYTES: usize = BitLock::BYTES;

        fn new(scenario: &dyn MemoryProvider, slots: usize, cpus: usize) -> Result<Self, NoMemory> {
            Ok(Self(BitLock::new(scenario, slots, cpus)?, Mutex::default()))
        }
        fn count(&self) -> usize {
            self.0.count()
        }
        fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot)) {
            self.0.retire(cpu, displaced, free);
        }
        fn peek(&self, index: usize) -> Slot {
            self.0.peek(index)
        }
        fn next_touched(&self, from: usize, end: usize) -> usize {
            self.0.next_touched(from, end)
        }
        fn touched(&self, end: usize) -> u64 {
            self.0.touched(end)
        }
        fn prefetch(&self, index: usize) {
            self.0.prefetch(index);
        }
    };
}

// SAFETY: none. The table is broken on purpose, and tests must reject it.
unsafe impl SlotTable for LooksOnce {
    as_bit_lock!();

    fn load<R>(&self, cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        let found = self.1.lock().unwrap().remove(&me());
        if let Some((_, slot)) = found.filter(|(found, _)| *found == index) {
            return read(slot);
        }
        let mut seen = Slot::EMPTY;
        let result = self.0.load(cpu, index, |slot| {
            seen = slot;
            read(slot)
        });
        if seen.is_backed() && !seen.is_claimed() {
            self.1.lock().unwrap().insert(me(), (index, seen));
        }
        result
    }
    fn update(&self, index: usize, next: impl FnMut(Slot) -> Option<Slot>) -> Result<Slot, Slot> {
        self.0.update(index, next)
    }
}

// SAFETY: none. The table is broken on purpose, and tests must reject it.
unsafe impl SlotTable for IgnoresClaims {
    as_bit_lock!();

    fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R {
        self.0.load(cpu, index, read)
    }
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        let claimed = self.1.lock().unwrap().get(&me()).copied();
        let mut made = Slot::EMPTY;
        let updated = self.0.update(index, |now| {
            let new = next(now).or_else(|| {
                let (_, held) = claimed.filter(|(place, _)| *place == index)?;
                next(held)
            })?;
            made = new;
            Some(new)
        });
        let mut claims = self.1.lock().unwrap();
        match updated {
            Ok(_) if made.is_claimed() => claims.insert(me(), (index, made)),
            _ => claims.remove(&me()),
        };
        updated
    }
}
