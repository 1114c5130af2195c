//! Threads that use a cache at once. Owners use their own pages and know every byte of them; users
//! share a few pages.

use std::sync::Arc;

use sync::Mutex;
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};

use super::{Cache, FaultyDevice, Found, Model, PAGES, Policy, SwapPage};
use crate::content::{Fill, Stamp};
use crate::suite::together;

/// The threads with their own pages, in area 0.
const OWNERS: usize = 3;
/// The pages of each owner.
const OWN: u64 = PAGES / OWNERS as u64;
/// The threads that share the pages of area 1.
const USERS: usize = 2;
/// The shared pages.
const HOT: usize = 4;

/// The options of a crowd.
#[derive(Clone, Copy)]
pub struct Crowd<'a> {
    /// The seed of the threads' operations. The machine decides their timing.
    pub seed: u64,
    /// The number of steps of each thread.
    pub steps: usize,
    /// Whether a load removes the page.
    pub exclusive: bool,
    /// One more thread calls this in a loop, with the backing devices.
    pub beside: &'a (dyn Fn(&[Arc<FaultyDevice>; 2]) + Sync),
}

/// Runs a crowd on a fresh cache. An owner must find what it stored last, in the cache or on the
/// device. A page found at a shared place must be whole, must come from a writer that has begun to
/// store it there, and must be no older than the page that the same reader saw before from that
/// writer. A thread whose store is refused writes to the device itself. For a shared page it holds
/// the page's lock meanwhile, as swap holds the page lock.
///
/// # Panics
/// When a thread finds anything else, or when a page is left at the end.
pub fn crowd(cache: &dyn Cache, crowd: Crowd<'_>) {
    let mut rng = Rng::new(crowd.seed);
    Model::settings().into_iter().for_each(|policy| cache.set(policy));
    cache.set(Policy::Exclusive(crowd.exclusive));
    let devices_below = [0, 1].map(|area| {
        let device_below = FaultyDevice::new(PAGES, rng.next_u64(), 1);
        device_below.remember(false);
        cache.swapon(area, device_below.clone()).expect("it is off");
        device_below
    });
    let stage = Stage { cache, devices_below, crowd, turns: [(); HOT].map(|()| Mutex::new(())) };
    let mut owners: Vec<Owner<'_>> = (0..OWNERS)
        .map(|number| Owner {
            stage: &stage,
            number,
            rng: rng.fork(),
            newest: [None; OWN as usize],
        })
        .collect();
    let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
    for owner in &mut owners {
        tasks.push(Box::new(|| (0..crowd.steps).for_each(|_| owner.act())));
    }
    for number in 0..USERS {
        let (stage, rng) = (&stage, rng.fork());
        let mut user = User { stage, number, rng, stored: 0, newest: [[0; USERS]; HOT] };
        tasks.push(Box::new(move || (0..crowd.steps).for_each(|_| user.act())));
    }
    together(tasks, &|| (crowd.beside)(&stage.devices_below));
    owners.iter_mut().for_each(Owner::look_at_all);
    drop(owners);
    stage.end();
}

struct Stage<'a> {
    cache: &'a dyn Cache,
    devices_below: [Arc<FaultyDevice>; 2],
    crowd: Crowd<'a>,
    /// The locks of the shared pages. A thread holds one while it stores the page, and while it
    /// looks for the page on the device.
    turns: [Mutex<()>; HOT],
}

impl Stage<'_> {
    fn end(&self) {
        let cache = self.cache;
        cache.validate();
        for area in 0..2 {
            cache.invalidate_area(Cpu(0), area);
            assert_eq!(cache.swapoff(area), Ok(()), "area {area} is empty");
        }
        cache.validate();
        let left = cache.totals();
        assert_eq!([left.stored, left.pool_bytes], [0; 2], "pages are left: {left:?}");
        assert_eq!(left.memcg_bytes.iter().sum::<u64>(), 0, "bytes are left: {left:?}");
    }

    fn again(&self) -> String {
        format!("drawn from {:#x}", self.crowd.seed)
    }
}

struct Owner<'a> {
    stage: &'a Stage<'a>,
    number: usize,
    rng: Rng,
    newest: [Option<Fill>; OWN as usize],
}

