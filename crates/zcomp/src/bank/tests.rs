extern crate std;

use alloc::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use sync::ReaderEpochs;
use units::Cpu;

use super::Bank;
use crate::{Chosen, Lz4, Params};

fn lz4(acceleration: i32) -> Chosen {
    let params = Params::at_level(acceleration);
    Chosen { compressor: Arc::new(Lz4::new(&params).unwrap()), params }
}

/// A reader who found a place on the backing device needs the codec when the block has arrived,
/// although the page may have been stored anew by then.
#[test]
fn who_found_a_page_finds_its_codec() {
    let readers = Arc::new(ReaderEpochs::new(2));
    let codecs = Bank::new(1, 1, readers.clone());
    codecs.install(0, lz4(1), || 0).unwrap();
    codecs.install(0, lz4(2), || 0).unwrap();
    thread::scope(|scope| {
        let (found, finds) = mpsc::channel();
        let mut asked = false;
        codecs
            .install(0, lz4(3), || {
                asked = true;
                let (codecs, readers) = (&codecs, &readers);
                scope.spawn(move || {
                    let reader = readers.enter(Cpu(1));
                    found.send(codecs.get(&reader, 0).is_some()).unwrap();
                    for _ in 0..20_000 {
                        assert!(codecs.get(&reader, 0).is_some(), "it was taken away meanwhile");
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
    let reader = readers.enter(Cpu(0));
    assert!(codecs.get(&reader, 0).is_none_or(|codec| codec.chosen.is(&lz4(3))));
}

/// A writer who makes an object by a codec may commit it after another one was chosen.
#[test]
fn codecs_in_use_are_looked_for_when_writers_have_left() {
    let readers = Arc::new(ReaderEpochs::new(2));
    let codecs = Bank::new(1, 1, readers.clone());
    codecs.install(0, lz4(1), || 0).unwrap();
    let committed = AtomicBool::new(false);
    thread::scope(|scope| {
        let (began, begins) = mpsc::channel();
        let (codecs, readers, committed) = (&codecs, &readers, &committed);
        scope.spawn(move || {
            let reader = readers.enter(Cpu(1));
            began.send(codecs.current(&reader, 0).map(|(number, _)| number)).unwrap();
            for _ in 0..20_000 {
                thread::yield_now();
            }
            committed.store(true, Ordering::SeqCst);
        });
        assert_eq!(begins.recv().unwrap(), Some(0));
        codecs.install(0, lz4(2), || 0).unwrap();
        let in_use = || {
            assert!(committed.load(Ordering::SeqCst), "somebody still makes an object by it");
            1
        };
        codecs.install(0, lz4(3), in_use).unwrap();
    });
    let reader = readers.enter(Cpu(0));
    assert!(codecs.get(&reader, 0).is_some_and(|codec| codec.chosen.is(&lz4(1))), "it is in use");
    assert_eq!(codecs.current(&reader, 0).map(|(number, _)| number), Some(2));
}
