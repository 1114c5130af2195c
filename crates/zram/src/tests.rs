extern crate std;

use alloc::sync::Arc;
use alloc::vec;
use core::ops::ControlFlow;
use core::time::Duration;

use block::{BlockDevice, Extent, ExtentKind, Operation};
use pagealloc::{Zone, ZoneOptions};
use units::{Cpu, PAGE_SIZE};

use crate::ops::apart;
use crate::path::{clip, touched_pages};
use crate::{Backed, Disk, Kind, NoHostFiles, Object, Resources, Slot};
use pagelog::Coded;
use zcomp::{fill, same_filled};
use zsmalloc::Handle;

const FORM: Coded = Coded { length: 4096, codec: 30, huge: true };
const PLACE: Backed = Backed { form: FORM, ..Backed::from_word(u32::MAX as u64) };

#[test]
fn what_is_known_of_a_slot_is_apart_from_its_contents() {
    let handle = Handle::from_raw(u32::MAX);
    let stored = [Object::Compressed { handle, length: 4095, codec: 30 }, Object::Huge(handle)];
    for slot in stored.map(Slot::stored).into_iter().chain([Slot::written_back(PLACE)]) {
        let known = slot.claimed().with_mark(true).with_idle(true).incompressible();
        assert!(known.is_claimed() && known.is_marked() && known.is_idle());
        assert!(known.is_incompressible() && known.notices_readers());
        assert_eq!(known.kind(), slot.kind());
        assert!(known.same_contents(slot) && !known.same_contents(Slot::EMPTY));
        let touched = known.touched();
        assert!(!touched.is_marked() && !touched.is_idle() && touched.is_incompressible());
        assert_eq!(known.with_mark(false).with_idle(false), slot.claimed().incompressible());
        assert_eq!(known.word() >> crate::engine::SLOT_BITS, 0, "the lock's bits are free");
        assert_eq!(slot.is_backed(), matches!(slot.kind(), Kind::WrittenBack(_)));
    }
    let other = Slot::written_back(Backed { form: Coded { huge: false, ..FORM }, ..PLACE });
    assert!(!other.same_contents(Slot::written_back(PLACE)));
}

#[test]
fn a_slot_keeps_all_but_the_place_of_a_moved_object() {
    let (from, to) = (Handle::from_raw(u32::MAX), Handle::from_raw(1 << 20));
    for object in [
        Object::Compressed { handle: from, length: 4095, codec: 30 },
        Object::Huge(from),
        Object::SameFilled(from),
    ] {
        let flags = |slot: Slot| slot.claimed().with_mark(true).with_idle(true).incompressible();
        let slot = Slot::stored(object);
        let moved = object.moved_to(to);
        assert_eq!(slot.moved_to(moved), Slot::stored(moved));
        assert_eq!(flags(slot).moved_to(moved), flags(Slot::stored(moved)));
        assert!(!slot.moved_to(moved).same_contents(slot));
    }
}

#[test]
fn slots_say_what_they_were_made_of() {
    let handle = Handle::from_raw(0xfedc_ba98);
    let compressed = Object::Compressed { handle, length: 3640, codec: 30 };
    for (slot, kind) in [
        (Slot::EMPTY, Kind::Empty),
        (Slot::same_filled(0).unwrap(), Kind::SameFilled(0)),
        (Slot::same_filled(u64::MAX).unwrap(), Kind::SameFilled(u64::MAX)),
        (Slot::stored(Object::SameFilled(handle)), Kind::Stored(Object::SameFilled(handle))),
        (Slot::stored(Object::Huge(handle)), Kind::Stored(Object::Huge(handle))),
        (Slot::stored(compressed), Kind::Stored(compressed)),
        (Slot::written_back(PLACE), Kind::WrittenBack(PLACE)),
    ] {
        assert_eq!(slot.kind(), kind);
        assert_eq!(slot.claimed().kind(), kind);
        assert!(slot.claimed().is_claimed() && !slot.is_claimed());
        assert_eq!(slot.claimed().unclaimed(), slot);
        assert_eq!(Slot::from_word(slot.word()), slot);
        assert_eq!(slot.word() >> crate::engine::SLOT_BITS, 0, "the lock's bits are free");
        assert_eq!(slot.is_empty(), kind == Kind::Empty);
    }
    assert_eq!(Slot::same_filled(1), None, "its halves differ");
}

