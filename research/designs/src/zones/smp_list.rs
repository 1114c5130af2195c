//! Doubly linked lists of which entries are taken out anywhere, and put in at the head, by many
//! threads at once and without a lock of the list.
//!
//! The algorithm is that of Linux's proposed `smp_list_del`, `smp_list_add` and `smp_list_splice`
//! (Yossi Lev and Daniel Jordan, "lru_lock scalability and SMP list functions", linux-mm, September
//! 2018; behaviour). Here a link is the number of a node, so that lists lie in tables. Two marks in
//! the `next` links serve as locks:
//!
//! - an entry that is being taken out *points back*: its `next` is its `prev`, and so its successor
//!   knows that it must not go, and its predecessor that somebody relies on it;
//! - an entry, or a head, of which the `next` is about to change has [`NIL`] there.
//!
//! **What may run beside what.** Methods that take `&self` ([`SmpLists::del`], [`SmpLists::add`],
//! [`SmpLists::splice`]) run beside each other on any lists, if no two threads take out the same
//! entry. Everything else, even looking whether a list is empty, takes `&mut self`: links that are
//! being changed lead nowhere or backwards. A lock with two modes, round these lists, gives both.
//!
//! A thread that waits here waits for another that has a few instructions to go, so it spins for a
//! moment and then lets others run.

use std::marker::PhantomData;

use sync::Backoff;
use sync::atomic::{AtomicU32, Ordering, barrier_after_rmw, fence};

/// No node: what the `next` link of a node leads to while it is locked.
pub const NIL: u32 = u32::MAX;

/// Where the links of nodes are. Any number but [`NIL`] may be a node; heads of lists are nodes
/// like others.
pub trait Links {
    /// The link of `node` to the one behind it.
    fn next(&self, node: u32) -> &AtomicU32;
    /// The link of `node` to the one in front of it.
    fn prev(&self, node: u32) -> &AtomicU32;
    /// Asks the processor for the links of `node`, which may have become something else meanwhile.
    fn prefetch(&self, node: u32) {
        let _ = node;
    }
}

/// Which fences there are. Only tests leave one out, to be shown that it is needed.
pub trait Fences {
    /// After an entry was locked, before its predecessor is looked at again.
    const LOCKED: bool = true;
    /// After an entry has pointed to a new predecessor, before that is looked at again.
    const MOVED: bool = true;
    /// After the successor was told of its new predecessor, before it is looked at.
    const TOLD: bool = true;
}

/// All of them.
pub struct Fenced;

impl Fences for Fenced {}

/// Lists whose links are in `L`.
pub struct SmpLists<L, F = Fenced> {
    links: L,
    fences: PhantomData<fn() -> F>,
}

/// Nodes linked to each other that are in no list yet, or no longer. They are their owner's alone.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// The first node; [`NIL`] if there is none.
    pub first: u32,
    /// The last node.
    pub last: u32,
    /// How many there are.
    pub len: u32,
}

impl Chain {
    /// Of no node.
    pub const EMPTY: Chain = Chain { first: NIL, last: NIL, len: 0 };
}

/// The head of a list, held: others who want to put something in wait.
#[must_use = "the head stays locked until something is put in"]
pub struct HeldHead<'a, L> {
    links: &'a L,
    head: u32,
    succ: u32,
}

impl<L: Links, F: Fences> SmpLists<L, F> {
    /// No lists yet; [`SmpLists::make_list`] makes them.
    pub fn new(links: L) -> SmpLists<L, F> {
        SmpLists { links, fences: PhantomData }
    }

    /// Where the links are.
    #[inline]
    pub fn links(&self) -> &L {
        &self.links
    }

