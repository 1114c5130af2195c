//! Once made, contexts and streams leave the heap alone: Rust's and C's.
//!
//! Every `malloc` of this process, from C or from Rust's own allocator, comes by here, because a
//! program's symbols go before the C library's. That is how glibc allows its allocator to be
//! replaced ("Replacing malloc" in its manual), so the test is made for glibc only.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod common;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use common::pages::{Page, pages};
use testkit::Rng;
use units::Cpu;
use zcomp::{Compressor, MultiStreams, PerCpuStreams, SingleStream, Streams};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    CALLS.set(CALLS.get() + 1);
}

/// Calls to the allocator by this thread while `work` ran.
fn calls_during<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = CALLS.get();
    let result = work();
    (CALLS.get() - before, result)
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_malloc(size) }
}

#[unsafe(no_mangle)]
extern "C" fn calloc(items: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_calloc(items, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_realloc(old, size) }
}

#[unsafe(no_mangle)]
extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_memalign(alignment, size) }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_memalign(alignment, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    const ENOMEM: c_int = 12;
    count();
    // SAFETY: passes on what the caller answers for.
    let memory = unsafe { __libc_memalign(alignment, size) };
    if memory.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller gave a place for the result.
    unsafe { to.write(memory) };
    0
}

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

/// Everything a stream is for, right and wrong, on one page.
fn use_stream(streams: &impl Streams, page: &Page, noise: &Page, kept: &mut [u8]) {
    let mut back = [0; 4096];
    for cpu in 0..3 {
        let stream = &mut *streams.get(Cpu(cpu));
        let length = stream.context.compress(page, &mut stream.output[..]).unwrap();
        stream.context.decompress(&stream.output[..length], &mut back).unwrap();
        assert!(back == *page);
        assert_eq!(stream.context.compress(page, &mut kept[..length]), Some(length));
        assert_eq!(stream.context.compress(page, &mut kept[..length - 1]), None);
        assert!(stream.context.decompress(&stream.output[..length - 1], &mut back).is_err());
        for (n, byte) in noise.iter().enumerate().take(64) {
            let at = n * length / 64;
            stream.output[at] ^= byte;
            let _ = stream.context.decompress(&stream.output[..length], &mut back);
            stream.output[at] ^= byte;
        }
        let _ = stream.context.decompress(noise, &mut back);
    }
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
fn single_leaves_the_heap_alone() {
    let mut rng = Rng::new(testkit::seed("single_leaves_the_heap_alone"));
    let (page, noise) = (pages(&mut rng).remove(0).1, common::pages::random(&mut rng));
    let mut kept = vec![0; 8192];
    let single = SingleStream::new(&zcomp::Zstd::new(&zcomp::Params::default()).unwrap()).unwrap();
    let (calls, ()) = calls_during(|| use_stream(&single, &page, &noise, &mut kept));
    assert_eq!(calls, 0);
}

/// `multi` allocates when it grows, and lends, takes back and waits without.
#[test]
fn multi_leaves_the_heap_alone_once_it_has_grown() {
    let mut rng = Rng::new(testkit::seed("multi_leaves_the_heap_alone_once_it_has_grown"));
    let (page, noise) = (pages(&mut rng).remove(0).1, common::pages::random(&mut rng));
    let mut kept = vec![0; 8192];
    let codec: Arc<dyn Compressor> = Arc::new(zcomp::Zstd::new(&zcomp::Params::default()).unwrap());
    let multi = MultiStreams::new(&codec, 3).unwrap();
    // Each is asked for while those before it are lent; as many as may be, so nobody waits.
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