#[test]
fn same_filled_pages_are_known_by_any_pattern() {
    let mut page = [0; PAGE_SIZE];
    for pattern in [0, u64::MAX, 0x0102_0304_0506_0708, 1 << 63, 0xabab_abab_abab_abab] {
        fill(&mut page, pattern);
        assert_eq!(same_filled(&page), Some(pattern));
        for at in [0, 1, 7, 8, 127, 128, 2048, 4088, 4095] {
            page[at] ^= 1;
            assert_eq!(same_filled(&page), None, "a bit differs in byte {at}");
            page[at] ^= 1;
        }
    }
}

#[test]
fn ranges_touch_the_pages_they_lie_in() {
    let touched = |offset, length| {
        let pages = touched_pages(offset, length);
        (pages.first, pages.count)
    };
    assert_eq!(touched(0, 0), (0, 0));
    assert_eq!(touched(0, 1), (0, 1));
    assert_eq!(touched(4095, 2), (0, 2));
    assert_eq!(touched(4096, 4096), (1, 1));
    assert_eq!(touched(u64::MAX, 2), (u64::MAX, 1));
}

#[test]
fn extents_are_cut_to_the_range() {
    let mut seen = vec![];
    clip(
        100,
        5000,
        &mut |extent| {
            seen.push(extent.length);
            ControlFlow::Continue(())
        },
        |visit| {
            for _ in 0..3 {
                let kind = ExtentKind::Data;
                if visit(Extent { length: 4096, kind }).is_break() {
                    break;
                }
            }
        },
    );
    assert_eq!(seen, [3996, 1004]);
}

#[test]
fn no_page_is_in_two_ranges() {
    assert_eq!(apart(vec![]), []);
    assert_eq!(apart(vec![5..6, 5..6, 9..9, 5..6]), [5..6, 9..9]);
    assert_eq!(apart(vec![20..30, 0..10, 3..4, 9..12]), [0..12, 20..30]);
    assert_eq!(apart(vec![4..5, 0..4, 7..8]), [0..5, 7..8]);
}

#[test]
fn a_write_to_a_clone_waits_for_no_lock_of_its_family() {
    const CPU: Cpu = Cpu(0);
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(1, 1 << 10)).unwrap();
    let files = Arc::new(NoHostFiles);
    let resources = Resources::new(Arc::new(host::Mmap), Arc::new(zone), 1, files);
    let disk = Disk::new(0, Arc::new(resources));
    disk.set_disksize(4 * PAGE_SIZE as u64).unwrap();
    (0..4).for_each(|page| disk.store_page(CPU, page, &[1; PAGE_SIZE]).unwrap());
    let clone = disk.clone_contents().unwrap().into_disk(1);
    let engine = disk.engine().unwrap();
    let (done, results) = std::sync::mpsc::channel();
    let (mut went_on, writer) = (false, &clone);
    std::thread::scope(|scope| {
        // The lock of the windows is held while one looks at them.
        engine.windows().each(|_| {
            let done = done.clone();
            scope.spawn(move || {
                writer.store_page(CPU, 0, &[2; PAGE_SIZE]).unwrap();
                let write = Operation::Write { offset: PAGE_SIZE as u64 + 1, from: &[2; 9] };
                writer.submit(CPU, write).unwrap();
                writer.discard_pages(CPU, 2, 1).unwrap();
                done.send(()).unwrap();
            });
            went_on = results.recv_timeout(Duration::from_secs(10)).is_ok();
        });
    });
    assert!(went_on, "it waited");
    assert_eq!((clone.stats().pages_stored, disk.stats().pages_stored), (3, 4));
    assert!(disk.contradictions().is_empty());
}
