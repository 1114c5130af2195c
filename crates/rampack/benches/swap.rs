//! Measures stores and loads of a page in the swap cache, by content, with the default codec.
//!
//! ```sh
//! cargo bench -p rampack --bench swap
//! ```

mod common;

use std::sync::Arc;

use common::{AT_ONCE, Content, PAGES, Pages};
use divan::Bencher;
use divan::counter::BytesCount;
use host::cpu;
use machine::{Machine, MachineOptions};
use units::PAGE_SIZE;
use zswap::{AreaOptions, Key, Memcg, SwapType, Zswap};

/// An area without a device refuses an incompressible page, so there is none here.
const CONTENTS: [Content; 3] = [Content::Compressible, Content::Half, Content::SameFilled];

fn main() {
    divan::main();
}

/// An area without a device.
struct Area {
    zswap: Arc<Zswap>,
    swap: SwapType,
    memcg: Memcg,
    pages: Pages,
    last: u64,
}

impl Area {
    fn new(content: Content) -> Area {
        let machine = Machine::new(Arc::new(host::Mmap), MachineOptions::of_this_system());
        let zswap = machine.and_then(|machine| machine.swap()).expect("memory");
        let swap = SwapType::new(0).expect("a number of an area");
        let memcg = zswap.memcg("bench").expect("memory");
        let options = AreaOptions { device: None, memcg: memcg.clone() };
        zswap.swapon(swap, PAGES, options).expect("memory");
        Area { zswap, swap, memcg, pages: Pages::of(content), last: 0 }
    }

    /// The next page; the first one after the last.
    fn next(&mut self) -> Key {
        self.last = (self.last + 1) % PAGES;
        Key { swap: self.swap, offset: self.last }
    }

    fn store(&self, key: Key) -> bool {
        self.zswap.store(cpu(), key, &self.memcg, self.pages.get(key.offset)).is_ok()
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        self.zswap.invalidate_area(cpu(), self.swap);
        self.zswap.swapoff(self.swap).expect("it is empty");
    }
}

/// After the first round, each store replaces a stored page.
#[divan::bench(args = CONTENTS)]
fn store(bencher: Bencher, content: Content) {
    let mut area = Area::new(content);
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        let key = area.next();
        assert!(area.store(key), "{content:?}: refused");
    });
}

/// Loads a page that was just stored, so it is present whether or not a load removes it.
#[divan::bench(args = CONTENTS, sample_size = AT_ONCE)]
fn load(bencher: Bencher, content: Content) {
    let area = std::cell::RefCell::new(Area::new(content));
    let mut page = [0; PAGE_SIZE];
    bencher
        .counter(BytesCount::new(PAGE_SIZE))
        .with_inputs(|| {
            let key = area.borrow_mut().next();
            assert!(area.borrow().store(key), "{content:?}: refused");
            key
        })
        .bench_local_values(|key| {
            let area = area.borrow();
            assert!(area.zswap.load(cpu(), key, &mut page).is_ok(), "{content:?}: lost");
        });
}
