//! Measures stores and loads of a page on a disk, by content and codec.
//!
//! ```sh
//! cargo bench -p rampack --bench pages                    # all of them
//! cargo bench -p rampack --bench pages -- 'load.*zstd'    # some, by a regular expression
//! ```

mod common;

use std::fmt;

use common::{AT_ONCE, Content, PAGES, Pages};
use divan::Bencher;
use divan::counter::BytesCount;
use rampack::{Disk, DiskOptions, Rampack};
use units::PAGE_SIZE;

fn main() {
    divan::main();
}

/// A codec and a content.
#[derive(Clone, Copy, Debug)]
struct Case {
    algorithm: &'static str,
    content: Content,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match self.content {
            Content::Compressible => "compressible",
            Content::Half => "half-compressible",
            Content::Incompressible => "incompressible",
            Content::SameFilled => "same-filled",
        };
        write!(f, "{} {content}", self.algorithm)
    }
}

/// Each codec with each content.
const CASES: [Case; 8] = {
    use Content::{Compressible, Half, Incompressible, SameFilled};
    const fn lz4(content: Content) -> Case {
        Case { algorithm: "lz4", content }
    }
    const fn zstd(content: Content) -> Case {
        Case { algorithm: "zstd", content }
    }
    [
        lz4(Compressible),
        lz4(Half),
        lz4(Incompressible),
        lz4(SameFilled),
        zstd(Compressible),
        zstd(Half),
        zstd(Incompressible),
        zstd(SameFilled),
    ]
};

fn setting(case: &Case) -> (Disk, Pages) {
    let size = PAGES * PAGE_SIZE as u64;
    let options = DiskOptions::new(size).algorithm(case.algorithm.parse().expect("its name"));
    let rampack = Rampack::new().expect("addresses");
    (rampack.disk(options).expect("memory"), Pages::of(case.content))
}

fn fill(disk: &Disk, pages: &Pages) {
    (0..PAGES).for_each(|index| disk.store(index, pages.get(index)).expect("memory"));
}

/// The next page; the first one after the last.
fn next(index: &mut u64) -> u64 {
    *index = (*index + 1) % PAGES;
    *index
}

/// Stores into empty slots.
#[divan::bench(args = CASES, sample_size = AT_ONCE)]
fn store(bencher: Bencher, case: &Case) {
    let (disk, pages) = setting(case);
    let mut last = 0;
    bencher
        .counter(BytesCount::new(PAGE_SIZE))
        .with_inputs(|| {
            let index = next(&mut last);
            disk.discard(index, 1).expect("in range");
            index
        })
        .bench_local_values(|index| disk.store(index, pages.get(index)));
}

/// Overwrites a stored page with another one of its kind.
#[divan::bench(args = CASES)]
fn overwrite(bencher: Bencher, case: &Case) {
    let (disk, pages) = setting(case);
    fill(&disk, &pages);
    let mut last = 0;
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        let index = next(&mut last);
        disk.store(index, pages.get(index + 1))
    });
}

#[divan::bench(args = CASES)]
fn load(bencher: Bencher, case: &Case) {
    let (disk, pages) = setting(case);
    fill(&disk, &pages);
    let (mut last, mut page) = (0, [0; PAGE_SIZE]);
    bencher
        .counter(BytesCount::new(PAGE_SIZE))
        .bench_local(|| disk.load(next(&mut last), &mut page));
    disk.load(7, &mut page).expect("it is there");
    assert!(page == *pages.get(7), "{case}: not what was stored");
}

#[divan::bench(args = CASES, sample_size = AT_ONCE)]
fn discard(bencher: Bencher, case: &Case) {
    let (disk, pages) = setting(case);
    let mut last = 0;
    bencher
        .with_inputs(|| {
            let index = next(&mut last);
            disk.store(index, pages.get(index)).expect("memory");
            index
        })
        .bench_local_values(|index| disk.discard(index, 1));
}