    /// Takes `node` out of the list it is in. Nobody else may take out the same node meanwhile;
    /// its neighbours, and others, they may.
    pub fn del(&self, node: u32) {
        let links = &self.links;
        let mut backoff = Backoff::new();
        // It will be read, then written.
        links.prefetch(links.prev(node).load(Ordering::Relaxed));
        // The entry's lock: it points back. From here on the one behind it stays where it is, and
        // the one in front of it is not done with until this one has let go of it.
        let (succ, mut pred) = loop {
            let succ = links.next(node).load(Ordering::Relaxed);
            let pred = links.prev(node).load(Ordering::Relaxed);
            // Acquire pairs with the Release at the end of the `del` of the one that was behind,
            // and with that of the `del` and the `put` that unlocked this node.
            let claim = |succ| {
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                links.next(node).compare_exchange(succ, pred, order.0, order.1).is_ok()
            };
            if succ != NIL && claim(succ) {
                break (succ, pred);
            }
            backoff.wait();
        };
        if F::LOCKED {
            // Pairs with the fence further down of whoever takes out `pred`: either that one sees
            // that this entry points to it and waits, or this one sees its new predecessor.
            barrier_after_rmw();
        }
        loop {
            // Acquire pairs with the Release of whoever made it the predecessor.
            let now = links.prev(node).load(Ordering::Acquire);
            if now != pred {
                pred = now;
                // Release pairs with the Acquire of the old predecessor, which waits to be let go.
                links.next(node).store(pred, Ordering::Release);
                if F::MOVED {
                    // Pairs with the fence further down, as above.
                    fence(Ordering::SeqCst);
                }
                continue;
            }
            let link = links.next(pred);
            // The predecessor's lock. Acquire pairs with the Release of who unlocked it last.
            let lock =
                || link.compare_exchange(node, NIL, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if link.load(Ordering::Relaxed) == node && lock() {
                break;
            }
            backoff.wait();
        }
        // Release pairs with the Acquire of the successor, if that is being taken out.
        links.prev(succ).store(pred, Ordering::Release);
        if F::TOLD {
            // Pairs with the fences further up of whoever takes out `succ`.
            fence(Ordering::SeqCst);
        }
        // Acquire pairs with the Release with which the successor lets go.
        while links.next(succ).load(Ordering::Acquire) == node {
            backoff.wait();
        }
        // Release pairs with the Acquire of whoever locks the predecessor next.
        links.next(pred).store(succ, Ordering::Release);
    }

    /// Puts `node`, which is in no list, behind `head`.
    pub fn add(&self, head: u32, node: u32) {
        self.splice(head, node, node);
    }

    /// Puts the chain from `first` to `last` behind `head`.
    pub fn splice(&self, head: u32, first: u32, last: u32) {
        self.hold(head).put(first, last);
    }

    /// Waits for `head` and holds it.
    pub fn hold(&self, head: u32) -> HeldHead<'_, L> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(held) = self.try_hold(head) {
                return held;
            }
            backoff.wait();
        }
    }

    /// Holds `head` if nobody else does now.
    #[inline]
    pub fn try_hold(&self, head: u32) -> Option<HeldHead<'_, L>> {
        let link = self.links.next(head);
        let succ = link.load(Ordering::Relaxed);
        // Acquire pairs with the Release of who unlocked it last.
        let lock =
            || link.compare_exchange(succ, NIL, Ordering::Acquire, Ordering::Relaxed).is_ok();
        (succ != NIL && lock()).then_some(HeldHead { links: &self.links, head, succ })
    }

    /// Puts `node`, which is in no list and nobody else's, in front of the chain.
    #[inline]
    pub fn chain(&self, chain: &mut Chain, node: u32) {
        if chain.len == 0 {
            chain.last = node;
        } else {
            self.links.next(node).store(chain.first, Ordering::Relaxed);
            self.links.prev(chain.first).store(node, Ordering::Relaxed);
        }
        chain.first = node;
        chain.len += 1;
    }
}

impl<L: Links> HeldHead<'_, L> {
    /// Puts the chain from `first` to `last` behind the head, and lets go of that.
    #[inline]
    pub fn put(self, first: u32, last: u32) {
        let HeldHead { links, head, succ } = self;
        links.prev(first).store(head, Ordering::Relaxed);
        links.next(last).store(succ, Ordering::Relaxed);
        // Release pairs with the Acquire in `del` of the one that was first: it finds `last`
        // linked.
        links.prev(succ).store(last, Ordering::Release);
        // Release pairs with the Acquire of whoever locks the head next.
        links.next(head).store(first, Ordering::Release);
    }
}

mod exclusive;
#[cfg(all(test, not(loom)))]
mod tests;
