//! A 2 MiB pageblock of the design `bitfield` under loom: frames are given to it without a lock while
//! it is reserved, taken from, put back on its free list, or taken as a whole.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-pagealloc --test loom_zone --release`, in
//! a target directory of its own. Without `--cfg loom` this file is empty. The block is private to
//! the zone, so its file, as it is shipped, is compiled into this test once more.
//!
//! Beside it the same pageblock whose steps are taken in another order, and a copy with a weaker
//! ordering, which loom must refuse; the copy passes without its flaw.
#![cfg(loom)]

#[allow(dead_code)]
#[path = "../src/zone/pageblock.rs"]
mod pageblock;
#[allow(dead_code)]
#[path = "../src/zone/runs.rs"]
mod runs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use pageblock::{FreeList, Pageblock, State};
use sync::Mutex;

/// Frames of which the threads make use: the lowest. The others are free all the time.
const FEW: u32 = 2;
/// The frames of a whole pageblock.
const ALL: u32 = 512;

/// What a thread can do to a pageblock.
trait Subject: Send + Sync + 'static {
    /// A block of which these of the first word, and all others, are free; or no others.
    fn new(first: u64, others: bool) -> Self;
    /// Gives frame `n` back; tells whether it is to be filed.
    fn give(&self, n: u32) -> bool;
    /// Takes up to two single frames.
    fn pick(&self) -> Vec<u32>;
    /// Takes a frame under the zone's lock, and tells the free list.
    fn take_listed(&self) -> Option<(u32, FreeList)>;
    /// Takes all frames under the zone's lock, if all can be seen to be there.
    fn take_whole(&self) -> Option<FreeList>;
    fn reserve(&self);
    fn unreserve(&self) -> FreeList;
    fn free_list(&self) -> FreeList;
    /// Free frames by the count, and by the bits.
    fn counts(&self) -> (u32, u32);
}

impl Subject for Pageblock {
    fn new(first: u64, others: bool) -> Pageblock {
        let block = Pageblock::default();
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
        let count = Pageblock::pick(self, 0, &mut into);
        assert!(self.state().count() <= ALL, "the count is negative");
        into[..count].to_vec()
    }
    fn take_listed(&self) -> Option<(u32, FreeList)> {
        Pageblock::take_lowest(self).map(|(at, state)| (at, state.free_list()))
    }
    fn take_whole(&self) -> Option<FreeList> {
        Pageblock::take_whole(self).map(State::free_list)
    }
    fn reserve(&self) {
        self.change(State::reserved);
    }
    fn unreserve(&self) -> FreeList {
        self.change(State::unreserved).free_list()
    }
    fn free_list(&self) -> FreeList {
        self.state().free_list()
    }
    fn counts(&self) -> (u32, u32) {
        (self.state().count(), runs::count(&self.words()))
    }
}

/// A block on its free list, and what is written in its frames.
struct World<S> {
    block: S,
    free_list: Mutex<FreeList>,
    frames: [UnsafeCell<u32>; FEW as usize],
}

// SAFETY: frames are touched by who owns them, which is what loom looks at here.
unsafe impl<S: Send> Send for World<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for World<S> {}

impl<S: Subject> World<S> {
    fn new(first: u64, others: bool) -> Arc<World<S>> {
        let block = S::new(first, others);
        let free_list = Mutex::new(block.free_list());
        Arc::new(World { block, free_list, frames: std::array::from_fn(|_| UnsafeCell::new(0)) })
    }

    /// Writes to a frame that's ours.
    fn write(&self, n: u32) {
        if let Some(frame) = self.frames.get(n as usize) {
            // SAFETY: loom finds out if somebody else has it.
            frame.with_mut(|value| unsafe { *value += 1 });
        }
    }

    /// As who had the frame allocated.
    fn give(&self, n: u32) {
        self.write(n);
        if self.block.give(n) {
            let mut free_list = self.free_list.lock();
            *free_list = self.block.free_list();
        }
    }

