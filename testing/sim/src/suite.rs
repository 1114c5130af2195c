//! The tests that every block device must pass.
//!
//! A test may call the parts one by one; [`block_device`] calls all of them. A part panics with the
//! fault it found, and with the seed if it uses random numbers.

mod crowd;
mod edges;
mod hot_pages;
mod neighbours;

use std::sync::Arc;

use block::BlockDevice;
use testkit::{Rng, cases};

use crate::events::Weights;
use crate::model::{Drive, listed};
use crate::shrink;

use crowd::P;
pub use crowd::{Crowd, Make, owners, together};
pub use edges::edges;
pub use hot_pages::hot_pages;
pub use neighbours::neighbours;

/// The whole suite, for devices that have space for all of their bytes.
///
/// # Panics
/// When the device breaks the contract of [`BlockDevice`].
pub fn block_device(seed: u64, make: impl Fn(u64) -> Arc<dyn BlockDevice>) {
    edges(&make);
    let mut rng = Rng::new(seed);
    for (pages, events) in [(1, 400), (7, 1500), (300, 3000)] {
        against_model(&make, pages * P, Drive::new(rng.next_u64(), cases(events)));
    }
    let weights = Weights { discard: 30, punch: 15, zero: 15, ..Weights::default() };
    against_model(&make, 16 * P, Drive { weights, ..Drive::new(rng.next_u64(), cases(1500)) });
    neighbours(&*make(16 * P), Crowd::new(rng.next_u64()));
    hot_pages(&*make(16 * P), Crowd::new(rng.next_u64()));
}

/// Runs random events on a device of `bytes` bytes and compares it with the model.
///
/// # Panics
/// When device and model differ. The message has the seed and a minimal list of events.
pub fn against_model(make: Make<'_>, bytes: u64, drive: Drive) {
    let device = make(bytes);
    let events: Vec<_> = drive.events(&*device).collect();
    let Some((number, wrong)) = shrink::first_difference(&*device, &events, drive.may_fill_up)
    else {
        return;
    };
    let shrunk = shrink::shrink(&|| make(bytes), &events, drive.may_fill_up);
    let seed = drive.seed;
    match shrunk {
        Some((events, wrong)) => panic!(
            "{wrong}\nafter these events on a new device of {bytes} bytes:\n{}\
             the first {} events of seed {seed:#x}, shrunk",
            listed(&events),
            number + 1
        ),
        None => panic!("{wrong}\nat event {number} of seed {seed:#x}, but not a second time"),
    }
}

/// Runs the model on a device whose memory runs out and that has another place for pages. It must
/// refuse nothing. `make` must return a device whose memory cannot hold noise in half of its bytes.
///
/// # Panics
/// When a change is refused or a page is lost.
pub fn overflowing(seed: u64, make: impl Fn(u64) -> Arc<dyn BlockDevice>) {
    const BYTES: u64 = 400 * P;
    let weights = Weights { write_pages: 60, discard: 2, punch: 1, ..Weights::default() };
    against_model(&make, BYTES, Drive { weights, ..Drive::new(seed, cases(3000)) });
    let device = make(BYTES);
    for round in 0..2 {
        let refused = edges::fill_with_noise(&*device, seed.wrapping_add(round));
        assert_eq!(refused, 0, "pages were refused in round {round}");
    }
}

/// Runs the model on a device that runs out of space. `make` must return a device that cannot hold
/// noise in half of its bytes. Stored pages must survive a refused change. After a discard of
/// everything the device must have space again.
///
/// # Panics
/// When a page is lost, when no space comes back, or when the device refused nothing.
pub fn filling_up(seed: u64, make: impl Fn(u64) -> Arc<dyn BlockDevice>) {
    const BYTES: u64 = 400 * P;
    let weights = Weights { write_pages: 60, discard: 2, punch: 1, ..Weights::default() };
    let drive = Drive { weights, may_fill_up: true, ..Drive::new(seed, cases(3000)) };
    against_model(&make, BYTES, drive);
    let device = make(BYTES);
    for round in 0..2 {
        let refused = edges::fill_with_noise(&*device, seed.wrapping_add(round));
        assert!(refused > 0, "nothing was refused in round {round}; the device has a limit");
        assert!(refused < BYTES / P, "there is no space again in round {round}");
        edges::discard_all(&*device);
    }
}
