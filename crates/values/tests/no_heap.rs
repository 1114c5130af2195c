//! A read makes no call of the heap. The test is alone in its file, because it replaces the
//! allocator of the process.

mod common;

use common::{at, store};
use sim::values::contents;
use testkit::CountingHeap;
use values::{Options, PutOptions};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

#[test]
fn a_read_takes_nothing_from_the_heap() {
    for codec in ["lz4", "zstd", "lz4hc", "deflate"] {
        let values = store(codec, Options { unit: 4096, ..Options::default() });
        let length = |n: u64| [0, 100, 1000, 5000, 70_000, 3 << 20][n as usize % 6];
        for n in 0..240 {
            let value = contents(n as u8, length(n), n);
            let stored = values.put(at(0, 1), &n.to_ne_bytes(), &value, PutOptions::default());
            assert_eq!(stored, Ok(()));
        }
        assert!(values.stats().groups > 0);
        // A store with clones reads as others.
        let other = values.clone_contents(&host::Mmap).expect("addresses");
        for n in 200..240u64 {
            assert!(other.remove(at(0, 1), &n.to_ne_bytes()));
        }
        let mut into = vec![0; 3 << 20];
        let mut found = 0;
        let calls = CountingHeap::calls_of(|| {
            for n in 0..240u64 {
                let (at, key) = (at(n as u32 % 3, 1), n.to_ne_bytes());
                found += usize::from(values.get(at, &key, &mut into) == Ok(Some(length(n))));
                let part = values.get_range(at, &key, length(n) / 3, &mut into[..length(n) / 2]);
                found += usize::from(part == Ok(Some(length(n) / 2)));
                found += usize::from(values.contains(at, &key));
            }
        });
        assert_eq!((found, calls), (720, 0), "{codec}");
    }
}
