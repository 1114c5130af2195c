//! A zone on the operating system's memory: what is lent costs memory, what is free does not.

use host::Mmap;
use pagealloc::{Frames, Zone, ZoneOptions};
use units::{Frame, Lane, Order, PAGE_SIZE};

const MIB: u64 = 1 << 20;

#[test]
fn memory_comes_and_goes() {
    let start = host::resident_bytes();
    // A terabyte of capacity.
    let zone = Zone::new(&Mmap, ZoneOptions::new(2, 1 << 28)).unwrap();
    let largest = Zone::new(&Mmap, ZoneOptions::new(2, u32::MAX)).expect("16 TiB of addresses");
    assert!(host::resident_bytes() < start + MIB, "capacity costs memory");
    drop(largest);

    let frames: Vec<Frame> =
        (0..64 * MIB / 4096).map(|_| zone.alloc(Lane(0), Order::ZERO).unwrap()).collect();
    for frame in &frames {
        // SAFETY: lent to us.
        unsafe { zone.base().as_ptr().add(frame.0 as usize * PAGE_SIZE).write_volatile(1) };
    }
    let full = host::resident_bytes() - start;
    assert!((64 * MIB..66 * MIB).contains(&full), "64 MiB of frames cost {full}");
    for frame in frames {
        zone.free(Lane(0), frame, Order::ZERO);
    }
    zone.drain();
    zone.validate();
    let empty = host::resident_bytes() - start;
    assert!(empty < 2 * MIB, "{empty} bytes stay when nothing is lent");
}
