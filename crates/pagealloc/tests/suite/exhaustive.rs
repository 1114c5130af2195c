//! Every sequence of calls on a few frames, as deep as there is time for.
//!
//! The search goes breadth first. A state is what can be told of each frame: allocated, and with what
//! order; free, and in what block; or in the cache of a CPU, which is that of the call that put it
//! there. States that differ only in which CPU is which are one. Of all sequences that come to a
//! state the first is followed on, so that the search goes much deeper than the number of its calls
//! would let it; where it ends by itself, there is no state that was not seen. What order frames
//! have within a cache or a list is not part of the state: the random checks are for that.
//!
//! A zone cannot be copied, so each sequence is played from a zone at rest. That is a check of its
//! own: from each state it must come to rest again, with all that was free merged.

use std::collections::HashSet;

use pagealloc::ZoneOptions;
use units::Cpu;

use crate::free::Free;
use crate::model::{Borrower, Make};

/// Calls that are tried in each scenario, if `RAMPACK_EVENTS` does not say otherwise.
const CALLS: usize = if cfg!(miri) {
    100
} else if cfg!(asan) {
    1_000
} else {
    40_000
};

/// A small zone.
struct Scenario {
    frames: u32,
    /// Of these those that the zone has.
    orders: &'static [u8],
    /// All frames are allocated one by one before the first call.
    full: bool,
}

const SCENARIOS: [Scenario; 6] = [
    Scenario { frames: 4, orders: &[0, 1, 2], full: false },
    Scenario { frames: 8, orders: &[0, 1, 3], full: false },
    Scenario { frames: 13, orders: &[0, 2], full: false },
    Scenario { frames: 64, orders: &[0, 2, 4, 6], full: false },
    Scenario { frames: 8, orders: &[0, 2], full: true },
    Scenario { frames: 64, orders: &[0, 1, 6], full: true },
];

#[derive(Clone, Copy, Debug)]
enum Call {
    Borrow {
        cpu: u32,
        order: u8,
    },
    /// The block held that has so many below it.
    GiveBack {
        cpu: u32,
        nth: usize,
    },
    Drain,
}

/// What is known of a frame in a state. The lowest four bits are the order of its block.
mod known {
    pub const ALLOCATED: u8 = 0x10;
    pub const FREE: u8 = 0x20;
    pub const CACHED: [u8; 2] = [0x30, 0x40];
    /// It is not the first of its block.
    pub const WITHIN: u8 = 0x0f;
}

type State = Vec<u8>;

/// A state, and how it was come by.
struct Node {
    before: usize,
    call: Call,
    depth: usize,
    state: State,
}

/// The search on zones made by `make`.
pub fn small_scenarios(make: Make) {
    for scenario in &SCENARIOS {
        search(make, scenario, testkit::asked("RAMPACK_EVENTS", CALLS));
    }
}

/// Which sequence it was, if the check of it ends with a panic.
struct Told<'a>(&'a [Call]);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("after these calls on a zone at rest: {:?}", self.0);
        }
    }
}