    /// As a CPU that refills its pcp list, and has used up the pageblock.
    fn pick_and_let_go(&self) -> Vec<u32> {
        let taken = self.block.pick();
        taken.iter().for_each(|n| self.write(*n));
        let mut free_list = self.free_list.lock();
        *free_list = self.block.unreserve();
        taken
    }

    /// As a CPU that looks for a pageblock.
    fn reserve(&self) -> bool {
        let mut free_list = self.free_list.lock();
        let found = *free_list != FreeList::Off;
        if found {
            *free_list = FreeList::Off;
            self.block.reserve();
        }
        found
    }

    /// Everything is as it should be when nobody is at it.
    fn check(&self, taken: u32) {
        let (count, bits) = self.block.counts();
        assert_eq!(count, bits, "free frames: the count, the bits");
        assert_eq!(
            *self.free_list.lock(),
            self.block.free_list(),
            "the pageblock is not on its free list"
        );
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
fn taking_listed<S: Subject>() {
    let world = World::<S>::new(0b10, false);
    let giver = world.clone();
    let giver = thread::spawn(move || giver.give(0));
    let mut taken = 0;
    for _ in 0..2 {
        let mut free_list = world.free_list.lock();
        if *free_list != FreeList::Off
            && let Some((n, now)) = world.block.take_listed()
        {
            *free_list = now;
            drop(free_list);
            world.write(n);
            taken += 1;
        }
    }
    giver.join().unwrap();
    world.check(taken);
    assert_eq!(world.block.counts().0, 2 - taken);
}

/// Two give the last two frames, and somebody wants the whole pageblock.
fn taking_whole<S: Subject>() {
    let world = World::<S>::new(0, true);
    let (one, two) = (world.clone(), world.clone());
    let one = thread::spawn(move || one.give(0));
    let two = thread::spawn(move || two.give(1));
    let mut free_list = world.free_list.lock();
    let mut taken = 0;
    if matches!(*free_list, FreeList::Free { .. })
        && let Some(now) = world.block.take_whole()
    {
        *free_list = now;
        taken = ALL;
        (0..FEW).for_each(|n| world.write(n));
    }
    drop(free_list);
    one.join().unwrap();
    two.join().unwrap();
    world.check(taken);
    assert_eq!(world.block.counts().0, ALL - taken);
}

/// Two want to reserve the pageblock, one of them gives a frame to it before.
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
    model(letting_go::<Pageblock>);
}

#[test]
fn the_last_frames_are_taken_from_the_free_list() {
    model(taking_listed::<Pageblock>);
}

#[test]
fn a_block_is_taken_as_a_whole_or_not_at_all() {
    model(taking_whole::<Pageblock>);
}

#[test]
fn one_has_a_block_at_a_time() {
    model(reserving::<Pageblock>);
}

const BITS_BEFORE_COUNT: u32 = 1;
const UNRESERVE_IN_TWO_STEPS: u32 = 2;
const WHOLE_BY_THE_COUNT: u32 = 3;

/// The block, with its own steps in another order.
struct Disordered<const FLAW: u32>(Pageblock);

impl<const FLAW: u32> Subject for Disordered<FLAW> {
    fn new(first: u64, others: bool) -> Self {
        Disordered(Subject::new(first, others))
    }
    fn give(&self, n: u32) -> bool {
        if FLAW == BITS_BEFORE_COUNT {
            self.0.set(0, 1 << n);
            return self.0.add(1).is_to_be_filed(1);
        }
        self.0.give(n)
    }
    fn pick(&self) -> Vec<u32> {
        Subject::pick(&self.0)
    }
    fn take_listed(&self) -> Option<(u32, FreeList)> {
        Subject::take_listed(&self.0)
    }
    fn take_whole(&self) -> Option<FreeList> {
        if FLAW == WHOLE_BY_THE_COUNT {
            let counted = self.0.state().count() == ALL;
            return counted.then(|| {
                self.0.take_out();
                self.0.change(|state| state.taken(ALL)).free_list()
            });
        }
        Subject::take_whole(&self.0)
    }
    fn reserve(&self) {
        self.0.reserve();
    }
    fn unreserve(&self) -> FreeList {
        if FLAW == UNRESERVE_IN_TWO_STEPS {
            let free_list = self.0.state().unreserved().free_list();
            self.0.change(State::unreserved);
            return free_list;
        }
        self.0.unreserve()
    }
    fn free_list(&self) -> FreeList {
        self.0.free_list()
    }
    fn counts(&self) -> (u32, u32) {
        self.0.counts()
    }
}

/// Two frames that are given and picked: a copy of what [`Pageblock`] does for them, whose bits are set
/// with an ordering that may be too weak.
struct Copy<const RELAXED: bool> {
    free: AtomicU64,
    frames: [UnsafeCell<u32>; FEW as usize],
}

// SAFETY: frames are touched by who owns them, which is what loom looks at here.
unsafe impl<const RELAXED: bool> Send for Copy<RELAXED> {}
// SAFETY: as above.
unsafe impl<const RELAXED: bool> Sync for Copy<RELAXED> {}

impl<const RELAXED: bool> Copy<RELAXED> {
    fn write(&self, n: u32) {
        // SAFETY: loom finds out if somebody else has it.
        self.frames[n as usize].with_mut(|value| unsafe { *value += 1 });
    }

