extern crate std;

use alloc::{boxed::Box, sync::Arc};
use std::sync::mpsc;
use std::thread;

use sync::Pins;
use units::Lane;
use zcomp::{Lz4, Params};

use super::{Chosen, Codecs};

fn lz4(acceleration: i32) -> Chosen {
    let params = Params::at_level(acceleration);
    Chosen { compressor: Arc::new(Lz4::new(&params).unwrap()), params }
}

/// A reader who found a place on the backing device needs the codec when the block has arrived,
/// although the page may have been stored anew by then.
#[test]
fn who_found_a_page_finds_its_codec() {
    let pins = Arc::new(Pins::new(2));
    let codecs = Codecs::<()>::new(Box::new(|_| Ok(())), pins.clone());
    codecs.install(0, lz4(1), || 0).unwrap();
    codecs.install(0, lz4(2), || 0).unwrap();
    thread::scope(|scope| {
        let (found, finds) = mpsc::channel();
        let mut asked = false;
        codecs
            .install(0, lz4(3), || {
                asked = true;
                let (codecs, pins) = (&codecs, &pins);
                scope.spawn(move || {
                    let pin = pins.pin(Lane(1));
                    found.send(codecs.get(&pin, 0).is_some()).unwrap();
                    for _ in 0..20_000 {
                        assert!(codecs.get(&pin, 0).is_some(), "it was taken away meanwhile");
                        thread::yield_now();
                    }
                });
                assert!(finds.recv().unwrap());
                // The page was the last that needed codec 0, and has been stored anew just now.
                0
            })
            .unwrap();
        assert!(asked);
    });
    let pin = pins.pin(Lane(0));
    assert!(codecs.get(&pin, 0).is_none_or(|codec| codec.chosen.is(&lz4(3))));
}
