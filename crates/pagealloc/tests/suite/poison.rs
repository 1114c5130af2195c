//! AddressSanitizer sees frames that are not allocated, whichever design they belong to.

use pagealloc::{Frames, ZoneOptions};
use units::{Cpu, Frame, PAGE_SIZE};

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

/// Allocates frames and reads them.
fn allocate(zone: &dyn Frames) -> Vec<Frame> {
    let frames: Vec<Frame> = (0..20).map(|n| zone.alloc(Cpu(n)).unwrap()).collect();
    frames.iter().for_each(|frame| read(zone, frame.0));
    frames
}

/// A frame that lies in a CPU's cache is read.
pub fn cached_frame(make: Make) {
    let zone = make(&HeapProvider::default(), ZoneOptions::new(2, 600));
    let singles = allocate(&*zone);
    zone.free(Cpu(0), singles[7]);
    read(&*zone, singles[7].0);
}

/// A frame that was merged with others, and given back to the system, is read.
pub fn drained_frame(make: Make) {
    let zone = make(&HeapProvider::default(), ZoneOptions::new(2, 600));
    let singles = allocate(&*zone);
    singles.iter().for_each(|frame| zone.free(Cpu(0), *frame));
    zone.drain();
    read(&*zone, singles[11].0);
}