    fn give(&self, n: u32) {
        self.write(n);
        let order = if RELAXED { Ordering::Relaxed } else { Ordering::Release };
        self.free.fetch_or(1 << n, order);
    }

    fn pick(&self) {
        let seen = self.free.load(Ordering::Relaxed);
        let taken = self.free.fetch_and(!seen, Ordering::Acquire) & seen;
        (0..FEW).filter(|n| taken >> n & 1 != 0).for_each(|n| self.write(n));
    }
}

fn given_and_picked<const RELAXED: bool>() {
    let frames = std::array::from_fn(|_| UnsafeCell::new(0));
    let copy = Arc::new(Copy::<RELAXED> { free: AtomicU64::new(0), frames });
    let (one, two) = (copy.clone(), copy.clone());
    let one = thread::spawn(move || one.give(0));
    let two = thread::spawn(move || two.give(1));
    copy.pick();
    one.join().unwrap();
    two.join().unwrap();
}

#[test]
fn the_copy_passes_without_its_flaw() {
    model(given_and_picked::<false>);
}

/// Some world refuses it, for one of these reasons.
fn is_refused(worlds: &[fn()], reasons: &[&str]) {
    let checked = worlds.iter().map(|world| catch_unwind(AssertUnwindSafe(|| model(*world))));
    let refusal = checked.filter_map(Result::err).next().expect("no world has found the flaw");
    let said = refusal
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| refusal.downcast_ref::<&str>().copied())
        .unwrap_or("");
    assert!(reasons.iter().any(|reason| said.contains(reason)), "refused, but for this: {said}");
}

fn every_scenario<S: Subject>() -> [fn(); 4] {
    [letting_go::<S>, taking_listed::<S>, taking_whole::<S>, reserving::<S>]
}

#[test]
fn bits_that_are_set_before_they_are_counted_are_refused() {
    let worlds = every_scenario::<Disordered<BITS_BEFORE_COUNT>>();
    is_refused(&worlds, &["the count is negative", "the pageblock is not on its free list"]);
}

#[test]
fn relaxed_bits_are_refused() {
    is_refused(&[given_and_picked::<true>], &["Causality violation"]);
}

#[test]
fn unreserving_in_two_steps_is_refused() {
    let worlds = every_scenario::<Disordered<UNRESERVE_IN_TWO_STEPS>>();
    is_refused(&worlds, &["the pageblock is not on its free list"]);
}

#[test]
fn taking_a_whole_block_by_its_count_is_refused() {
    let worlds = every_scenario::<Disordered<WHOLE_BY_THE_COUNT>>();
    is_refused(&worlds, &["free frames: the count, the bits", "Causality violation"]);
}
