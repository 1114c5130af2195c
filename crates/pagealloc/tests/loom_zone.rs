//! A 2 MiB block of the design `bitfield` under loom: frames are given to it without a lock while
//! it is reserved, taken from, put back on its shelf, or taken as a whole.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-pagealloc --test loom_zone --release`, in
//! a target directory of its own. Without `--cfg loom` this file is empty. The zone itself is not
//! there with it, as its tables are not made for loom; the block is compiled into this test.
//!
//! Beside it a copy with one flaw at a time, which loom must refuse, and which passes without one.
#![cfg(loom)]

#[allow(dead_code)]
#[path = "../src/zone/block.rs"]
mod block;
#[allow(dead_code)]
#[path = "../src/zone/runs.rs"]
mod runs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use block::{Block, Shelf, State};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use sync::Mutex;

/// Frames of which the threads make use: the lowest. The others are free all the time.
const FEW: u32 = 2;
/// The frames of a whole block.
const ALL: u32 = 512;

/// What a thread can do to a block.
trait Subject: Send + Sync + 'static {
    /// A block of which these of the first word, and all others, are free; or no others.
    fn new(first: u64, others: bool) -> Self;
    /// Gives frame `n` back; tells whether it is to be filed.
    fn give(&self, n: u32) -> bool;
    /// Takes up to two single frames.
    fn pick(&self) -> Vec<u32>;
    /// Takes a frame under the zone's lock, and tells the shelf.
    fn take_shelved(&self) -> Option<(u32, Shelf)>;
    /// Takes all frames under the zone's lock, if all can be seen to be there.
    fn take_whole(&self) -> Option<Shelf>;
    fn reserve(&self);
    fn unreserve(&self) -> Shelf;
    fn shelf(&self) -> Shelf;
    /// Free frames by the count, and by the bits.
    fn counts(&self) -> (u32, u32);
}

impl Subject for Block {
    fn new(first: u64, others: bool) -> Block {
        let block = Block::default();
        let rest = if others { !0 << FEW } else { 0 };
        let words: [u64; 8] = std::array::from_fn(|n| match n {
            0 => first | rest,
            _ if others => !0,
            _ => 0,
        });
        block.add(runs::count(&words));
        for (word, mask) in words.into_iter().enumerate().filter(|(_, mask)| *mask != 0) {
            block.set(word, mask);
        }
        block
    }
    fn give(&self, n: u32) -> bool {
        let state = self.add(1);
        assert_eq!(self.set(0, 1 << n), 0, "frame {n} was free already");
        state.is_to_be_filed(1)
    }
    fn pick(&self) -> Vec<u32> {
        let mut into = [0; 2];
        let count = Block::pick(self, 0, &mut into);
        into[..count].to_vec()
    }
    fn take_shelved(&self) -> Option<(u32, Shelf)> {
        Block::take_shelved(self, 0).map(|(at, state)| (at, state.shelf()))
    }
    fn take_whole(&self) -> Option<Shelf> {
        Block::take_shelved(self, 9).map(|(_, state)| state.shelf())
    }
    fn reserve(&self) {
        self.change(State::reserved);
    }
    fn unreserve(&self) -> Shelf {
        self.change(State::unreserved).shelf()
    }
    fn shelf(&self) -> Shelf {
        self.state().shelf()
    }
    fn counts(&self) -> (u32, u32) {
        (self.state().count(), runs::count(&self.words()))
    }
}

/// A block on its shelf, and what is written in its frames.
struct World<S> {
    block: S,
    shelf: Mutex<Shelf>,
    frames: [UnsafeCell<u32>; FEW as usize],
}

// SAFETY: frames are touched by who owns them, which is what loom looks at here.
unsafe impl<S: Send> Send for World<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for World<S> {}

impl<S: Subject> World<S> {
    fn new(first: u64, others: bool) -> Arc<World<S>> {
        let block = S::new(first, others);
        let shelf = Mutex::new(block.shelf());
        Arc::new(World { block, shelf, frames: std::array::from_fn(|_| UnsafeCell::new(0)) })
    }

    /// Writes to a frame that's ours.
    fn write(&self, n: u32) {
        if let Some(frame) = self.frames.get(n as usize) {
            // SAFETY: loom finds out if somebody else has it.
            frame.with_mut(|value| unsafe { *value += 1 });
        }
    }

    /// As who had the frame lent.
    fn give(&self, n: u32) {
        self.write(n);
        if self.block.give(n) {
            let mut shelf = self.shelf.lock();
            *shelf = self.block.shelf();
        }
    }