fn search(make: Make, scenario: &Scenario, most: usize) {
    let options = ZoneOptions { batch: 2, cache_high: 3, ..ZoneOptions::new(2, scenario.frames) };
    let mut borrower = Borrower::new(make, options);
    let largest = borrower.zone.largest();
    let mut orders = scenario.orders.to_vec();
    orders.retain(|order| *order <= largest);
    // From here on all its memory is there.
    assert!(borrower.borrow(0, 0));
    borrower.rest(|_| 0);

    begin(&mut borrower, scenario);
    let state = observed(&borrower, &[], 0);
    borrower.rest(|_| 0);
    let mut seen = HashSet::from([canonical(&state)]);
    let mut nodes = vec![Node { before: 0, call: Call::Drain, depth: 0, state }];
    let (mut next, mut tried, mut cpu) = (0, 0, 0);
    while next < nodes.len() && tried < most {
        let mut path = Vec::new();
        let mut at = next;
        while nodes[at].depth > 0 {
            path.push(nodes[at].call);
            at = nodes[at].before;
        }
        path.reverse();
        for call in calls(&orders, &nodes[next].state) {
            path.push(call);
            let told = Told(&path);
            begin(&mut borrower, scenario);
            path.iter().for_each(|call| make_call(&mut borrower, *call));
            let used = match call {
                Call::Borrow { cpu, .. } | Call::GiveBack { cpu, .. } => cpu,
                Call::Drain => 0,
            };
            let state = observed(&borrower, &nodes[next].state, used);
            if seen.insert(canonical(&state)) {
                borrower.check();
                let depth = nodes[next].depth + 1;
                nodes.push(Node { before: next, call, depth, state });
            }
            // Not always by the same CPU.
            cpu ^= 1;
            borrower.rest(|n| (n as u32 ^ cpu) % 2);
            drop(told);
            path.pop();
            tried += 1;
        }
        next += 1;
    }
    let depth = nodes.last().map_or(0, |node| node.depth);
    let whole = if next == nodes.len() { "all there are" } else { "not all" };
    let (frames, full) = (scenario.frames, scenario.full);
    println!(
        "{frames} frames, orders {orders:?}, {}: {tried} calls, {} states down to depth {depth}, \
         {whole}",
        if full { "from full" } else { "from empty" },
        nodes.len()
    );
    assert!(nodes.len() > 10, "nothing happens in this scenario");
}

fn begin(borrower: &mut Borrower, scenario: &Scenario) {
    while scenario.full && borrower.borrow(0, 0) {}
}

fn make_call(borrower: &mut Borrower, call: Call) {
    match call {
        Call::Borrow { cpu, order } => _ = borrower.borrow(cpu, order),
        Call::GiveBack { cpu, nth } => {
            let mut held: Vec<usize> = (0..borrower.held.len()).collect();
            held.sort_unstable_by_key(|index| borrower.held[*index].frame);
            // A zone may not do the same again, and allocate fewer.
            if let Some(index) = held.get(nth) {
                borrower.give_back(cpu, *index);
            }
        }
        Call::Drain => borrower.zone.drain(),
    }
}

/// The calls that can be made in a state.
fn calls(orders: &[u8], state: &State) -> Vec<Call> {
    let is_first =
        |known: &&u8| **known & 0xf0 == known::ALLOCATED && **known & 0xf != known::WITHIN;
    let held = state.iter().filter(is_first).count();
    let mut calls = vec![Call::Drain];
    for cpu in 0..2 {
        calls.extend(orders.iter().map(|order| Call::Borrow { cpu, order: *order }));
        calls.extend((0..held).map(|nth| Call::GiveBack { cpu, nth }));
    }
    calls
}

/// The state after a call on `cpu` in the state `before`.
fn observed(borrower: &Borrower, before: &[u8], cpu: u32) -> State {
    let free = Free::of(&*borrower.zone, borrower.allocated());
    let mut state = vec![0; free.frames.len()];
    let mut put = |first: u32, order: u8, kind: u8| {
        let first = first as usize;
        state[first..first + (1 << order)].fill(kind | known::WITHIN);
        state[first] = kind | order;
    };
    free.blocks.iter().for_each(|(first, order)| put(*first, *order, known::FREE));
    borrower.held.iter().for_each(|held| put(held.frame.0, held.order, known::ALLOCATED));
    for (n, known) in state.iter_mut().enumerate().filter(|(_, known)| **known == 0) {
        let was = before.get(n).filter(|was| known::CACHED.contains(was));
        *known = was.copied().unwrap_or(known::CACHED[Cpu(cpu).index(2)]);
    }
    state
}

/// The same for two states that differ only in which CPU is which.
fn canonical(state: &State) -> State {
    let other = |known: &u8| match *known {
        known if known == known::CACHED[0] => known::CACHED[1],
        known if known == known::CACHED[1] => known::CACHED[0],
        known => known,
    };
    let mirrored: State = state.iter().map(other).collect();
    mirrored.min(state.clone())
}
