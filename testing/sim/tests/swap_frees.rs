//! Frees that are heard: a kernel in small gives out slots, writes, reads and frees them, and sweeps
//! drop what was freed. Beside it pages are written back and written through. No page in use is
//! ever lost, and after a sweep nothing else is there.

#[path = "common/swap.rs"]
mod common;

use std::ops::ControlFlow;
use std::sync::Arc;

use block::{BlockDevice, ExtentKind, Operation};
use common::{Engine, INDEXES, Kind, swap_type};
use sim::content::Fill;
use sim::swap::{Cache, FaultyDevice, Model, PAGES, Policy};
use sync::atomic::{AtomicU64, Ordering};
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE};
use zswap::AreaOptions;

const P: u64 = PAGE_SIZE as u64;
const CPU: Cpu = Cpu(0);

/// The kernel: which slots are in use, and what is in them.
struct Kernel {
    engine: Engine,
    device: Arc<dyn BlockDevice>,
    bits: Arc<Vec<AtomicU64>>,
    slots: Vec<Option<Fill>>,
    has_device: bool,
    rng: Rng,
}

impl Kernel {
    fn new(index: Kind, has_device: bool, seed: u64) -> Kernel {
        let engine = Engine::new(index, 2);
        Model::settings().into_iter().for_each(|policy| engine.set(policy));
        let below = FaultyDevice::new(PAGES, seed, 0);
        below.remember(false);
        let device = has_device.then_some(below as Arc<dyn BlockDevice>);
        let memcg = engine.zswap.memcg("default").expect("it is there");
        let options = AreaOptions { device, memcg };
        engine.zswap.swapon(swap_type(0), PAGES, options).expect("it is off");
        let bits: Arc<Vec<AtomicU64>> =
            Arc::new((0..PAGES.div_ceil(64)).map(|_| AtomicU64::new(0)).collect());
        engine.zswap.hear_frees(swap_type(0), bits.clone()).expect("there are bits for all");
        let (device, slots) = (engine.device(0), vec![None; PAGES as usize]);
        Kernel { engine, device, bits, slots, has_device, rng: Rng::new(seed) }
    }

    /// A slot that is in use, or not.
    fn slot(&mut self, in_use: bool) -> Option<usize> {
        let all = |slot: &usize| self.slots[*slot].is_some() == in_use;
        let all: Vec<usize> = (0..self.slots.len()).filter(all).collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    fn write(&mut self, slot: usize) {
        let (fill, mut page) = (Fill::draw(&mut self.rng), [0; PAGE_SIZE]);
        fill.render(&mut page);
        let write = Operation::Write { offset: slot as u64 * P, from: &page };
        self.device.submit(CPU, write).expect("there is room");
        self.slots[slot] = Some(fill);
    }

    fn check(&self, slot: usize) {
        let (mut page, mut right) = ([0xa5; PAGE_SIZE], [0; PAGE_SIZE]);
        let read = Operation::Read { offset: slot as u64 * P, into: &mut page };
        self.device.submit(CPU, read).expect("it is there");
        self.slots[slot].expect("it is in use").render(&mut right);
        assert!(page == right, "slot {slot} is in use, and its page was dropped");
    }

    /// What the program in the kernel does, and then the kernel.
    fn free(&mut self, slot: usize) {
        self.bits[slot / 64].fetch_or(1 << (slot % 64), Ordering::Relaxed);
        self.slots[slot] = None;
    }

    fn sweep(&self) {
        self.engine.zswap.sweep(CPU);
        let in_use = self.slots.iter().flatten().count() as u64;
        assert_eq!(self.there(), in_use, "after a sweep, pages in use alone are there");
        assert!(self.bits.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    /// Pages in the cache or on the device.
    fn there(&self) -> u64 {
        let mut bytes = 0;
        let mut visit = |extent: block::Extent| {
            bytes += if extent.kind == ExtentKind::Data { extent.length } else { 0 };
            ControlFlow::Continue(())
        };
        self.device.extents(CPU, 0, PAGES * P, &mut visit).expect("it is on");
        bytes / P
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..=6 => {
                if let Some(slot) = self.slot(false) {
                    self.write(slot);
                }
            }
            7 | 8 => {
                if let Some(slot) = self.slot(true) {
                    self.write(slot);
                }
            }
            9..=11 => {
                if let Some(slot) = self.slot(true) {
                    self.check(slot);
                }
            }
            12..=16 => {
                if let Some(slot) = self.slot(true) {
                    self.free(slot);
                }
            }
            17 => self.sweep(),
            18 => drop(self.engine.reclaim(CPU, 1 + self.rng.below(20))),
            _ => {
                let takes = !self.has_device || !self.rng.one_in(3);
                self.engine.set(Policy::Enabled(takes));
            }
        }
    }
}

fn run(index: Kind, has_device: bool, seed: u64) {
    let mut kernel = Kernel::new(index, has_device, seed);
    (0..4000).for_each(|_| kernel.step());
    (0..PAGES as usize)
        .filter(|slot| kernel.slots[*slot].is_some())
        .for_each(|it| kernel.check(it));
    let stats = kernel.engine.zswap.stats();
    assert!(stats.swept > 100, "{stats:?}");
    assert!(!has_device || stats.written_back_pages > 0 && stats.through > 0, "{stats:?}");
    while let Some(slot) = kernel.slot(true) {
        kernel.free(slot);
    }
    kernel.sweep();
    kernel.engine.validate();
    let stats = kernel.engine.zswap.stats();
    assert_eq!([stats.stored_pages, stats.pool_bytes, stats.on_device], [0; 3], "{stats:?}");
    assert_eq!(kernel.engine.swapoff(0), Ok(()), "nothing is left");
}

#[test]
fn a_sweep_drops_all_that_was_freed_and_nothing_else() {
    let mut rng = Rng::new(seed("a_sweep_drops_all_that_was_freed_and_nothing_else"));
    for &index in INDEXES {
        for has_device in [false, true, false, true] {
            run(index, has_device, rng.next_u64());
        }
    }
}

#[test]
fn bits_that_cannot_be_of_the_area_are_refused() {
    let kernel = Kernel::new(INDEXES[0], false, 1);
    let zswap = &kernel.engine.zswap;
    let refused = |area, words: usize| {
        let bits: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        zswap.hear_frees(swap_type(area), Arc::new(bits)).unwrap_err()
    };
    assert_eq!(refused(1, 1).message, "swap area 1 is not on");
    assert_eq!(refused(0, 1).message, "frees of swap area 0 are heard already");
    let few = refused(0, 0).message;
    assert_eq!(few, format!("swap area 0 has {PAGES} pages, and 0 bits say which are freed"));
    assert_eq!(zswap.sweep(CPU), 0);
}
