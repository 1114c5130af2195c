//! The check that every frame of a zone is in exactly one place.

use std::vec;
use std::vec::Vec;

use units::MAX_ORDER;

use super::pages::{FREE, ORDER, head, node};
use super::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    Free(u8),
    PcpList(usize),
    Allocated,
}

/// The place of each frame, filled in one by one.
struct Map {
    places: Vec<Place>,
}

impl Map {
    fn put(&mut self, first: u32, order: u8, place: Place) {
        assert_eq!(first % (1 << order), 0, "frame {first} is {place:?} with order {order}");
        let end = first as usize + (1 << order);
        let managed = self.places.len();
        assert!(end <= managed, "frame {first} is {place:?} but only {managed} are managed");
        for frame in first as usize..end {
            let before = core::mem::replace(&mut self.places[frame], place);
            assert_eq!(before, Place::Nowhere, "frame {frame} is {place:?} as well");
        }
    }
}

impl<D: Design, P: LockTrace> ListZone<D, P> {
    pub(super) fn check(&self) {
        let mut free = self.free.write();
        let mut map = Map { places: vec![Place::Nowhere; free.managed as usize] };
        for order in 0..=MAX_ORDER {
            self.check_order(&mut free, order, &mut map);
        }
        if D::BATCH == Batch::Clusters {
            self.check_clusters(&mut free);
        }
        assert_eq!(self.in_progress.load(Ordering::Relaxed), 0, "clusters in progress");
        drop(free);
        for (cpu, pcp) in self.cpus.iter().enumerate() {
            let pcp = pcp.lock();
            let held = pcp.frames.len();
            assert!(held <= self.options.cache_high, "cpu {cpu} has {held}");
            pcp.frames.iter().for_each(|frame| map.put(*frame, 0, Place::PcpList(cpu)));
        }
        for frame in 0..map.places.len() as u32 {
            let state = self.pages.state(frame).load(Ordering::Relaxed);
            let order = (state & ORDER) as u8;
            assert!(state == NOTHING || order <= MAX_ORDER, "frame {frame} has order {order}");
            if state & ALLOCATED != 0 {
                map.put(frame, 0, Place::Allocated);
            }
            let listed = map.places[frame as usize] == Place::Free(order);
            assert!(state & FREE == 0 || listed, "frame {frame} says it is free, order {order}");
        }
        for (frame, place) in map.places.iter().enumerate() {
            assert_ne!(
                *place,
                Place::Nowhere,
                "frame {frame} is lost: not free, cached or allocated"
            );
        }
    }

    fn check_order(&self, free: &mut FreeLists<D>, order: u8, map: &mut Map) {
        free.lists.validate(head(order), format_args!("free blocks of order {order}"));
        let mut count = 0;
        let mut next = free.lists.first(head(order));
        while let Some(at) = next {
            let (frame, is_free) = (pages::frame(at), FREE | u32::from(order));
            count += 1;
            map.put(frame, order, Place::Free(order));
            let state = self.pages.state(frame).load(Ordering::Relaxed);
            assert_eq!(state, is_free, "frame {frame} of the list of order {order}: its state");
            let buddy = self.pages.state_of_any(frame ^ 1 << order);
            let both = buddy.is_some_and(|buddy| buddy.load(Ordering::Relaxed) == is_free);
            assert!(
                !both || order == MAX_ORDER || free.is_unmerged(),
                "frame {frame} of order {order} and its buddy are both free and were not merged"
            );
            next = free.lists.behind(head(order), at);
        }
        let counted = free.counts()[order as usize];
        assert_eq!(counted, count, "free blocks of order {order}: count, list");
    }

    /// Checks that the frames of a cluster are neighbours, that their number is the cluster's
    /// count, and that the last is the cluster's last.
    fn check_clusters(&self, free: &mut FreeLists<D>) {
        let (mut clusters, mut current, mut left) = (0, 0, 0);
        let mut next = free.lists.first(head(0));
        while let Some(at) = next {
            let frame = pages::frame(at);
            let cluster = self.pages.cluster(frame).load(Ordering::Relaxed);
            if left == 0 && cluster != 0 {
                (current, left) = (cluster, free.clusters.count(cluster));
                clusters += 1;
                let most = self.options.batch as u32;
                assert!((1..=most).contains(&left), "cluster {cluster} has {left} frames");
            }
            assert!(left == 0 || cluster == current, "frame {frame} is amid cluster {current}");
            if left > 0 {
                left -= 1;
                let is_last = node(free.clusters.last(current)) == at;
                assert_eq!(left == 0, is_last, "frame {frame} is the last of cluster {current}");
            }
            next = free.lists.behind(head(0), at);
        }
        assert_eq!(left, 0, "frames that cluster {current} lacks");
        assert_eq!(clusters, free.clusters.in_use(), "clusters: in the list, in use");
    }
}
