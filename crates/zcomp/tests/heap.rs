//! Once made, contexts and streams leave the heap alone: Rust's and C's.
//!
//! Every `malloc` of this process, from C or from Rust's own allocator, comes by here, because a
//! program's symbols go before the C library's. That is how glibc allows its allocator to be
//! replaced ("Replacing malloc" in its manual), so the test is made for glibc only.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod common;
#[path = "common/heap_calls.rs"]
mod heap_calls;

use common::pages::pages;
use heap_calls::{calls_during, use_stream};
use testkit::Rng;
use zcomp::{Compressor, PerCpuStreams};

#[test]
fn the_counter_sees_both_languages() {
    let (calls, _) = calls_during(|| std::hint::black_box(Vec::<u8>::with_capacity(100)));
    assert_eq!(calls, 1);
    let (calls, _) = calls_during(|| std::hint::black_box(Box::new(Aligned([0; 64]))));
    assert_eq!(calls, 1);
    // libzstd's contexts and their tables come from C.
    let (calls, _) = calls_during(zstd_safe_context);
    assert!(calls >= 3, "{calls}");
}

#[repr(align(256))]
#[allow(dead_code)]
struct Aligned([u8; 64]);

fn zstd_safe_context() -> Box<dyn zcomp::Context> {
    zcomp::Zstd::new(&zcomp::Params::default()).unwrap().context().unwrap()
}

#[test]
fn streams_leave_the_heap_alone() {
    let mut rng = Rng::new(testkit::seed("streams_leave_the_heap_alone"));
    let pages = pages(&mut rng);
    let noise = common::pages::random(&mut rng);
    let mut kept = vec![0; 8192];
    let mut codecs = common::codecs();
    codecs.extend(common::codecs_with(&common::dictionary(16_384, 1)));
    for (name, codec) in codecs {
        let streams = PerCpuStreams::new(&*codec, 2).unwrap();
        // The very first use counts, and so does long use: libzstd gives a workspace back that it
        // found too large for 128 inputs in a row.
        let (calls, ()) = calls_during(|| {
            for _ in 0..3 {
                for (_, page) in &pages {
                    use_stream(&streams, page, &noise, &mut kept);
                }
            }
        });
        // As its documentation says, liblz4's best levels borrow from the heap for each page.
        let borrows = ["lz4hc Some(10)", "lz4hc Some(12)"].iter().any(|one| name.starts_with(one));
        assert_eq!(calls > 0, borrows, "{name}: {calls} calls");
    }
}

#[test]
fn packers_leave_the_heap_alone() {
    let mut rng = Rng::new(testkit::seed("packers_leave_the_heap_alone"));
    let kinds = pages(&mut rng);
    let mut into = vec![0; 5 * units::PAGE_SIZE];
    for level in [1, 12] {
        let codec = zcomp::Zstd::new(&zcomp::Params::at_level(Some(level))).unwrap();
        let mut packer = codec.packer().unwrap().unwrap();
        let inputs: Vec<Vec<u8>> = (1..=zcomp::EXTENT_PAGES)
            .flat_map(|count| kinds.iter().map(move |(_, page)| page.repeat(count)))
            .collect();
        // Smaller ones for long, and larger ones again.
        let (calls, ()) = calls_during(|| {
            for input in inputs.iter().flat_map(|input| [input; 10]).chain(&inputs) {
                packer.compress(input, &mut into);
            }
        });
        assert_eq!(calls, 0, "level {level}");
    }
}
