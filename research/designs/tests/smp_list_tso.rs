//! The lists that threads change side by side, on a processor whose stores wait in a buffer (x86):
//! every order of a few calls, exhaustively.
//!
//! The protocol of `smp_list` is restated as a machine of single steps; a step is one load, one
//! store, one exchange, or one store leaving its buffer. An exchange needs an empty buffer, as a
//! `lock` instruction does, and so does a fence. A node that was taken out for good is poisoned,
//! and whoever touches it afterwards has failed. `loom_smp_list.rs` checks the code itself, but
//! knows fences only as it understands them.
#![cfg(not(loom))]

use std::collections::HashSet;

const NIL: i8 = -1;
const POISON: i8 = -2;
const NEXT: usize = 0;
const PREV: usize = 1;
const HEAD: i8 = 0;
const MOST: usize = 5;

/// What a thread does.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Takes a node out for good.
    Del(i8),
    /// Takes a node out that will be put in again.
    Borrow(i8),
    /// Takes a node out as soon as it is published.
    DelPublished(i8),
    /// Puts a chain in.
    Splice(&'static [i8]),
    /// Publishes each node of a chain, reading its link first.
    Publish(&'static [i8]),
    /// The same, but reads the link of a node that is published already.
    PublishTooEarly(&'static [i8]),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Thread {
    act: usize,
    step: u8,
    succ: i8,
    pred: i8,
    now: i8,
    at: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    links: [[i8; 2]; MOST],
    spent: u8,
    published: u8,
    threads: [Thread; 3],
    /// Stores on their way, by thread: node, link, value.
    buffers: [Vec<(i8, usize, i8)>; 3],
}

/// What is wrong with the machine.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Flaw {
    None,
    NotWhenMoved,
    NotWhenTold,
}

struct Machine {
    program: &'static [&'static [Act]],
    /// Whether stores wait in buffers; otherwise everybody sees them at once.
    buffered: bool,
    flaw: Flaw,
}

type Outcome<T> = Result<T, String>;

impl State {
    fn touch(&self, node: i8) -> Outcome<usize> {
        match usize::try_from(node) {
            Err(_) => Err(format!("somebody follows the link {node}")),
            Ok(index) if self.spent >> index & 1 != 0 => Err(format!("node {node} is spent")),
            Ok(index) => Ok(index),
        }
    }

    fn read(&self, thread: usize, node: i8, link: usize) -> Outcome<i8> {
        let index = self.touch(node)?;
        let mut stores = self.buffers[thread].iter().rev();
        let own = stores.find(|store| (store.0, store.1) == (node, link));
        Ok(own.map_or(self.links[index][link], |store| store.2))
    }

    /// A store reaches memory.
    fn commit(&mut self, (node, link, value): (i8, usize, i8)) {
        self.links[node as usize][link] = value;
        if (link, value) == (PREV, POISON) {
            self.spent |= 1 << node;
        }
    }
}

impl Machine {
    fn write(&self, state: &mut State, thread: usize, store: (i8, usize, i8)) -> Outcome<()> {
        state.touch(store.0)?;
        if self.buffered {
            state.buffers[thread].push(store)
        } else {
            state.commit(store)
        }
        Ok(())
    }

    /// Exchanges a link if it is `old`. Only with an empty buffer.
    fn exchange(&self, state: &mut State, at: (i8, usize), old: i8, new: i8) -> Outcome<bool> {
        let index = state.touch(at.0)?;
        let is_old = state.links[index][at.1] == old;
        if is_old {
            state.links[index][at.1] = new;
        }
        Ok(is_old)
    }

    /// One step of a thread; `None` if it cannot do any now.
    fn step(&self, before: &State, n: usize) -> Outcome<Option<State>> {
        let mut state = before.clone();
        let mut thread = before.threads[n];
        let Some(act) = self.program[n].get(thread.act) else { return Ok(None) };
        let went = match *act {
            Act::Del(node) => self.del(&mut state, n, &mut thread, node, true)?,
            Act::Borrow(node) => self.del(&mut state, n, &mut thread, node, false)?,
            Act::DelPublished(node) => {
                let may = thread.step > 0 || state.published >> node & 1 != 0;
                may && self.del(&mut state, n, &mut thread, node, true)?
            }
            Act::Splice(chain) => self.splice(&mut state, n, &mut thread, chain)?,
            Act::Publish(chain) => self.publish(&mut state, n, &mut thread, chain, true)?,
            Act::PublishTooEarly(chain) => {
                self.publish(&mut state, n, &mut thread, chain, false)?
            }
        };
        state.threads[n] = thread;
        Ok(went.then_some(state))
    }