impl Owner<'_> {
    fn swap_page(&self, which: usize) -> SwapPage {
        SwapPage { area: 0, offset: self.number as u64 * OWN + which as u64 }
    }

    fn act(&mut self) {
        let pages = if self.rng.one_in(2) { 3 } else { OWN };
        let which = self.rng.below(pages) as usize;
        let (stage, swap_page, cpu) = (self.stage, self.swap_page(which), Cpu(self.number as u32));
        match self.rng.below(17) {
            0..=7 => {
                let (fill, mut page) = (Fill::draw(&mut self.rng), [0; PAGE_SIZE]);
                fill.render(&mut page);
                if stage.cache.store(cpu, swap_page, self.number, &page).is_err() {
                    stage.devices_below[0].put(swap_page.offset, &page);
                }
                self.newest[which] = Some(fill);
            }
            8..=13 => self.load(which),
            14 => drop(stage.cache.reclaim(cpu, 3)),
            _ => {
                stage.cache.invalidate_page(cpu, swap_page);
                self.newest[which] = None;
            }
        }
    }

    fn load(&mut self, which: usize) {
        let (stage, swap_page) = (self.stage, self.swap_page(which));
        let mut page = [0xa5; PAGE_SIZE];
        let found = stage.cache.load(Cpu(self.number as u32), swap_page, &mut page);
        let Some(fill) = self.newest[which] else {
            assert_eq!(found, Found::Nothing, "{swap_page:?} was given up ({})", stage.again());
            return;
        };
        match found {
            Found::Page if stage.crowd.exclusive => self.newest[which] = None,
            Found::Page => {}
            Found::Nothing => match stage.devices_below[0].peek(swap_page.offset) {
                Some(there) => page.copy_from_slice(&there[..]),
                None => panic!("{swap_page:?} is nowhere ({})", stage.again()),
            },
            Found::Corrupt => panic!("{swap_page:?} is corrupt ({})", stage.again()),
        }
        let mut whole = [0; PAGE_SIZE];
        fill.render(&mut whole);
        assert!(
            page == whole,
            "{swap_page:?}, {found:?}, is another than {fill:?} ({})",
            stage.again()
        );
    }

    fn look_at_all(&mut self) {
        (0..self.newest.len()).for_each(|which| self.load(which));
    }
}

struct User<'a> {
    stage: &'a Stage<'a>,
    number: usize,
    rng: Rng,
    stored: u32,
    /// The newest stamp seen, by page and writer.
    newest: [[u32; USERS]; HOT],
}

impl User<'_> {
    fn act(&mut self) {
        let hot = self.rng.below(HOT as u64) as usize;
        let (stage, swap_page) = (self.stage, SwapPage { area: 1, offset: hot as u64 });
        let cpu = Cpu((OWNERS + self.number) as u32);
        let mut page = [0xa5; PAGE_SIZE];
        if self.rng.one_in(2) {
            self.stored += 1;
            let (writer, number) = (self.number as u8, self.stored);
            Stamp { page: hot as u8, writer, number }.render(&mut page);
            let _turn = stage.turns[hot].lock();
            if stage.cache.store(cpu, swap_page, 0, &page).is_err() {
                stage.devices_below[1].put(swap_page.offset, &page);
            }
            return;
        }
        if stage.crowd.exclusive {
            // The thread stores a page again that its load removed.
            let _turn = stage.turns[hot].lock();
            if stage.cache.load(cpu, swap_page, &mut page) == Found::Page {
                self.judge(hot, &page);
                if stage.cache.store(cpu, swap_page, 0, &page).is_err() {
                    stage.devices_below[1].put(swap_page.offset, &page);
                }
                return;
            }
            return self.look_at_device(hot);
        }
        match stage.cache.load(cpu, swap_page, &mut page) {
            Found::Page => self.judge(hot, &page),
            Found::Nothing => {
                let _turn = stage.turns[hot].lock();
                // Another thread may have stored the page again meanwhile.
                match stage.cache.load(cpu, swap_page, &mut page) {
                    Found::Page => self.judge(hot, &page),
                    found => {
                        assert_eq!(found, Found::Nothing, "{swap_page:?} ({})", stage.again());
                        self.look_at_device(hot);
                    }
                }
            }
            Found::Corrupt => panic!("{swap_page:?} is corrupt ({})", stage.again()),
        }
    }

    fn look_at_device(&mut self, hot: usize) {
        if let Some(page) = self.stage.devices_below[1].peek(hot as u64) {
            self.judge(hot, &page);
        }
    }

    fn judge(&mut self, hot: usize, page: &units::Page) {
        let again = self.stage.again();
        let stamp =
            Stamp::read(page).unwrap_or_else(|wrong| panic!("page {hot}: {wrong} ({again})"));
        assert_eq!(usize::from(stamp.page), hot, "{stamp:?} is of another place ({again})");
        let newest = &mut self.newest[hot][usize::from(stamp.writer)];
        assert!(stamp.number >= *newest, "{stamp:?} came back after {newest} ({again})");
        *newest = stamp.number;
    }
}
