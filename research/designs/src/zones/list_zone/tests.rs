use std::sync::Mutex as StdMutex;
use std::vec::Vec;

use units::MAX_ORDER;

use super::*;
use crate::pretended::HeapProvider;

/// Runs `test::<Design>()` for every design.
macro_rules! every_design {
    ($test:ident) => {
        $test::<Spin>();
        $test::<RangeRw>();
        $test::<Splice>();
        $test::<Premerge>();
        $test::<NoMerge>();
        $test::<Cluster>();
    };
}

fn zone<D: Design>(options: ZoneOptions) -> ListZone<D> {
    ListZone::new(&HeapProvider::default(), options).unwrap()
}

fn singles<D: Design, P: LockTrace>(zone: &ListZone<D, P>, count: usize) -> Vec<Frame> {
    (0..count).map(|_| zone.alloc(Cpu(0)).unwrap()).collect()
}

#[test]
fn pcp_lists_give_the_newest_first_and_the_oldest_back() {
    fn case<D: Design>() {
        let options = ZoneOptions { batch: 63, cache_high: 378, ..ZoneOptions::new(2, 2048) };
        let zone = zone::<D>(options);
        let frames = singles(&zone, 1000);
        assert_eq!(zone.stats().cached, 1000usize.next_multiple_of(63) as u64 - 1000);
        for frame in &frames {
            zone.free(Cpu(1), *frame);
            assert!(zone.cpus.get(Cpu(1)).lock().frames.len() < 378);
        }
        zone.validate();
        let left: Vec<Frame> =
            zone.cpus.get(Cpu(1)).lock().frames.iter().copied().map(Frame).collect();
        assert_eq!(left, frames[1000 - left.len()..], "{}: the oldest went", D::NAME);
        assert_eq!(zone.alloc(Cpu(1)), Some(frames[999]));
        assert_eq!(zone.alloc(Cpu(1)), Some(frames[998]));
        zone.validate();
    }
    every_design!(case);
}

#[test]
fn odd_options_are_moved_to_the_nearest_limit() {
    fn case<D: Design>() {
        for (batch, high, expected) in [(0, 0, (1, 1)), (9, 4, (4, 4)), (999, 999, (512, 512))] {
            let options = ZoneOptions { batch, cache_high: high, ..ZoneOptions::new(0, 1000) };
            let zone = zone::<D>(options);
            assert_eq!((zone.options.batch, zone.options.cache_high), expected);
            let frame = zone.alloc(Cpu(7)).unwrap();
            zone.free(Cpu(8), frame);
            zone.validate();
        }
        let largest = ListZone::<D>::new(&HeapProvider::default(), ZoneOptions::new(1, u32::MAX));
        assert_eq!(largest.err(), Some(NoMemory { bytes: usize::MAX }));
        let empty = zone::<D>(ZoneOptions::new(1, 0));
        assert_eq!(empty.alloc(Cpu(0)), None);
        empty.drain();
        empty.validate();
    }
    every_design!(case);
}

/// Buddies that are both free, of all orders.
fn unmerged(zone: &dyn Frames) -> usize {
    let mut free = Vec::new();
    zone.free_blocks(&mut |frame, order| free.push((frame.0, order)));
    let has_buddy = |block: &&(u32, u8)| {
        let (frame, order) = **block;
        order < MAX_ORDER && free.contains(&(frame ^ 1 << order, order))
    };
    free.iter().filter(has_buddy).count() / 2
}

/// How many buddies a design leaves unmerged when a batch comes in ascending order, and none of
/// what is around it is free.
#[test]
fn designs_leave_unmerged_what_they_are_known_to() {
    fn case<D: Design>(expected: usize) {
        let options = ZoneOptions { batch: 16, cache_high: 16, ..ZoneOptions::new(1, 1024) };
        let zone = zone::<D>(options);
        let mut frames = singles(&zone, 1024);
        frames.sort_unstable();
        // The last stays in the pcp list's place: sixteen go to the zone together.
        for frame in &frames[64..80] {
            zone.free(Cpu(0), *frame);
        }
        assert_eq!(zone.stats().cached, 0);
        assert_eq!(unmerged(&zone), expected, "{}", D::NAME);
        zone.validate();
        zone.drain();
        assert_eq!(unmerged(&zone), 0, "{}: after draining", D::NAME);
        let mut expected = [0; 11];
        expected[4] = 1;
        assert_eq!(zone.stats().free_blocks, expected, "{}", D::NAME);
        zone.validate();
    }
    case::<Spin>(0);
    case::<RangeRw>(0);
    case::<Splice>(8);
    case::<Premerge>(0);
    case::<NoMerge>(8);
    case::<Cluster>(8);
}

