//! A zone on the operating system's memory: what is allocated costs memory, what is free does not.

use crate::design::Design;
use crate::tested::DESIGNS;
use host::Mmap;
use pagealloc::{MemoryProvider, NoMemory, Region, Zone, ZoneOptions};
use sync::atomic::{AtomicUsize, Ordering};
use units::{Cpu, Frame, PAGE_SIZE};

const MIB: u64 = 1 << 20;

#[test]
fn memory_comes_and_goes() {
    DESIGNS.iter().for_each(comes_and_goes);
}

fn comes_and_goes(design: &Design) {
    let name = design.name;
    let start = host::resident_bytes();
    // A terabyte of capacity.
    let zone = (design.make)(&Mmap, ZoneOptions::new(2, 1 << 28));
    // 8 TiB of addresses, the most that products ask for.
    let largest = (design.make)(&Mmap, ZoneOptions::new(2, u32::MAX / 2));
    assert!(host::resident_bytes() < start + MIB, "{name}: capacity costs memory");
    drop(largest);

    let frames: Vec<Frame> = (0..64 * MIB / 4096).map(|_| zone.alloc(Cpu(0)).unwrap()).collect();
    for frame in &frames {
        // SAFETY: allocated to us.
        unsafe { zone.base().as_ptr().add(frame.0 as usize * PAGE_SIZE).write_volatile(1) };
    }
    let full = host::resident_bytes().saturating_sub(start);
    assert!((64 * MIB..66 * MIB).contains(&full), "{name}: 64 MiB of frames cost {full}");
    for frame in frames {
        zone.free(Cpu(0), frame);
    }
    zone.drain();
    zone.validate();
    let empty = host::resident_bytes().saturating_sub(start);
    assert!(empty < 2 * MIB, "{name}: {empty} bytes stay when nothing is allocated");
}

/// The system's memory, and how much of it was reserved.
#[derive(Default)]
struct Counted(AtomicUsize);

impl MemoryProvider for Counted {
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Mmap.reserve(bytes)
    }
}

#[test]
fn tables_take_half_a_thousandth_at_most() {
    let frames = 64 << 20;
    let provider = Counted::default();
    let zone = Zone::new(&provider, ZoneOptions::new(2, frames)).unwrap();
    let (memory, all) = (frames as usize * PAGE_SIZE, provider.0.load(Ordering::Relaxed));
    assert!(all - memory <= memory / 2000, "{} bytes for {memory}", all - memory);
    drop(zone);
}
