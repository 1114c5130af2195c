//! The policies of streams that the product does not ship leave the heap alone, as its own does
//! (`crates/zcomp/tests/heap.rs`).
#![cfg(all(target_os = "linux", target_env = "gnu", not(loom)))]

#[path = "../../../crates/zcomp/tests/common/heap_calls.rs"]
mod heap_calls;
#[path = "../../../crates/zcomp/tests/common/pages.rs"]
#[allow(dead_code)]
mod pages;

use std::sync::Arc;

use designs::streams::{MultiStreams, SingleStreams};
use heap_calls::{calls_during, use_stream};
use pages::pages;
use testkit::Rng;
use units::Cpu;
use zcomp::{Compressor, Streams};

#[test]
fn single_leaves_the_heap_alone() {
    let mut rng = Rng::new(testkit::seed("single_leaves_the_heap_alone"));
    let (page, noise) = (pages(&mut rng).remove(0).1, pages::random(&mut rng));
    let mut kept = vec![0; 8192];
    let codec: Arc<dyn Compressor> = Arc::new(zcomp::Zstd::new(&zcomp::Params::default()).unwrap());
    let single = SingleStreams::make(&codec, 3, 1).unwrap();
    let (calls, ()) = calls_during(|| use_stream(&single, &page, &noise, &mut kept));
    assert_eq!(calls, 0);
}

/// `multi` allocates when it grows, and hands out, takes back and waits without.
#[test]
fn multi_leaves_the_heap_alone_once_it_has_grown() {
    let mut rng = Rng::new(testkit::seed("multi_leaves_the_heap_alone_once_it_has_grown"));
    let (page, noise) = (pages(&mut rng).remove(0).1, pages::random(&mut rng));
    let mut kept = vec![0; 8192];
    let codec: Arc<dyn Compressor> = Arc::new(zcomp::Zstd::new(&zcomp::Params::default()).unwrap());
    let multi = MultiStreams::new(&codec, 3).unwrap();
    // Each is asked for while those before it are taken; as many as may be, so nobody waits.
    let three = || (0..3).map(|cpu| multi.get(Cpu(cpu)));
    let take_all = || {
        let mut all = [None, None, None];
        all.iter_mut().zip(three()).for_each(|(place, stream)| *place = Some(stream));
    };
    let (calls, ()) = calls_during(|| use_stream(&multi, &page, &noise, &mut kept));
    assert_eq!((calls, multi.count()), (0, 1), "the first one is there from the beginning");
    let (calls, ()) = calls_during(take_all);
    assert!(calls > 0 && multi.count() == 3, "two were made");
    let (calls, ()) = calls_during(|| {
        (0..3).for_each(|_| take_all());
        use_stream(&multi, &page, &noise, &mut kept);
    });
    assert_eq!((calls, multi.count()), (0, 3));
}