    fn del(
        &self,
        state: &mut State,
        n: usize,
        thread: &mut Thread,
        node: i8,
        for_good: bool,
    ) -> Outcome<bool> {
        let is_empty = state.buffers[n].is_empty();
        thread.step = match thread.step {
            0 => {
                thread.succ = state.read(n, node, NEXT)?;
                1
            }
            1 => {
                thread.pred = state.read(n, node, PREV)?;
                if thread.succ == NIL { 0 } else { 2 }
            }
            2 if !is_empty => return Ok(false),
            2 if self.exchange(state, (node, NEXT), thread.succ, thread.pred)? => 3,
            2 => 0,
            3 => {
                let now = state.read(n, node, PREV)?;
                let moved = now != thread.pred;
                thread.pred = now;
                if moved { 4 } else { 6 }
            }
            4 => {
                self.write(state, n, (node, NEXT, thread.pred))?;
                5
            }
            5 if !is_empty && self.flaw != Flaw::NotWhenMoved => return Ok(false),
            5 => 3,
            6 => {
                if state.read(n, thread.pred, NEXT)? == node {
                    7
                } else {
                    3
                }
            }
            7 if !is_empty => return Ok(false),
            7 if self.exchange(state, (thread.pred, NEXT), node, NIL)? => 8,
            7 => 3,
            8 => {
                self.write(state, n, (thread.succ, PREV, thread.pred))?;
                9
            }
            9 if !is_empty && self.flaw != Flaw::NotWhenTold => return Ok(false),
            9 => 10,
            10 => {
                if state.read(n, thread.succ, NEXT)? == node {
                    10
                } else {
                    11
                }
            }
            11 => {
                self.write(state, n, (thread.pred, NEXT, thread.succ))?;
                12
            }
            12 => {
                self.write(state, n, (node, NEXT, POISON))?;
                13
            }
            _ => {
                if for_good {
                    self.write(state, n, (node, PREV, POISON))?;
                }
                *thread = Thread { act: thread.act + 1, ..Thread::default() };
                0
            }
        };
        Ok(true)
    }

    fn splice(
        &self,
        state: &mut State,
        n: usize,
        thread: &mut Thread,
        chain: &[i8],
    ) -> Outcome<bool> {
        let (first, last) = (chain[0], chain[chain.len() - 1]);
        let (step, store) = match thread.step {
            0 => {
                thread.succ = state.read(n, HEAD, NEXT)?;
                thread.step = if thread.succ == NIL { 0 } else { 1 };
                return Ok(true);
            }
            1 if !state.buffers[n].is_empty() => return Ok(false),
            1 => {
                let held = self.exchange(state, (HEAD, NEXT), thread.succ, NIL)?;
                thread.step = if held { 2 } else { 0 };
                return Ok(true);
            }
            2 => (3, (first, PREV, HEAD)),
            3 => (4, (last, NEXT, thread.succ)),
            4 => (5, (thread.succ, PREV, last)),
            _ => (6, (HEAD, NEXT, first)),
        };
        self.write(state, n, store)?;
        thread.step = step;
        if step == 6 {
            *thread = Thread { act: thread.act + 1, ..Thread::default() };
        }
        Ok(true)
    }

    fn publish(
        &self,
        state: &mut State,
        n: usize,
        thread: &mut Thread,
        chain: &[i8],
        reads_first: bool,
    ) -> Outcome<bool> {
        let node = chain[thread.at];
        let reads = (thread.step == 0) == reads_first;
        if reads {
            if let Some(behind) = chain.get(thread.at + 1) {
                let found = state.read(n, node, NEXT)?;
                if found != *behind {
                    return Err(format!("behind node {node} is {found} instead of {behind}"));
                }
            }
        } else {
            // It is a store like others; that it comes after them is all that counts.
            if !state.buffers[n].is_empty() {
                return Ok(false);
            }
            state.published |= 1 << node;
        }
        thread.step = 1 - thread.step;
        if thread.step == 0 {
            thread.at += 1;
        }
        if thread.at == chain.len() {
            *thread = Thread { act: thread.act + 1, ..Thread::default() };
        }
        Ok(true)
    }

    /// Every state that follows.
    fn after(&self, state: &State) -> Outcome<Vec<State>> {
        let mut states = Vec::new();
        for n in 0..self.program.len() {
            if !state.buffers[n].is_empty() {
                let mut flushed = state.clone();
                let store = flushed.buffers[n].remove(0);
                flushed.commit(store);
                states.push(flushed);
            }
            states.extend(self.step(state, n)?);
        }
        Ok(states)
    }

    fn is_done(&self, state: &State) -> bool {
        let is_through = |n: usize| state.threads[n].act == self.program[n].len();
        (0..self.program.len()).all(|n| is_through(n) && state.buffers[n].is_empty())
    }

    /// Goes through all states that can be reached from the list of `entries`; `left` must be in
    /// the list at each end. Gives back how many states there are.
    fn explore(&self, entries: &[i8], left: &[i8]) -> Outcome<usize> {
        let first = self.beginning(entries);
        let mut seen = HashSet::from([first.clone()]);
        let mut open = vec![first];
        let mut ends = 0;
        while let Some(state) = open.pop() {
            let after = self.after(&state)?;
            if self.is_done(&state) {
                ends += 1;
                let found = list(&state)?;
                if found != left {
                    return Err(format!("{found:?} is left"));
                }
            } else if after.is_empty() {
                return Err("nobody can go on".to_string());
            }
            open.extend(after.into_iter().filter(|state| seen.insert(state.clone())));
        }
        if ends == 0 { Err("there is no end".to_string()) } else { Ok(seen.len()) }
    }

