//! Every frame of a zone in one place, and in one place only.

use alloc::vec::Vec;

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    Free,
    Stock(usize),
    Lent,
}

impl Zone {
    pub(super) fn check(&self) {
        let free = self.free.lock().validate();
        let mut places: Vec<Place> =
            free.iter().map(|free| if *free { Place::Free } else { Place::Nowhere }).collect();
        let managed = places.len();
        let mut put = |frame: usize, place: Place| {
            assert!(frame < managed, "frame {frame} is {place:?} but only {managed} are managed");
            let before = core::mem::replace(&mut places[frame], place);
            assert_eq!(before, Place::Nowhere, "frame {frame} is {place:?} as well");
        };
        for (lane, stock) in self.lanes.iter().enumerate() {
            let stock = stock.lock();
            assert!(stock.len() <= self.options.cache_high, "lane {lane} has {}", stock.len());
            for frame in stock.frames() {
                put(*frame as usize, Place::Stock(lane));
            }
        }
        for frame in 0..managed {
            if let Some(order) = self.lent.get(frame).load(Ordering::Relaxed).checked_sub(1) {
                assert!(Order::new(order).is_some(), "frame {frame} is lent with order {order}");
                assert_eq!(frame % (1 << order), 0, "frame {frame} is lent with order {order}");
                for part in frame..frame + (1 << order) {
                    put(part, Place::Lent);
                }
            }
        }
        for (frame, place) in places.iter().enumerate() {
            assert_ne!(*place, Place::Nowhere, "frame {frame} is lost: not free, stocked or lent");
        }
    }
}
