use units::PAGE_SIZE;

use crate::class::{CHAIN_MAX, RAW_THRESHOLD, SizeClasses};

#[test]
fn every_size_has_the_smallest_class_it_fits() {
    let classes = SizeClasses::new();
    for size in 1..=PAGE_SIZE {
        let index = classes.index_of(size);
        assert!(classes.get(index).slot >= size);
        assert!(index == 0 || classes.get(index - 1).slot < size);
    }
}

#[test]
fn chains_are_short_and_waste_little() {
    let classes = SizeClasses::new();
    for class in classes.iter() {
        assert!(class.frames <= CHAIN_MAX && class.slots <= 128, "{class:?}");
        let unused = class.frames * PAGE_SIZE - class.slots * class.slot;
        assert!(unused < class.slots, "a slot of {} could be larger", class.slot);
        for n in 0..class.slots {
            let (first, last) = class.frames_of(n);
            assert!(last < class.frames && last - first <= 1);
            for (frame, slots) in class.in_frame.iter().enumerate() {
                assert_eq!(slots >> n & 1 == 1, (first..=last).contains(&frame));
            }
        }
    }
}

/// Objects of each size between 512 bytes and a page, equally many: bytes of slots over bytes of
/// objects. Few classes leave few frames that are not full.
#[test]
fn slots_are_one_percent_longer_than_objects() {
    let classes = SizeClasses::new();
    let sizes = 512..=PAGE_SIZE;
    let slots: usize = sizes.clone().map(|size| classes.get(classes.index_of(size)).slot).sum();
    let objects: usize = sizes.sum();
    assert!(slots * 1000 < objects * 1011, "{slots} bytes of slots for {objects} bytes");
    assert!(classes.count() <= 140, "{} classes", classes.count());
}

#[test]
fn the_raw_threshold_is_the_last_class_below_a_page() {
    let classes = SizeClasses::new();
    assert_eq!(classes.get(classes.count() - 1).slot, PAGE_SIZE);
    assert_eq!(classes.get(classes.count() - 2).slot, RAW_THRESHOLD);
}

#[test]
fn sizes_with_the_same_chain_are_one_class() {
    let classes = SizeClasses::new();
    assert_eq!(classes.index_of(RAW_THRESHOLD + 1), classes.index_of(PAGE_SIZE));
}
