//! Disks whose writers make room for what they store: none is refused while a page can move.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use block::IoError;
use common::{Plan, Watched};
use sim::content::Fill;
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Pack, Recompress, WhenFull};

const P: u64 = PAGE_SIZE as u64;
const CPU: Cpu = Cpu(1);
const QUICK: &str = if cfg!(asan) { zcomp::LZO } else { zcomp::LZ4 };

/// A page that becomes an object of about so many bytes.
fn page_of(bytes: u64, number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    match bytes {
        P => Fill::Noise(number).render(&mut page),
        0..64 => Fill::Spoiled { words: number, at: 2047 }.render(&mut page),
        _ => Fill::Partly { noise: number, parts: (bytes / 64) as u8 }.render(&mut page),
    }
    page
}

/// Stores these pages from `writers` threads, and returns how many were refused.
fn refused(
    disk: &Watched,
    writers: u64,
    pages: &[u64],
    page: &(dyn Fn(u64) -> Page + Sync),
) -> u64 {
    let (next, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..writers {
            let (next, refused) = (&next, &refused);
            scope.spawn(move || {
                let one = || pages.get(next.fetch_add(1, Ordering::Relaxed) as usize);
                while let Some(index) = one() {
                    match disk.disk.store_page(Cpu(writer as u32), *index, &page(*index)) {
                        Err(IoError::NoSpace) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        stored => stored.expect("nothing else goes wrong"),
                    }
                }
            });
        }
    });
    for index in pages.iter().filter(|_| refused.load(Ordering::Relaxed) == 0) {
        let mut found = [0; PAGE_SIZE];
        disk.disk.load_page(CPU, *index, &mut found).expect("it can be read");
        assert!(found == page(*index), "page {index} has other contents");
    }
    refused.into_inner()
}

fn shuffled(pages: u64, rng: &mut Rng) -> Vec<u64> {
    let mut all: Vec<u64> = (0..pages).collect();
    for n in (1..all.len()).rev() {
        all.swap(n, rng.below(n as u64 + 1) as usize);
    }
    all
}

/// Memory is full of objects of one size, in no order; then pages come that do not shrink. Small
/// objects free no frame when a batch of them leaves, so the frames must be put together.
#[test]
fn objects_of_any_size_make_room() {
    let mut rng = Rng::new(seed("objects_of_any_size_make_room"));
    const FRAMES: u64 = 64;
    let mut turn = 0;
    for bytes in [34, 128, 704, 2048, P] {
        for writers in [1, 4, 16, 64] {
            for batch in [1, 32] {
                turn += 1;
                let (compressed_writeback, log) = common::LAYOUTS[turn % 3];
                let when_full = [WhenFull::Wait, WhenFull::Spill][turn / 3 % 2];
                let small = FRAMES * P / bytes.max(48) * 2;
                let large = 4 * FRAMES;
                let plan = Plan {
                    mem_limit: FRAMES * P,
                    when_full,
                    auto: turn % 4 == 0,
                    backing_pages: small + large,
                    compressed_writeback,
                    log,
                    ..Plan::new((small + large) * P, QUICK)
                };
                let disk = plan.build();
                disk.disk.set_writeback_batch(batch).expect("it is a number");
                let what = format!("{bytes} bytes, {writers} writers, batch {batch}, {plan:?}");
                let first = shuffled(small, &mut rng);
                let not = refused(&disk, writers, &first, &|n| page_of(bytes, n + 1));
                assert_eq!(not, 0, "small ones of {what}");
                let then: Vec<u64> = (small..small + large).collect();
                let not = refused(&disk, writers, &then, &|n| page_of(P, n));
                assert_eq!(not, 0, "large ones of {what}");
            }
        }
    }
}

/// Pages of text, which become smaller with another codec or as neighbours.
fn text(number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    Fill::Text(number).render(&mut page);
    page
}

/// There is no backing device. All pages fit once they are in their smaller form.
#[test]
fn smaller_forms_make_room() {
    const PAGES: u64 = 1200;
    let mut rng = Rng::new(seed("smaller_forms_make_room"));
    let plan = Plan { auto: false, ..Plan::new(PAGES * P, QUICK) };
    let roomy = plan.build();
    let all = shuffled(PAGES, &mut rng);
    assert_eq!(refused(&roomy, 1, &all, &text), 0);
    let before = roomy.disk.stats().pool_bytes;
    roomy.disk.recompress(&Recompress::default()).expect("there is memory");
    roomy.disk.compact().expect("it has a size");
    let after = roomy.disk.stats().pool_bytes;
    assert!(after < before * 9 / 10, "{after} of {before} bytes");
    // A frame of 64 is kept back.
    let least = after + after / 16 + 16 * P;
    for auto in [false, true] {
        for writers in [1, 4, 16, 64] {
            for mem_limit in [least, (least + before) / 2] {
                let plan = Plan { mem_limit, auto, when_full: WhenFull::Wait, ..plan };
                let disk = plan.build();
                let not = refused(&disk, writers, &all, &text);
                assert_eq!(not, 0, "{writers} writers, auto {auto}, {mem_limit} of {before}");
                // What an administrator does has frames kept for it.
                disk.disk.recompress(&Recompress::default()).expect("there is room for it");
            }
        }
    }
}

/// A writer at the limit writes some pages back, not all: what was stored last is in memory.
#[test]
fn a_writer_makes_no_more_room_than_it_needs() {
    const FRAMES: u64 = 2048;
    for (compressed_writeback, log) in common::LAYOUTS {
        let disk = Plan {
            mem_limit: FRAMES * P,
            when_full: WhenFull::Wait,
            backing_pages: 4 * FRAMES,
            compressed_writeback,
            log,
            ..Plan::new(4 * FRAMES * P, QUICK)
        }
        .build();
        let mut before = 0;
        for index in 0..2 * FRAMES {
            disk.disk.store_page(CPU, index, &page_of(P, index)).expect("there is room");
            let written = disk.disk.stats().backed_writes;
            let most = FRAMES / 4;
            assert!(written - before <= most, "log {log}: one store wrote {}", written - before);
            before = written;
        }
        assert!(before > FRAMES / 2, "log {log}: {before} pages were written");
    }
}

/// All pages fit just so. Extents take frames before the holes of what they replace do any good.
#[test]
fn extents_are_made_at_the_limit() {
    const PAGES: u64 = 1200;
    let mut rng = Rng::new(seed("extents_are_made_at_the_limit"));
    let plan = Plan { auto: false, ..Plan::new(PAGES * P, QUICK) };
    let roomy = plan.build();
    let all = shuffled(PAGES, &mut rng);
    assert_eq!(refused(&roomy, 1, &all, &text), 0);
    let before = roomy.disk.stats().pool_bytes;
    let plan = Plan { mem_limit: before + before / 16, when_full: WhenFull::Wait, ..plan };
    let disk = plan.build();
    assert_eq!(refused(&disk, 1, &all, &text), 0);
    let packed = disk.disk.pack(&Pack::default()).expect("there is room for it");
    let after = disk.disk.stats().pool_bytes;
    assert!(packed > PAGES / 2 && after < before, "{packed} pages, {after} of {before} bytes");
    for index in 0..PAGES {
        let mut found = [0; PAGE_SIZE];
        disk.disk.load_page(CPU, index, &mut found).expect("it can be read");
        assert!(found == text(index), "page {index} has other contents");
    }
}
