//! AddressSanitizer sees objects: one that is touched when nobody may is found out at once. Without
//! `--cfg asan` this file is empty; docs/TESTING.md says how it is run.
#![cfg(asan)]

use std::sync::Arc;

use pagealloc::{Frames, Zone, ZoneOptions};
use sync::ReaderEpochs;
use testkit::dies;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Object, Pool, PoolOptions};

const CPU: Cpu = Cpu(0);
const REPORT: &str = "AddressSanitizer: use-after-poison";

fn pool() -> (Pool, Arc<ReaderEpochs>, Arc<dyn Frames>) {
    let frames: Arc<dyn Frames> =
        Arc::new(Zone::new(&host::Mmap, ZoneOptions::new(1, 256)).unwrap());
    let readers = Arc::new(ReaderEpochs::new(1));
    let options = PoolOptions { frames: frames.clone(), readers: readers.clone(), limit_frames: 0 };
    (Pool::new(&host::Mmap, options).unwrap(), readers, frames)
}

fn sum(object: Object<'_>) -> u64 {
    object.joined(|bytes| bytes.iter().map(|byte| u64::from(*byte)).sum())
}

/// Frees one of two objects that share a frame, or the only one, while it is read.
fn read_after_free(length: usize, others: usize) {
    let (pool, readers, _) = pool();
    let reader = readers.enter(CPU);
    // SAFETY: it is a reader of the pool's.
    let store = || unsafe { pool.store(&reader, CPU, &vec![7; length], None) }.unwrap();
    let object = store();
    (0..others).for_each(|_| {
        store();
    });
    // SAFETY: none. It is freed while it is read, which the sanitizer must find out.
    let total = unsafe {
        pool.read(&reader, object, length, |object_bytes| {
            pool.free(CPU, object);
            sum(object_bytes)
        })
    };
    println!("{total}");
}

#[test]
fn an_object_that_was_freed_beside_others_cannot_be_read() {
    let name = "an_object_that_was_freed_beside_others_cannot_be_read";
    dies(name, REPORT, || read_after_free(100, 5));
}

#[test]
fn an_object_whose_frame_was_given_back_cannot_be_read() {
    let name = "an_object_whose_frame_was_given_back_cannot_be_read";
    dies(name, REPORT, || read_after_free(PAGE_SIZE, 0));
}

#[test]
fn a_frame_that_is_not_allocated_cannot_be_touched() {
    dies("a_frame_that_is_not_allocated_cannot_be_touched", REPORT, || {
        let (_, _, frames) = pool();
        let frame = frames.alloc(CPU, units::Order::ZERO).unwrap();
        let address = frames.base().as_ptr().wrapping_add(frame.0 as usize * PAGE_SIZE);
        // SAFETY: the frame is allocated, and its memory stays readable after: that it is not allocated then
        // is what must be found out.
        unsafe { address.write_volatile(1) };
        frames.free(CPU, frame, units::Order::ZERO);
        // SAFETY: as above.
        println!("{}", unsafe { address.read_volatile() });
    });
}

/// The bytes behind an object in its slot are its own, so that it may be copied as a whole; those
/// of the next slot are not.
#[test]
fn a_slot_that_was_never_taken_cannot_be_read() {
    dies("a_slot_that_was_never_taken_cannot_be_read", REPORT, || {
        let (pool, readers, _) = pool();
        let reader = readers.enter(CPU);
        // SAFETY: it is a reader of the pool's.
        let object = unsafe { pool.store(&reader, CPU, &[7; 100], None) }.unwrap();
        // Longer than it was stored with, which is what the caller promises not to ask for.
        let beyond = |object: Object<'_>| match object {
            Object::Whole(bytes) => {
                let beyond = bytes.as_ptr().wrapping_add(512);
                // SAFETY: within the frame, whose memory is readable; that nobody may is what must
                // be found out.
                unsafe { beyond.read_volatile() }
            }
            Object::Split(..) => 0,
        };
        // SAFETY: it was stored with this length and is not freed.
        let read = unsafe { pool.read(&reader, object, 100, beyond) };
        println!("{read}");
    });
}

/// No false alarm: objects of every size are stored, read, moved and freed in every order.
#[test]
fn what_is_live_can_be_read_whatever_happens_beside() {
    let mut rng = testkit::Rng::new(testkit::seed("what_is_live_can_be_read"));
    let (pool, readers, _) = pool();
    let mut live = Vec::new();
    for step in 0..6000u32 {
        let reader = readers.enter(CPU);
        if rng.below(5) < 3 && live.len() < 200 {
            let length = 1 + rng.below(PAGE_SIZE as u64) as usize;
            let byte = rng.next_u64() as u8;
            // SAFETY: it is a reader of the pool's.
            let stored = unsafe { pool.store(&reader, CPU, &vec![byte; length], None) };
            if let Ok(object) = stored {
                live.push((object, length, byte));
            }
        } else if !live.is_empty() {
            let at = rng.below(live.len() as u64) as usize;
            let (object, length, byte) = live[at];
            // SAFETY: it was stored with this length and is not freed.
            let total = unsafe { pool.read(&reader, object, length, sum) };
            assert_eq!(total, length as u64 * u64::from(byte));
            if rng.one_in(2) {
                live.swap_remove(at);
                // SAFETY: it is forgotten.
                unsafe { pool.free(CPU, object) };
            }
        }
        drop(reader);
        if step % 100 == 0 {
            pool.compact(CPU);
        }
    }
}
