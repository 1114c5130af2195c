//! After a device was made it does not use the heap: pages are swapped through it.

use std::sync::Arc;

use block::{BlockDevice, Job, Operation, Packed, PackedPages, Plain};
use pagelog::{LogDevice, PageLog};
use testkit::{CountingHeap, Rng, seed};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::Params;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

const P: u64 = PAGE_SIZE as u64;
const CPU: Cpu = Cpu(0);

#[test]
fn no_operation_uses_the_heap() {
    let mut rng = Rng::new(seed("no_operation_uses_the_heap"));
    let log = PageLog::new(Arc::new(Plain::new(5 << 20)), "below", 2).expect("a log");
    let codec = zcomp::open(zcomp::ZSTD, &Params::default()).expect("a codec");
    let device = LogDevice::new(log, &host::Mmap, 1500, &*codec, 2).expect("a device");
    let mut pages: Vec<Page> = vec![[0; PAGE_SIZE]; 64];
    for page in &mut pages {
        // All pages of the device together have room: the log promises 3 MB of its 5.
        let noise = rng.range(1..PAGE_SIZE as u64 * 3 / 4) as usize;
        rng.fill(&mut page[..noise]);
    }
    let lz4 = zcomp::open(zcomp::LZ4, &Params::default()).expect("a codec");
    let mut object = vec![0; 2 * PAGE_SIZE];
    let text = b"it shrinks; ".repeat(342);
    let text: &Page = text[..PAGE_SIZE].try_into().expect("a page");
    let length = lz4.context().expect("memory").compress(text, &mut object).expect("room");
    let calls = CountingHeap::calls_of(|| {
        for _ in 0..300 {
            let offset = rng.below(1500 - 64) * P;
            let mut jobs = [Job::new(Operation::Write { offset, from: pages.as_flattened() })];
            device.submit_all(CPU, &mut jobs);
            let mut page = [0; PAGE_SIZE];
            let read = Operation::Read { offset, into: &mut page };
            device.submit(CPU, read).expect("it is there");
            let page = (offset + 9) / P;
            let bytes = &object[..length];
            let mut packed =
                [Packed { page, codec: Some(zcomp::LZ4), bytes, ..Packed::whole(0, text) }];
            device.write_packed(CPU, &mut packed);
            packed[0].result.expect("it is written");
            device.submit(CPU, Operation::Discard { offset, length: 9 * P }).expect("it is done");
        }
    });
    assert!(device.stats().cleaned_segments > 0, "{:?}", device.stats());
    assert_eq!(calls, 0);
}
