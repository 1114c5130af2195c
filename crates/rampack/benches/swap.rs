//! A page in the cache of swap areas, by content, under the codec it has by itself.
//!
//! ```sh
//! cargo bench -p rampack --bench swap
//! ```

mod common;

use std::sync::Arc;

use common::{AT_ONCE, Content, PAGES, Pages};
use divan::Bencher;
use divan::counter::BytesCount;
use rampack::{AreaOptions, Key, Memcg, PAGE_SIZE, Rampack, SwapType, Zswap, cpu};

/// A page that does not shrink is refused where there is nothing behind the area.
const CONTENTS: [Content; 3] = [Content::Compressible, Content::Half, Content::SameFilled];

fn main() {
    divan::main();
}

/// An area with nothing behind it.
struct Area {
    zswap: Arc<Zswap>,
    swap: SwapType,
    memcg: Memcg,
    pages: Pages,
    last: u64,
}

impl Area {
    fn new(content: Content) -> Area {
        let zswap = Rampack::new().and_then(|machine| machine.swap()).expect("memory");
        let swap = SwapType::new(0).expect("a number of an area");
        let memcg = zswap.memcg("bench").expect("memory");
        let options = AreaOptions { device: None, memcg: memcg.clone() };
        zswap.swapon(swap, PAGES, options).expect("memory");
        Area { zswap, swap, memcg, pages: Pages::of(content), last: 0 }
    }

    /// Page after page, from the beginning again after the last.
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

/// In place of a page that is there, after the first round.
#[divan::bench(args = CONTENTS)]
fn store(bencher: Bencher, content: Content) {
    let mut area = Area::new(content);
    bencher.counter(BytesCount::new(PAGE_SIZE)).bench_local(|| {
        let key = area.next();
        assert!(area.store(key), "{content:?}: refused");
    });
}

/// Of a page that was just stored, so that it is there whether loads leave it or take it.
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
