//! The seam's suite: what every zone design must do, and designs that must not pass. The designs
//! are listed in [`designs`]; what the product's own must do besides stands here.

mod bad_frees;
mod bitmap;
// A sanitizer ends the process at the first of them.
#[cfg(not(asan))]
mod broken;
mod checks;
#[cfg(not(asan))]
mod controls;
mod crowd;
mod designs;
mod exhaustive;
mod free;
mod list_zones;
mod model;
#[cfg(not(asan))]
mod naive;
#[cfg(asan)]
mod poison;
mod rest;
// Worlds whose memory is provided ahead are for the unit tests.
#[allow(dead_code)]
mod world;

use pagealloc::{Zone, ZoneOptions};
use units::{Cpu, FRAMES_PER_BLOCK, Order};

use crate::designs::{DESIGNS, Design, Make, zone};
use crate::model::Borrower;
use crate::world::HeapWorld;

/// One test for each check of each design.
macro_rules! designs {
    ($($design:ident: $name:expr;)*) => {
        /// The designs that have tests.
        const TESTED: &[&str] = &[$($name),*];

        $(mod $design {
            use pagealloc::ZoneOptions;

            fn design() -> &'static crate::designs::Design {
                crate::design($name)
            }

            #[test]
            fn conforms() {
                crate::conforms(design(), design().make);
            }

            /// No stock to speak of, one CPU for all, every block collapsed: other ways through it.
            #[test]
            fn conforms_without_cpus_of_its_own() {
                crate::conforms(design(), |world, options| {
                    let options = ZoneOptions { cpus: 0, batch: 0, cache_high: 0, ..options };
                    (design().make)(world, ZoneOptions { collapse: true, ..options })
                });
            }

            #[test]
            fn small_worlds_exhaustively() {
                crate::exhaustive::small_worlds(design().make);
            }

            #[test]
            fn random_calls_against_a_bitmap() {
                crate::bitmap::against_bitmap(design());
            }

            #[test]
            fn crowds_of_threads() {
                crate::crowd::crowds(design().make);
            }

            #[test]
            fn bad_frees_are_found_and_have_no_effect() {
                crate::bad_frees::bad_frees(design().make);
            }

            #[test]
            fn comes_to_rest_merged() {
                crate::rest::at_rest(design().make);
            }

            #[test]
            fn whole_blocks_are_found_when_they_are_there() {
                crate::rest::huge_when_there(design().make);
            }

            #[cfg(asan)]
            mod shut {
                use testkit::dies;

                use super::design;
                use crate::poison::{REPORT, block_inside, cached_frame, drained_frame};

                #[test]
                fn cached_frames() {
                    let name = concat!(stringify!($design), "::shut::cached_frames");
                    dies(name, REPORT, || cached_frame(design().make));
                }

                #[test]
                fn blocks() {
                    let name = concat!(stringify!($design), "::shut::blocks");
                    dies(name, REPORT, || block_inside(design().make));
                }

                #[test]
                fn drained_frames() {
                    let name = concat!(stringify!($design), "::shut::drained_frames");
                    dies(name, REPORT, || drained_frame(design().make));
                }
            }
        })*
    };
}

designs! {
    bitfield: "bitfield";
    spin: "spin";
    rwlock_range: "rwlock-range";
    splice: "splice";
    premerge: "premerge";
    no_merge: "no-merge";
    no_merge_cluster: "no-merge-cluster";
}

/// The checks of what every zone must do. When memory goes back is asked of some only.
fn conforms(design: &Design, make: Make) {
    match design.returns_at_once {
        true => checks::conforms(make),
        false => checks::conforms_when_drained(make),
    }
}

/// The design of this name.
fn design(name: &str) -> &'static Design {
    DESIGNS.iter().find(|design| design.name == name).expect("it is on the list")
}

#[test]
fn every_design_has_its_tests() {
    assert_eq!(TESTED, DESIGNS.iter().map(|design| design.name).collect::<Vec<_>>());
}

#[test]
fn zone_lends_low_addresses_first() {
    let mut borrower = Borrower::new(zone, ZoneOptions::new(1, 4 * FRAMES_PER_BLOCK));
    while borrower.borrow(0, 0) {}
    let low = |n: u32| n.is_multiple_of(5);
    for n in (0..borrower.held.len()).rev() {
        if low(borrower.held[n].frame.0) {
            borrower.give_back(0, n);
        }
    }
    borrower.zone.drain();
    for n in 0..50 {
        assert_eq!(borrower.zone.alloc(Cpu(0), Order::ZERO).unwrap().0, 5 * n);
    }
}

#[test]
fn zone_collapses_each_full_block_once_and_not_while_somebody_waits() {
    let options = ZoneOptions { collapse: true, ..ZoneOptions::new(1, 4 * FRAMES_PER_BLOCK) };
    let mut borrower = Borrower::new(zone, options);
    for _ in 0..FRAMES_PER_BLOCK - 1 {
        assert!(borrower.borrow(0, 0));
    }
    borrower.zone.drain();
    assert_eq!(borrower.record.log().collapsed, [0; 0], "a part of the block is free");
    assert!(borrower.borrow(0, 0));
    assert!(borrower.borrow(0, 9));
    assert_eq!(borrower.record.log().collapsed, [0; 0], "nobody has time for it");
    borrower.zone.drain();
    assert_eq!(borrower.record.log().collapsed, [0, 1]);
    assert!(borrower.borrow(0, 10));
    borrower.zone.maintain(u32::MAX);
    assert_eq!(borrower.record.log().collapsed, [0, 1, 2, 3]);
    for round in 0..3 {
        borrower.give_back(0, 5 + round);
        borrower.zone.drain();
        assert!(borrower.borrow(0, 0));
        borrower.zone.drain();
        let collapsed = borrower.record.log().collapsed.len();
        assert_eq!(collapsed, 5 + round, "round {round}: a piece of it had been taken back");
    }
    for round in 0..3 {
        borrower.give_back(0, 8 + round);
        assert!(borrower.borrow(0, 0));
        borrower.zone.maintain(u32::MAX);
        borrower.zone.drain();
        assert_eq!(borrower.record.log().collapsed.len(), 7, "round {round}: once is enough");
    }
    borrower.rest(|_| 0);
    assert!(borrower.borrow(0, 9));
    borrower.zone.maintain(u32::MAX);
    assert_eq!(borrower.record.log().collapsed.len(), 8, "what was returned is collapsed again");
}

#[test]
fn zone_reports_worlds_without_memory() {
    struct Nowhere;
    impl pagealloc::World for Nowhere {
        fn reserve(&self, bytes: usize) -> Result<pagealloc::Region, pagealloc::NoMemory> {
            Err(pagealloc::NoMemory { bytes })
        }
    }
    assert!(Zone::new(&Nowhere, ZoneOptions::new(1, 1)).is_err());
    let empty = zone(&HeapWorld::default(), ZoneOptions::new(1, 0));
    for order in [Order::ZERO, Order::MAX] {
        assert_eq!(empty.alloc(Cpu(0), order), None);
    }
    empty.drain();
    empty.validate();
}
