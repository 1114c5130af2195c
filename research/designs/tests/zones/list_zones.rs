//! The kernel's shape with Linux's batches, after threads have come and gone: designs that merge at
//! once have merged everything that is not in a pcp list, and the others have when they are
//! drained.

use pagealloc::ZoneOptions;
use units::Cpu;

use crate::free::Free;
use crate::model::{Borrower, Random};
use crate::tested::DESIGNS;

#[test]
fn designs_merge_what_they_should() {
    for design in DESIGNS {
        let options = ZoneOptions { batch: 63, cache_high: 378, ..ZoneOptions::new(4, 6149) };
        let borrower = Borrower::new(design.make, options);
        let zone = &*borrower.zone;
        for round in 0..5 {
            std::thread::scope(|scope| {
                for n in 0..4u32 {
                    scope.spawn(move || {
                        let mut random = Random::seeded("rests", u64::from(round * 4 + n));
                        let mut held = Vec::new();
                        for _ in 0..3_000 {
                            if random.below(16) < 9 {
                                held.extend(zone.alloc(Cpu(n)));
                            } else if !held.is_empty() {
                                zone.free(Cpu(n), held.swap_remove(random.below(held.len())));
                            }
                        }
                        held.into_iter().for_each(|frame| zone.free(Cpu((n + 1) % 4), frame));
                    });
                }
            });
            zone.validate();
            if design.merges {
                Free::of(zone, borrower.allocated()).is_merged();
            }
            zone.drain();
            zone.validate();
            Free::of(zone, borrower.allocated()).is_at_rest(borrower.allocated());
        }
    }
}
