//! AddressSanitizer sees frames that are not allocated, whichever design they belong to.

use pagealloc::{Frames, ZoneOptions};
use units::{Cpu, Frame, PAGE_SIZE};

use crate::model::{Lender, Make};
use crate::provider::HeapProvider;

/// What it says.
pub const REPORT: &str = "AddressSanitizer: use-after-poison";

/// Reads the last byte of a frame.
fn read(zone: &dyn Frames, frame: u32) {
    let address = zone.base().as_ptr().wrapping_add((frame as usize + 1) * PAGE_SIZE - 1);
    // SAFETY: committed memory of the zone. That it is not allocated is what must be found out.
    println!("{}", unsafe { address.read_volatile() });
}

/// Allocates single frames and a block of eight, if there are blocks, and reads those.
fn allocate(zone: &dyn Lender) -> (Vec<Frame>, Option<Frame>) {
    let singles: Vec<Frame> = (0..20).map(|n| zone.alloc(Cpu(n)).unwrap()).collect();
    let block = (zone.largest() >= 3).then(|| zone.lend(Cpu(0), 3).unwrap());
    singles.iter().for_each(|frame| read(zone, frame.0));
    block.iter().for_each(|block| (0..8).for_each(|n| read(zone, block.0 + n)));
    (singles, block)
}

/// A frame that lies in a CPU's cache is read.
pub fn cached_frame(make: Make) {
    let zone = make(&HeapProvider::default(), ZoneOptions::new(2, 600));
    let (singles, _) = allocate(&*zone);
    zone.free(Cpu(0), singles[7]);
    read(&*zone, singles[7].0);
}

/// The inside of a block that was freed is read.
pub fn block_inside(make: Make) {
    let zone = make(&HeapProvider::default(), ZoneOptions::new(2, 600));
    let block = allocate(&*zone).1.expect("it has blocks");
    zone.take_back(Cpu(1), block, 3);
    read(&*zone, block.0 + 5);
}

/// A frame that was merged with others, and given back to the system, is read.
pub fn drained_frame(make: Make) {
    let zone = make(&HeapProvider::default(), ZoneOptions::new(2, 600));
    let (singles, _) = allocate(&*zone);
    singles.iter().for_each(|frame| zone.free(Cpu(0), *frame));
    zone.drain();
    read(&*zone, singles[11].0);
}
