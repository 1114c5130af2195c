//! AddressSanitizer sees objects: one that is touched when nobody may is found out at once. Without
//! `--cfg asan` this file is empty; docs/internals/testing.md says how it is run.
#![cfg(asan)]

use std::sync::Arc;

use pagealloc::{Frames, Zone, ZoneOptions};
use testkit::dies;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Object, Pass, Pool, Room};

const CPU: Cpu = Cpu(0);
const REPORT: &str = "AddressSanitizer: use-after-poison";

fn pool() -> (Pool, Arc<dyn Frames>) {
    let frames: Arc<dyn Frames> =
        Arc::new(Zone::new(&host::Mmap, ZoneOptions::new(1, 256)).unwrap());
    (Pool::new(&host::Mmap, frames.clone()).unwrap(), frames)
}

fn sum(object: Object<'_>) -> u64 {
    object.joined(|bytes| bytes.iter().map(|byte| u64::from(*byte)).sum())
}

/// Frees one of two objects that share a frame, or the only one, while it is read.
fn read_after_free(length: usize, others: usize) {
    let (pool, _) = pool();
    let store = || pool.store(CPU, Room::Open, &vec![7; length], None).unwrap();
    let object = store();
    (0..others).for_each(|_| {
        store();
    });
    // SAFETY: none. It is freed while it is read, which the sanitizer must find out.
    let total = unsafe {
        pool.read(object, length, |object_bytes| {
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
        let (_, frames) = pool();
        let frame = frames.alloc(CPU).unwrap();
        let address = frames.base().as_ptr().wrapping_add(frame.0 as usize * PAGE_SIZE);
        // SAFETY: the frame is allocated, and its memory stays readable after: that it is not allocated then
        // is what must be found out.
        unsafe { address.write_volatile(1) };
        frames.free(CPU, frame);
        // SAFETY: as above.
        println!("{}", unsafe { address.read_volatile() });
    });
}

/// The bytes behind an object in its slot are its own, so that it may be copied as a whole; those
/// of the next slot are not.
#[test]
fn a_slot_that_was_never_taken_cannot_be_read() {
    dies("a_slot_that_was_never_taken_cannot_be_read", REPORT, || {
        let (pool, _) = pool();
        let object = pool.store(CPU, Room::Open, &[7; 100], None).unwrap();
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
        let read = unsafe { pool.read(object, 100, beyond) };
        println!("{read}");
    });
}

/// No false alarm: objects of every size are stored, read, moved and freed in every order.
#[test]
fn what_is_live_can_be_read_whatever_happens_beside() {
    let mut rng = testkit::Rng::new(testkit::seed("what_is_live_can_be_read"));
    let (pool, _) = pool();
    let mut live: Vec<(Handle, usize, u8)> = Vec::new();
    for step in 0..6000u32 {
        if rng.below(5) < 3 && live.len() < 200 {
            let length = 1 + rng.below(PAGE_SIZE as u64) as usize;
            let byte = rng.next_u64() as u8;
            if let Ok(object) = pool.store(CPU, Room::Open, &vec![byte; length], None) {
                live.push((object, length, byte));
            }
        } else if !live.is_empty() {
            let at = rng.below(live.len() as u64) as usize;
            let (object, length, byte) = live[at];
            // SAFETY: it was stored with this length and is not freed.
            let total = unsafe { pool.read(object, length, sum) };
            assert_eq!(total, length as u64 * u64::from(byte));
            if rng.one_in(2) {
                live.swap_remove(at);
                // SAFETY: it is forgotten.
                unsafe { pool.free(CPU, object) };
            }
        }
        if step % 100 == 0 {
            pool.compact(CPU, |pass| {
                for (object, ..) in &mut live {
                    if pass.is_leaving(*object) {
                        move_out(&pool, pass, object);
                    }
                }
            });
        }
    }
}

fn move_out(pool: &Pool, pass: &mut Pass<'_>, from: &mut Handle) {
    if let Some(to) = pass.place_for(*from) {
        // SAFETY: the object is live, and the place was taken for it.
        unsafe { pass.copy(*from, to) };
        let left = std::mem::replace(from, to);
        // SAFETY: its handle is forgotten.
        unsafe { pool.free(CPU, left) };
    }
}

/// A place is nobody's after its object was moved away.
#[test]
fn a_place_that_an_object_left_cannot_be_read() {
    dies("a_place_that_an_object_left_cannot_be_read", REPORT, || {
        let (pool, _) = pool();
        let mut live: Vec<Handle> =
            (0..200).map(|_| pool.store(CPU, Room::Open, &[7; 700], None).unwrap()).collect();
        let mut n = 0;
        live.retain(|object| {
            n += 1;
            if n % 5 != 0 {
                // SAFETY: its handle is forgotten.
                unsafe { pool.free(CPU, *object) };
            }
            n % 5 == 0
        });
        pool.compact(CPU, |pass| {
            let Some(from) = live.iter_mut().find(|object| pass.is_leaving(**object)) else {
                return;
            };
            // SAFETY: none. It is moved and freed while it is read, which the sanitizer must find
            // out.
            let total = unsafe {
                pool.read(*from, 700, |object| {
                    move_out(&pool, pass, from);
                    sum(object)
                })
            };
            println!("{total}");
        });
    });
}