    /// As a CPU that refills its stock, and has used up the block.
    fn pick_and_let_go(&self) -> Vec<u32> {
        let taken = self.block.pick();
        taken.iter().for_each(|n| self.write(*n));
        let mut shelf = self.shelf.lock();
        *shelf = self.block.unreserve();
        taken
    }

    /// As a CPU that looks for a block.
    fn reserve(&self) -> bool {
        let mut shelf = self.shelf.lock();
        let found = *shelf != Shelf::Off;
        if found {
            *shelf = Shelf::Off;
            self.block.reserve();
        }
        found
    }

    /// Everything is as it should be when nobody is at it.
    fn check(&self, taken: u32) {
        let (count, bits) = self.block.counts();
        assert_eq!(count, bits, "free frames: the count, the bits");
        assert_eq!(*self.shelf.lock(), self.block.shelf(), "the block is not on its shelf");
        assert!(count + taken <= ALL, "{count} free and {taken} taken");
    }
}

fn model(world: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(world);
}

/// A block that a CPU has used up is let go while two others give frames to it.
fn letting_go<S: Subject>() {
    let world = World::<S>::new(0, false);
    world.block.reserve();
    let (one, two) = (world.clone(), world.clone());
    let one = thread::spawn(move || one.give(0));
    let two = thread::spawn(move || two.give(1));
    let taken = world.pick_and_let_go().len() as u32;
    one.join().unwrap();
    two.join().unwrap();
    world.check(taken);
    assert_eq!(world.block.counts().0, 2 - taken);
}

/// The last frames are taken under the lock while one comes back.
fn taking_shelved<S: Subject>() {
    let world = World::<S>::new(0b10, false);
    let giver = world.clone();
    let giver = thread::spawn(move || giver.give(0));
    let mut taken = 0;
    for _ in 0..2 {
        let mut shelf = world.shelf.lock();
        if *shelf != Shelf::Off
            && let Some((n, now)) = world.block.take_shelved()
        {
            *shelf = now;
            drop(shelf);
            world.write(n);
            taken += 1;
        }
    }
    giver.join().unwrap();
    world.check(taken);
    assert_eq!(world.block.counts().0, 2 - taken);
}

/// Two give the last two frames, and somebody wants the whole block.
fn taking_whole<S: Subject>() {
    let world = World::<S>::new(0, true);
    let (one, two) = (world.clone(), world.clone());
    let one = thread::spawn(move || one.give(0));
    let two = thread::spawn(move || two.give(1));
    let mut shelf = world.shelf.lock();
    let mut taken = 0;
    if matches!(*shelf, Shelf::Free { .. })
        && let Some(now) = world.block.take_whole()
    {
        *shelf = now;
        taken = ALL;
        (0..FEW).for_each(|n| world.write(n));
    }
    drop(shelf);
    one.join().unwrap();
    two.join().unwrap();
    world.check(taken);
    assert_eq!(world.block.counts().0, ALL - taken);
}

/// Two want to reserve the block, one of them gives a frame to it before.
fn reserving<S: Subject>() {
    let world = World::<S>::new(0b10, false);
    let other = world.clone();
    let other = thread::spawn(move || {
        other.give(0);
        if other.reserve() { other.pick_and_let_go().len() as u32 } else { 0 }
    });
    let taken = if world.reserve() { world.pick_and_let_go().len() as u32 } else { 0 };
    let taken = taken + other.join().unwrap();
    world.check(taken);
    assert_eq!(world.block.counts().0 + taken, 2);
}

#[test]
fn a_used_up_block_is_let_go() {
    model(letting_go::<Block>);
}

#[test]
fn the_last_frames_are_taken_from_the_shelf() {
    model(taking_shelved::<Block>);
}

#[test]
fn a_block_is_taken_as_a_whole_or_not_at_all() {
    model(taking_whole::<Block>);
}

#[test]
fn one_has_a_block_at_a_time() {
    model(reserving::<Block>);
}

const NONE: u32 = 0;
const BITS_BEFORE_COUNT: u32 = 1;
const RELAXED_BITS: u32 = 2;
const UNRESERVE_IN_TWO_STEPS: u32 = 3;
const WHOLE_BY_THE_COUNT: u32 = 4;

/// A block of one word that counts as a whole when its two frames are free, with one flaw.
struct Flawed<const FLAW: u32> {
    free: AtomicU64,
    state: AtomicU32,
    /// Frames that are always free, of which there are no bits.
    others: u32,
}

const HELD: u32 = 1 << 20;

