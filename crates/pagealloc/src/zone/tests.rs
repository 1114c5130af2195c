use super::*;
use crate::pretended::HeapWorld;

fn zone() -> Zone {
    Zone::new(&HeapWorld::default(), ZoneOptions::new(2, 2048)).unwrap()
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// What cannot be freed: a frame that was given back, one never lent, the inside of a block, a
/// block under another order, a number beyond the zone.
fn bad_frees() -> [fn(&Zone); 6] {
    [
        |zone| {
            let frame = zone.alloc(Lane(0), Order::ZERO).unwrap();
            zone.free(Lane(0), frame, Order::ZERO);
            zone.free(Lane(1), frame, Order::ZERO);
        },
        |zone| zone.free(Lane(0), Frame(100), Order::ZERO),
        |zone| {
            let frame = zone.alloc(Lane(0), order(3)).unwrap();
            zone.free(Lane(0), Frame(frame.0 + 1), Order::ZERO);
        },
        |zone| {
            let frame = zone.alloc(Lane(0), order(3)).unwrap();
            zone.free(Lane(0), frame, order(4));
        },
        |zone| zone.free(Lane(0), Frame(2048), Order::ZERO),
        |zone| zone.free(Lane(0), Frame(u32::MAX), Order::MAX),
    ]
}

#[test]
fn freeing_what_is_not_lent_is_found_and_has_no_effect() {
    for (n, free) in bad_frees().into_iter().enumerate() {
        let zone = zone();
        let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| free(&zone)));
        assert_eq!(result.is_err(), cfg!(debug_assertions), "case {n}");
        if let Err(panic) = result {
            let text = panic.downcast_ref::<std::string::String>().unwrap();
            assert!(text.contains("was freed"), "case {n}: {text}");
        }
        assert_eq!(zone.stats().bad_frees, 1, "case {n}");
        zone.validate();
    }
}

#[test]
fn stocks_give_the_last_frame_first_and_stay_small() {
    let zone = zone();
    let mut frames = [Frame(0); 200];
    for (n, frame) in frames.iter_mut().enumerate() {
        *frame = zone.alloc(Lane(0), Order::ZERO).unwrap();
        assert_eq!(frame.0, n as u32, "the lowest frame comes first");
    }
    for frame in frames {
        zone.free(Lane(1), frame, Order::ZERO);
        assert!(zone.lanes.get(Lane(1)).lock().len() <= zone.options.cache_high);
    }
    assert_eq!(zone.alloc(Lane(1), Order::ZERO), Some(frames[199]));
    assert_eq!(zone.alloc(Lane(1), Order::ZERO), Some(frames[198]));
    zone.validate();
}

#[test]
fn odd_options_are_moved_to_the_nearest_limit() {
    for (batch, cache_high, expected) in [(0, 0, (1, 1)), (9, 4, (4, 4)), (99, 99, (64, 64))] {
        let options = ZoneOptions { batch, cache_high, ..ZoneOptions::new(0, 1000) };
        let zone = Zone::new(&HeapWorld::default(), options).unwrap();
        assert_eq!((zone.options.batch, zone.options.cache_high), expected);
        let frame = zone.alloc(Lane(7), Order::ZERO).unwrap();
        zone.free(Lane(8), frame, Order::ZERO);
        zone.validate();
    }
}

fn finds(expected: &str, corrupt: impl FnOnce(&Zone) + std::panic::UnwindSafe) {
    let panic = std::panic::catch_unwind(|| {
        let zone = zone();
        let frame = zone.alloc(Lane(0), Order::ZERO).unwrap();
        assert_eq!(frame, Frame(0));
        corrupt(&zone);
        zone.validate();
    })
    .expect_err(expected);
    let text = panic.downcast_ref::<std::string::String>().unwrap();
    assert!(text.contains(expected), "{expected}: {text}");
}

#[test]
fn validation_finds_contradictions() {
    let lend = |zone: &Zone, frame: usize, order: u8| {
        zone.lent.get(frame).store(order + 1, Ordering::Relaxed);
    };
    finds("frame 15 is lost", |zone| {
        let mut stock = zone.lanes.get(Lane(0)).lock();
        stock.give_oldest(1, |frame| assert_eq!(frame, 15));
    });
    finds("frame 2 is Stock(1) as well", |zone| zone.lanes.get(Lane(1)).lock().push(2));
    finds("frame 20 is Stock(1) as well", |zone| zone.lanes.get(Lane(1)).lock().push(20));
    finds("frame 0 is lost", |zone| zone.lent.get(0).store(0, Ordering::Relaxed));
    finds("frame 30 is Lent as well", move |zone| lend(zone, 30, 1));
    finds("frame 2 is lent with order 2", move |zone| lend(zone, 2, 2));
    finds("frame 2 is lent with order 11", move |zone| lend(zone, 2, 11));
    finds("only 2048 are managed", |zone| zone.lanes.get(Lane(1)).lock().push(5000));
}
