//! Compaction of a disk, again and again: survivors cost no more than before, and nothing that is
//! known of a page is lost.

mod common;

use common::Plan;
use common::bench::{Design, SLOTS};
use sim::content::Fill;
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE};
use zram::{Recompress, Select, Writeback};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;

fn of_kind(select: Select) -> Writeback {
    Writeback { select: Some(select), pages: Vec::new() }
}

/// Pages that were moved a hundred times cost no more than pages that were moved ten times.
#[test]
fn survivors_of_many_compactions_cost_nothing() {
    const PAGES: u64 = 6000;
    let mut rng = Rng::new(seed("survivors_of_many_compactions_cost_nothing"));
    for &slots in crate::SLOTS {
        let (name, design) = (slots.0, Design { slots, ..Design::PRODUCT });
        let disk = Plan { design, ..Plan::new(PAGES * P, zcomp::LZ4) }.build();
        let (mut page, mut after_ten) = ([0; PAGE_SIZE], 0);
        let survives = |index: u64| index.is_multiple_of(16);
        let fill = |index, round: u64| Fill::Partly {
            noise: index ^ round << 32,
            parts: 5 + ((index + round) % 55) as u8,
        };
        for index in (0..PAGES).filter(|index| survives(*index)) {
            fill(index, 0).render(&mut page);
            disk.disk.store_page(CPU, index, &page).expect("there is space");
        }
        for round in 1..=50 {
            // Others fill the holes beside the survivors, and leave.
            for index in (0..PAGES).filter(|index| !survives(*index)) {
                fill(index, round).render(&mut page);
                disk.disk.store_page(CPU, index, &page).expect("there is space");
            }
            for part in [3, u64::MAX] {
                for index in (0..PAGES).filter(|index| !survives(*index)) {
                    if rng.below(part) != 0 {
                        disk.disk.discard_pages(CPU, index, 1).expect("it lies within the disk");
                    }
                }
                disk.disk.compact().expect("it has a size");
            }
            if round == 5 {
                after_ten = disk.disk.stats().overhead_bytes;
            }
        }
        let stats = disk.disk.stats();
        let overhead = stats.overhead_bytes;
        assert!(stats.pages_compacted > 0, "{name}: nothing was moved");
        assert!(overhead <= 2 * after_ten, "{name}: {after_ten} bytes after ten, now {overhead}");
        for index in (0..PAGES).filter(|index| survives(*index)) {
            let (mut expected, mut found) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
            fill(index, 0).render(&mut expected);
            disk.disk.load_page(CPU, index, &mut found).expect("it was stored");
            assert!(found == expected, "{name}: page {index} is another");
        }
    }
}

/// Pages are idle and incompressible until they are used, wherever they are moved.
#[test]
fn moved_pages_keep_their_flags() {
    const PAGES: u64 = 1200;
    for &slots in crate::SLOTS {
        let (name, design) = (slots.0, Design { slots, ..Design::PRODUCT });
        let plan = Plan { design, backing_pages: PAGES, ..Plan::new(PAGES * P, zcomp::ZSTD) };
        let (disk, mut page) = (plan.build(), [0; PAGE_SIZE]);
        for index in 0..PAGES {
            Fill::Partly { noise: index, parts: 20 }.render(&mut page);
            disk.disk.store_page(CPU, index, &page).expect("there is space");
        }
        // The other codec is the same one, so no page gets smaller.
        disk.disk.recompress(&Recompress::default()).expect("there is a codec");
        disk.disk.mark_idle(None).expect("it has a size");
        let left = || (0..PAGES).filter(|index| index.is_multiple_of(8));
        let used = || left().step_by(5);
        for index in used() {
            disk.disk.load_page(CPU, index, &mut page).expect("it was stored");
        }
        for index in (0..PAGES).filter(|index| !index.is_multiple_of(8)) {
            disk.disk.discard_pages(CPU, index, 1).expect("it lies within the disk");
        }
        let frames = disk.disk.compact().expect("it has a size");
        assert!(frames > 0, "{name}: nothing was moved");
        let backed = || disk.disk.stats().backed_pages;
        disk.disk.writeback(&of_kind(Select::Idle)).expect("there are blocks");
        assert_eq!(backed(), (left().count() - used().count()) as u64, "{name}: idle pages");
        disk.disk.writeback(&of_kind(Select::Incompressible)).expect("there are blocks");
        assert_eq!(backed(), left().count() as u64, "{name}: incompressible pages");
    }
}
