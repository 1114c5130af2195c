//! AddressSanitizer sees frames that are not allocated, whichever design they belong to.

use pagealloc::{Frames, ZoneOptions};
use units::{Cpu, Frame, Order, PAGE_SIZE};

use crate::free::order;
use crate::model::Make;
use crate::provider::HeapProvider;

/// What it says.
pub const REPORT: &str = "AddressSanitizer: use-after-poison";

/// Reads the last byte of a frame.
fn read(zone: &dyn Frames, frame: u32) {
    let address = zone.base().as_ptr().wrapping_add((frame as usize + 1) * PAGE_SIZE - 1);
    // SAFETY: committed memory of the zone. That it is not allocated is what must be found out.
    println!("{}", unsafe { address.read_volatile() });
}

/// Allocates single frames and a block of eight, and reads those.
fn allocate(zone: &dyn Frames) -> (Vec<Frame>, Frame) {
    let singles: Vec<Frame> = (0..20).map(|n| zone.alloc(Cpu(n), Order::ZERO).unwrap()).collect();
    let block = zone.alloc(Cpu(0), order(3)).unwrap();
    singles.iter().for_each(|frame| read(zone, frame.0));
    (0..8).for_each(|n| read(zone, block.0 + n));
    (singles, block)
}

/// A frame that lies in a CPU's cache is read.
pub fn cached_frame(make: Make) {
    let zone = make(&HeapProvider::default(), ZoneOptions::new(2, 600));
    let (singles, _) = allocate(&*zone);
    zone.free(Cpu(0), singles[7], Order::ZERO);
    read(&*zone, singles[7].0);
}

/// The inside of a block that was freed is read.
pub fn block_inside(make: Make) {
    let zone = make(&HeapProvider::default(), ZoneOptions::new(2, 600));
    let (_, block) = allocate(&*zone);
    zone.free(Cpu(1), block, order(3));
    read(&*zone, block.0 + 5);
}

/// A frame that was merged with others, and given back to the system, is read.
pub fn drained_frame(make: Make) {
    let zone = make(&HeapProvider::default(), ZoneOptions::new(2, 600));
    let (singles, _) = allocate(&*zone);
    singles.iter().for_each(|frame| zone.free(Cpu(0), *frame, Order::ZERO));
    zone.drain();
    read(&*zone, singles[11].0);
}
