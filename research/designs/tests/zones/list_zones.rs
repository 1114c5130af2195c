//! The kernel's shape, in all its designs: what is asked of them besides the list of checks.
//!
//! They give memory back when they are drained, and take from their lists what is first there: so
//! when blocks go back, which addresses are allocated first, and what is collapsed, is not asked of them.

use designs::zones::{Cluster, Design, ListZone, NoMerge, Premerge, RangeRw, Spin, Splice};
use pagealloc::{Frames, MemoryProvider, ZoneOptions};
use units::{Cpu, MAX_ORDER};

use crate::model::{Borrower, Lender, Random};

fn zone<D: Design>(provider: &dyn MemoryProvider, options: ZoneOptions) -> Box<dyn Lender> {
    Box::new(ListZone::<D>::new(provider, options).expect("the heap has enough"))
}

/// With Linux's batches, and one pcp list for all.
fn large_batches<D: Design>(
    provider: &dyn MemoryProvider,
    options: ZoneOptions,
) -> Box<dyn Lender> {
    zone::<D>(provider, ZoneOptions { cpus: 0, batch: 63, cache_high: 378, ..options })
}

macro_rules! designs_conform {
    ($($name:ident: $design:ident;)*) => {
        $(
            mod $name {
                use super::*;

                #[test]
                fn conforms_with_other_batches() {
                    let make = large_batches::<$design>;
                    crate::checks::random_steps(make);
                    crate::checks::exhaustion(make);
                    crate::checks::threads(make);
                }

                #[test]
                fn merges_what_it_should() {
                    rests::<$design>();
                }
            }
        )*
    };
}

designs_conform! {
    spin: Spin;
    rwlock_range: RangeRw;
    splice: Splice;
    premerge: Premerge;
    no_merge: NoMerge;
    no_merge_cluster: Cluster;
}

/// Buddies that are both free.
fn unmerged(zone: &dyn Frames) -> usize {
    let mut free = std::collections::BTreeSet::new();
    zone.free_blocks(&mut |frame, order| _ = free.insert((order, frame.0)));
    let is_half = |block: &&(u8, u32)| {
        let (order, frame) = **block;
        let buddy = frame ^ 1 << order;
        order < MAX_ORDER && buddy > frame && free.contains(&(order, buddy))
    };
    free.iter().filter(is_half).count()
}

/// After threads have come and gone: designs that merge at once have merged everything that is
/// not in a pcp list, and the others have when they are drained.
fn rests<D: Design>() {
    let merges_at_once = [ListZone::<Spin>::NAME, ListZone::<RangeRw>::NAME].contains(&D::NAME);
    let options = ZoneOptions { batch: 15, cache_high: 31, ..ZoneOptions::new(4, 6 * 1024 + 5) };
    let borrower = Borrower::new(zone::<D>, options);
    let zone = &*borrower.zone;
    for round in 0..5 {
        std::thread::scope(|scope| {
            for n in 0..4u32 {
                scope.spawn(move || {
                    let mut random = Random::seeded("rests", u64::from(round * 4 + n) + 0x9e57);
                    let mut held = Vec::new();
                    for _ in 0..1_500 {
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
        if merges_at_once {
            assert_eq!(unmerged(zone), 0, "{} has unmerged buddies at rest", D::NAME);
        }
        zone.drain();
        zone.validate();
        assert_eq!(unmerged(zone), 0, "{} has unmerged buddies after draining", D::NAME);
        assert_eq!(zone.stats().allocated, 0);
    }
}