    fn beginning(&self, entries: &[i8]) -> State {
        let mut links = [[POISON; 2]; MOST];
        let ring: Vec<i8> = [HEAD].iter().chain(entries).copied().collect();
        for (n, node) in ring.iter().enumerate() {
            links[*node as usize][NEXT] = ring[(n + 1) % ring.len()];
            links[*node as usize][PREV] = ring[(n + ring.len() - 1) % ring.len()];
        }
        // The links within chains that will be put in.
        for act in self.program.iter().copied().flatten() {
            let Act::Splice(chain) = act else { continue };
            for pair in chain.windows(2) {
                links[pair[0] as usize][NEXT] = pair[1];
                links[pair[1] as usize][PREV] = pair[0];
            }
        }
        let (threads, buffers) = Default::default();
        State { links, spent: 0, published: 0, threads, buffers }
    }
}

/// What is in the list, in ascending order.
fn list(state: &State) -> Outcome<Vec<i8>> {
    let (mut node, mut found) = (HEAD, Vec::new());
    loop {
        let next = state.links[node as usize][NEXT];
        if next < 0 || state.links[next as usize][PREV] != node || found.len() > MOST {
            return Err(format!("the list is broken behind {node}: {next}"));
        }
        if next == HEAD {
            found.sort_unstable();
            return Ok(found);
        }
        found.push(next);
        node = next;
    }
}

use Act::{Borrow, Del, DelPublished, Publish, PublishTooEarly, Splice};

type Scenario = (&'static [i8], &'static [&'static [Act]], &'static [i8]);

const TWO_NEIGHBOURS: Scenario = (&[1, 2, 3], &[&[Del(1)], &[Del(2)]], &[3]);
const PASSER_BY: Scenario = (&[1], &[&[Del(1)], &[Splice(&[2]), Del(2)]], &[]);

/// The list at first, what the threads do, what must be left.
const SCENARIOS: &[Scenario] = &[
    TWO_NEIGHBOURS,
    (&[1, 2, 3], &[&[Del(1)], &[Del(2)], &[Del(3)]], &[]),
    (&[1, 2], &[&[Del(1)], &[Splice(&[3])]], &[2, 3]),
    (&[1, 2], &[&[Del(1)], &[Del(2)], &[Splice(&[3])]], &[3]),
    (&[1], &[&[Splice(&[2])], &[Splice(&[3])], &[Del(1)]], &[2, 3]),
    (&[1, 2], &[&[Splice(&[3, 4])], &[Del(1)], &[Del(2)]], &[3, 4]),
    (&[1, 2, 3], &[&[Borrow(2), Splice(&[2])], &[Del(3)], &[Del(1)]], &[2]),
    PASSER_BY,
    (&[1], &[&[Splice(&[2, 3]), Publish(&[2, 3])], &[DelPublished(2)], &[DelPublished(3)]], &[1]),
];

fn explore(scenario: &Scenario, buffered: bool, flaw: Flaw) -> Outcome<usize> {
    let (entries, program, left) = *scenario;
    Machine { program, buffered, flaw }.explore(entries, left)
}

#[test]
fn every_order_of_every_scenario_ends_well() {
    for scenario in SCENARIOS {
        for buffered in [false, true] {
            let states = explore(scenario, buffered, Flaw::None);
            println!("{:?}, buffered {buffered}: {states:?} states", scenario.1);
            let states = states.unwrap_or_else(|fault| panic!("{:?}: {fault}", scenario.1));
            assert!(states > 30, "{:?}: only {states} states", scenario.1);
        }
    }
}

#[test]
fn a_missing_fence_is_found_where_stores_are_buffered() {
    for (flaw, scenario) in [
        (Flaw::NotWhenTold, TWO_NEIGHBOURS),
        (Flaw::NotWhenTold, PASSER_BY),
        (Flaw::NotWhenMoved, PASSER_BY),
    ] {
        let fault = explore(&scenario, true, flaw).expect_err("a fence is missing");
        assert!(fault.contains("spent") || fault.contains("link"), "{flaw:?}: {fault}");
        explore(&scenario, false, flaw).expect("without buffers a fence does nothing");
    }
}

#[test]
fn taking_one_out_twice_is_found() {
    let twice: Scenario = (&[1, 2], &[&[Del(1)], &[Del(1)]], &[2]);
    explore(&twice, false, Flaw::None).expect_err("two take out the same");
}

#[test]
fn publishing_before_the_link_is_read_is_found() {
    let early: Scenario =
        (&[1], &[&[Splice(&[2, 3]), PublishTooEarly(&[2, 3])], &[DelPublished(2)]], &[1, 3]);
    let fault = explore(&early, false, Flaw::None).expect_err("the link leads elsewhere");
    assert!(fault.contains("behind node 2") || fault.contains("spent"), "{fault}");
}