#[test]
fn clusters_go_out_as_they_came_in() {
    let options = ZoneOptions { batch: 16, cache_high: 16, ..ZoneOptions::new(2, 1024) };
    let zone = zone::<Cluster>(options);
    let frames = singles(&zone, 1024);
    for frame in &frames[96..128] {
        zone.free(Cpu(0), *frame);
    }
    zone.validate();
    assert_eq!(zone.free.write().clusters.in_use(), 2);
    // The last cluster that came comes out as a whole, in the order of the list.
    let again: Vec<Frame> = (0..16).map(|_| zone.alloc(Cpu(1)).unwrap()).collect();
    assert_eq!(again, frames[112..128].iter().rev().copied().collect::<Vec<_>>());
    assert_eq!(zone.free.write().clusters.in_use(), 1);
    zone.validate();
    // While clusters are disabled frames are merged, and what there is of clusters goes on.
    zone.disable(&zone.watch(Cpu(0)));
    for frame in &again {
        zone.free(Cpu(1), *frame);
    }
    assert_eq!(zone.free.write().clusters.in_use(), 1);
    assert_eq!(unmerged(&zone), 8, "those of the other cluster");
    zone.enable(&zone.watch(Cpu(0)));
    zone.validate();
    zone.drain();
    assert_eq!((unmerged(&zone), zone.stats().free_blocks[5]), (0, 1));
    assert_eq!(zone.free.write().clusters.in_use(), 0);
    zone.validate();
}

#[test]
fn batches_are_merged_with_themselves() {
    let merged = |frames: &[u32]| {
        let mut batch: Vec<(u32, u8)> = frames.iter().map(|frame| (*frame, 0)).collect();
        let left = pcp::merge_batch(&mut batch, MAX_ORDER);
        batch[..left].to_vec()
    };
    assert_eq!(merged(&[]), []);
    assert_eq!(merged(&[7, 4, 6, 5]), [(4, 2)]);
    assert_eq!(merged(&[1, 2]), [(1, 0), (2, 0)]);
    assert_eq!(merged(&[9, 3, 2, 8, 1, 0, 12]), [(0, 2), (8, 1), (12, 0)]);
    let all: Vec<u32> = (0..2048).rev().collect();
    assert_eq!(merged(&all), [(0, 10), (1024, 10)]);
}

/// Writes down what it is told; its clock counts how often it was asked.
#[derive(Default)]
struct Diary {
    time: AtomicU64,
    passed: StdMutex<Vec<(LockClass, u64)>>,
    left: StdMutex<Vec<(LockClass, u64)>>,
}

impl LockTrace for Diary {
    const WATCHES: bool = true;

    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::Relaxed)
    }
    fn took(&self, _: Cpu, class: LockClass, waited: u64) {
        self.passed.lock().unwrap().push((class, waited));
    }
    fn left(&self, _: Cpu, class: LockClass, held: u64, pages: u64) {
        assert!(held > 0);
        self.left.lock().unwrap().push((class, pages));
    }
}

#[test]
fn probes_are_told_of_each_gate() {
    fn case<D: Design>(of_batch: &[(LockClass, u64)]) {
        let options = ZoneOptions { batch: 4, cache_high: 4, ..ZoneOptions::new(1, 64) };
        let zone: ListZone<D, Diary> =
            ListZone::with_probe(&HeapProvider::default(), options, Diary::default()).unwrap();
        let diary = || {
            let took = core::mem::take(&mut *zone.trace().passed.lock().unwrap());
            assert!(took.iter().all(|(_, waited)| *waited == 0), "nobody else is here");
            let left = core::mem::take(&mut *zone.trace().left.lock().unwrap());
            let lock_classes = |told: &[(LockClass, u64)]| {
                let mut lock_classes: Vec<LockClass> = told.iter().map(|told| told.0).collect();
                lock_classes.sort_unstable();
                lock_classes
            };
            assert_eq!(lock_classes(&took), lock_classes(&left), "each class is left once");
            left
        };
        let mut frames = singles(&zone, 4);
        assert_eq!(diary(), [(LockClass::Write, 4)], "{}: filling a pcp list", D::NAME);
        frames.sort_unstable();
        for frame in frames {
            zone.free(Cpu(0), frame);
        }
        assert_eq!(diary(), of_batch, "{}: a batch", D::NAME);
    }
    use LockClass::{Head, Range, Read, Write};
    case::<Spin>(&[(Write, 4)]);
    case::<NoMerge>(&[(Write, 4)]);
    case::<Cluster>(&[(Write, 4)]);
    // Frames 0 to 3: the last one merges with all that is left of the zone's first half, and that
    // with the other half.
    let pages = [(Head, 1), (Range, 1), (Head, 2), (Range, 1), (Head, 1), (Range, 1)];
    let all: Vec<_> = pages.into_iter().chain([(Head, 64), (Range, 1), (Read, 4)]).collect();
    case::<RangeRw>(&all);
    // What is in the batch does not merge with itself.
    case::<Splice>(&[(Head, 4), (Read, 4)]);
    case::<Premerge>(&[(Head, 64), (Read, 4)]);
}
