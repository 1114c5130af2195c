//! The lists that threads change side by side, under loom: every order of a few calls, and every
//! value that a weakly ordered load may return.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-designs --test loom_smp_list
//! --release`, in a target directory of its own. Without `--cfg loom` this file is empty.
//!
//! A node that was taken out for good is *spent*: its links may be anything else's from then on.
//! Here each has a cell beside it, read by whoever reaches for its links and written when it is
//! spent, so loom reports everybody who still touches it then.
//!
//! Without one of its fences the same code must be refused (`testing/mutants`). Loom orders two
//! `SeqCst` fences as if a lock were passed from one to the other, which is more than the language
//! promises, so what a fence does beyond being there is not checked.
#![cfg(loom)]

#[path = "../../../crates/sync/tests/loom/check.rs"]
#[allow(dead_code)]
mod check;

use std::sync::Arc;

use check::{RACE, bounded, refused};

use designs::zones::smp_list::{Chain, Links, NIL, SmpLists};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use sync::atomic::{AtomicU32, Ordering};

struct Node {
    next: AtomicU32,
    prev: AtomicU32,
    /// Written when the node is spent.
    spent: UnsafeCell<()>,
}

struct Nodes(Vec<Node>);

// SAFETY: loom checks every access to the cells, which hold nothing.
unsafe impl Sync for Nodes {}
// SAFETY: as above.
unsafe impl Send for Nodes {}

impl Nodes {
    fn reach(&self, node: u32) -> &Node {
        let node = &self.0[node as usize];
        node.spent.with(|_| ());
        node
    }
}

impl Links for Nodes {
    fn next(&self, node: u32) -> &AtomicU32 {
        &self.reach(node).next
    }
    fn prev(&self, node: u32) -> &AtomicU32 {
        &self.reach(node).prev
    }
}

/// What a thread does.
#[derive(Clone, Copy)]
enum Act {
    /// Takes a node out for good.
    Del(u32),
    /// Takes a node out that will be put in again.
    Borrow(u32),
    Add(u32),
    /// Puts two nodes in at once, the first of them in front.
    Splice(u32, u32),
}

const HEAD: u32 = 0;

fn act(lists: &SmpLists<Nodes>, act: Act) {
    match act {
        Act::Del(node) => {
            lists.del(node);
            lists.links().0[node as usize].spent.with_mut(|_| ());
        }
        Act::Borrow(node) => lists.del(node),
        Act::Add(node) => lists.add(HEAD, node),
        Act::Splice(first, last) => {
            let mut chain = Chain::EMPTY;
            [last, first].iter().for_each(|node| lists.chain(&mut chain, *node));
            lists.splice(HEAD, chain.first, chain.last);
        }
    }
}

fn new(nodes: u32, entries: &[u32]) -> SmpLists<Nodes> {
    let node = |_| Node {
        next: AtomicU32::new(NIL),
        prev: AtomicU32::new(NIL),
        spent: UnsafeCell::new(()),
    };
    let mut lists = SmpLists::new(Nodes((0..nodes).map(node).collect()));
    lists.make_list(HEAD);
    entries.iter().rev().for_each(|entry| lists.push(HEAD, *entry));
    lists
}

/// What is in the list, in ascending order; checks the links on the way.
fn entries(lists: Arc<SmpLists<Nodes>>) -> Vec<u32> {
    let mut lists = Arc::into_inner(lists).expect("all threads are gone");
    lists.validate(HEAD, "the list");
    let mut node = HEAD;
    let mut entries: Vec<u32> = std::iter::from_fn(|| {
        node = lists.behind(HEAD, node)?;
        Some(node)
    })
    .collect();
    entries.sort_unstable();
    entries
}

/// Runs a scenario: the list at first, what each thread does (the first is this one), and what must
/// be left.
fn run(there: &[u32], threads: &[&'static [Act]], left: &[u32]) {
    let lists = Arc::new(new(5, there));
    let start = |acts: &&'static [Act]| {
        let (lists, acts) = (lists.clone(), *acts);
        thread::spawn(move || acts.iter().for_each(|what| act(&lists, *what)))
    };
    let others: Vec<_> = threads[1..].iter().map(start).collect();
    threads[0].iter().for_each(|what| act(&lists, *what));
    others.into_iter().for_each(|other| other.join().expect("no thread of the model panics"));
    assert_eq!(entries(lists), left, "what is left in the list");
}

/// Every interleaving, or those with at most so many preemptions.
fn check(
    preemptions: Option<usize>,
    there: &'static [u32],
    threads: &'static [&'static [Act]],
    left: &'static [u32],
) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(move || run(there, threads, left));
}

/// What happens when two take out the same node: one touches it when it is spent, waits for ever
/// for a neighbour that has gone, or leaves the list broken.
const ANY: &[&str] =
    &["Causality violation", "exceeded maximum number of branches", "deadlock", "the list"];

use Act::{Add, Borrow, Del, Splice};

#[test]
fn neighbours_are_taken_out() {
    check(None, &[1, 2, 3], &[&[Del(1)], &[Del(2)]], &[3]);
    check(Some(2), &[1, 2, 3], &[&[Del(1)], &[Del(2)], &[Del(3)]], &[]);
}

#[test]
fn some_are_taken_out_beside_others_put_in() {
    check(None, &[1, 2], &[&[Del(1)], &[Add(3)]], &[2, 3]);
    check(Some(2), &[1, 2], &[&[Del(1)], &[Del(2)], &[Add(3)]], &[3]);
    check(Some(2), &[1], &[&[Add(2)], &[Add(3)], &[Del(1)]], &[2, 3]);
    check(Some(2), &[1, 2], &[&[Splice(3, 4)], &[Del(1)], &[Del(2)]], &[3, 4]);
}

#[test]
fn one_comes_again_while_its_neighbours_go() {
    check(Some(2), &[1, 2, 3], &[&[Borrow(2), Add(2)], &[Del(3)], &[Del(1)]], &[2]);
}

#[test]
fn one_comes_and_goes_in_front_of_one_that_goes() {
    check(Some(4), &[1], &[&[Del(1)], &[Add(2), Del(2)]], &[]);
}

#[test]
fn taking_one_out_twice_is_found() {
    refused(ANY, || run(&[1, 2], &[&[Del(1)], &[Del(1)]], &[2]));
}

/// Puts a chain in and then says of each node that others may take it out, while another does so as
/// soon as it may. `early` says that the link is read before.
fn publish(early: bool) {
    let lists = Arc::new(new(4, &[1]));
    let flags = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let other = {
        let (lists, flags) = (lists.clone(), flags.clone());
        thread::spawn(move || {
            for (node, flag) in (2..).zip(&*flags) {
                if flag.load(Ordering::Acquire) == 1 {
                    act(&lists, Del(node));
                }
            }
        })
    };
    act(&lists, Splice(2, 3));
    let next = |node: u32| lists.links().next(node).load(Ordering::Relaxed);
    let mut node = 2;
    for flag in &*flags {
        if early {
            let behind = next(node);
            flag.store(1, Ordering::Release);
            node = behind;
        } else {
            flag.store(1, Ordering::Release);
            node = next(node);
        }
    }
    other.join().expect("no thread of the model panics");
    let left = entries(lists);
    assert_eq!(left.first(), Some(&1));
}

#[test]
fn links_are_read_before_a_node_is_published() {
    bounded(3, || publish(true));
    refused(RACE, || publish(false));
}