impl<const FLAW: u32> Flawed<FLAW> {
    fn shelf_of(&self, state: u32) -> Shelf {
        match state & !HELD {
            _ if state & HELD != 0 => Shelf::Off,
            0 => Shelf::Off,
            ALL => Shelf::Free { idle: false },
            _ => Shelf::Partial,
        }
    }
    fn take(&self, mask: u64) -> u64 {
        self.free.fetch_and(!mask, Ordering::Acquire) & mask
    }
    fn subtract(&self, frames: u32) -> u32 {
        let before = self.state.fetch_sub(frames, Ordering::Relaxed);
        assert!(before & !HELD >= frames, "the count is negative");
        before - frames
    }
}

impl<const FLAW: u32> Subject for Flawed<FLAW> {
    fn new(first: u64, others: bool) -> Self {
        let others = if others { ALL - FEW } else { 0 };
        let count = first.count_ones() + others;
        Flawed { free: AtomicU64::new(first), state: AtomicU32::new(count), others }
    }
    fn give(&self, n: u32) -> bool {
        let order = if FLAW == RELAXED_BITS { Ordering::Relaxed } else { Ordering::Release };
        let set = || self.free.fetch_or(1 << n, order);
        let add = || self.state.fetch_add(1, Ordering::Relaxed);
        let before = if FLAW == BITS_BEFORE_COUNT {
            set();
            add()
        } else {
            let before = add();
            set();
            before
        };
        let moved = before & !HELD == 0 || before & !HELD == ALL - 1;
        before & HELD == 0 && moved
    }
    fn pick(&self) -> Vec<u32> {
        let taken = self.take(self.free.load(Ordering::Relaxed));
        self.subtract(taken.count_ones());
        (0..FEW).filter(|n| taken >> n & 1 != 0).collect()
    }
    fn take_shelved(&self) -> Option<(u32, Shelf)> {
        let seen = self.free.load(Ordering::Relaxed);
        if seen == 0 {
            return None;
        }
        self.take(1 << seen.trailing_zeros());
        let state = self.subtract(1);
        Some((seen.trailing_zeros(), self.shelf_of(state)))
    }
    fn take_whole(&self) -> Option<Shelf> {
        let whole = FLAW == WHOLE_BY_THE_COUNT || self.free.load(Ordering::Relaxed) == 0b11;
        if !whole {
            return None;
        }
        self.take(0b11);
        let state = self.subtract(ALL);
        Some(self.shelf_of(state))
    }
    fn reserve(&self) {
        self.state.fetch_or(HELD, Ordering::Relaxed);
    }
    fn unreserve(&self) -> Shelf {
        if FLAW == UNRESERVE_IN_TWO_STEPS {
            let state = self.state.load(Ordering::Relaxed) & !HELD;
            self.state.fetch_and(!HELD, Ordering::Relaxed);
            return self.shelf_of(state);
        }
        self.shelf_of(self.state.fetch_and(!HELD, Ordering::Relaxed) & !HELD)
    }
    fn shelf(&self) -> Shelf {
        self.shelf_of(self.state.load(Ordering::Relaxed))
    }
    fn counts(&self) -> (u32, u32) {
        let count = self.state.load(Ordering::Relaxed) & !HELD;
        let bits = self.free.load(Ordering::Relaxed).count_ones();
        // What was taken as a whole has no others.
        (count, if count < self.others { bits } else { bits + self.others })
    }
}

fn every_world<S: Subject>() -> [fn(); 4] {
    [letting_go::<S>, taking_shelved::<S>, taking_whole::<S>, reserving::<S>]
}

#[test]
fn the_copy_passes_without_a_flaw() {
    every_world::<Flawed<NONE>>().into_iter().for_each(model);
}

/// Some world refuses it.
fn is_refused<S: Subject>() {
    let refused = every_world::<S>()
        .into_iter()
        .any(|world| catch_unwind(AssertUnwindSafe(|| model(world))).is_err());
    assert!(refused, "no world has found the flaw");
}

#[test]
fn bits_that_are_set_before_they_are_counted_are_refused() {
    is_refused::<Flawed<BITS_BEFORE_COUNT>>();
}

#[test]
fn relaxed_bits_are_refused() {
    is_refused::<Flawed<RELAXED_BITS>>();
}

#[test]
fn unreserving_in_two_steps_is_refused() {
    is_refused::<Flawed<UNRESERVE_IN_TWO_STEPS>>();
}

#[test]
fn taking_a_whole_block_by_its_count_is_refused() {
    is_refused::<Flawed<WHOLE_BY_THE_COUNT>>();
}
