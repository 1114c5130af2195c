//! Doubly linked lists without a list lock. Many threads at once take entries out anywhere and put
//! entries in at the head.
//!
//! The algorithm is that of Linux's proposed `smp_list_del`, `smp_list_add` and `smp_list_splice`
//! (Yossi Lev and Daniel Jordan, "lru_lock scalability and SMP list functions", linux-mm, September
//! 2018; behaviour). Here a link is the number of a node, so the lists are in tables. Two marks in
//! the `next` links are locks:
//!
//! - an entry that is being taken out *points back*: its `next` is its `prev`. The successor then
//!   must not leave, and the predecessor knows that this entry relies on it;
//! - an entry, or a head, has [`NIL`] as its `next` while that link is about to change.
//!
//! **Concurrency.** Methods that take `&self` ([`SmpLists::del`], [`SmpLists::add`],
//! [`SmpLists::splice`]) run concurrently on any lists, if no two threads take out the same entry.
//! Every other method, even the test for an empty list, takes `&mut self`, because a changing link
//! leads nowhere or backwards. A lock with two modes round the lists gives both kinds of access.
//!
//! A waiting thread needs another thread to run a few more instructions. So it spins for a moment
//! and then yields the CPU.

use sync::Backoff;
use sync::atomic::{AtomicU32, Ordering, barrier_after_rmw, fence};

/// No node: the `next` link of a locked node has this value.
pub const NIL: u32 = u32::MAX;

/// The storage of the links. Any number except [`NIL`] may be a node. A list's head is a node.
pub trait Links {
    /// The link from `node` to the node behind it.
    fn next(&self, node: u32) -> &AtomicU32;
    /// The link from `node` to the node in front of it.
    fn prev(&self, node: u32) -> &AtomicU32;
    /// Prefetches the links of `node`. The node may have moved meanwhile.
    fn prefetch(&self, node: u32) {
        let _ = node;
    }
}

/// Lists whose links are in `L`.
pub struct SmpLists<L> {
    links: L,
}

/// Nodes that are linked to each other and are in no list. Only their owner accesses them.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// The first node; [`NIL`] if there is none.
    pub first: u32,
    /// The last node.
    pub last: u32,
    /// The number of nodes.
    pub len: u32,
}

impl Chain {
    /// A chain of no nodes.
    pub const EMPTY: Chain = Chain { first: NIL, last: NIL, len: 0 };
}

/// The locked head of a list. Other threads that put entries in wait.
#[must_use = "the head stays locked until something is put in"]
pub struct HeldHead<'a, L> {
    links: &'a L,
    head: u32,
    succ: u32,
}

impl<L: Links> SmpLists<L> {
    /// Makes the table without lists; [`SmpLists::make_list`] adds a list.
    pub fn new(links: L) -> SmpLists<L> {
        SmpLists { links }
    }

    /// The storage of the links.
    #[inline]
    pub fn links(&self) -> &L {
        &self.links
    }

    /// Takes `node` out of its list. No other thread may take out the same node meanwhile. Other
    /// threads may take out its neighbours and any other node.
    pub fn del(&self, node: u32) {
        let links = &self.links;
        let mut backoff = Backoff::new();
        // The predecessor's links are read, then written.
        links.prefetch(links.prev(node).load(Ordering::Relaxed));
        // Locks the entry: it points back. After this the successor stays in place, and the
        // predecessor waits until this entry has released it.
        let (succ, mut pred) = loop {
            let succ = links.next(node).load(Ordering::Relaxed);
            let pred = links.prev(node).load(Ordering::Relaxed);
            // Acquire pairs with the Release at the end of the `del` of the former successor, and
            // with the Release of the `del` or `put` that unlocked this node.
            let claim = |succ| {
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                links.next(node).compare_exchange(succ, pred, order.0, order.1).is_ok()
            };
            if succ != NIL && claim(succ) {
                break (succ, pred);
            }
            backoff.wait();
        };
        // Pairs with the last fence of the thread that takes out `pred`: either that thread sees
        // that this entry points to `pred` and waits, or this thread sees the new predecessor.
        barrier_after_rmw();
        loop {
            // Acquire pairs with the Release of the thread that made it the predecessor.
            let now = links.prev(node).load(Ordering::Acquire);
            if now != pred {
                pred = now;
                // Release pairs with the Acquire of the old predecessor, which waits for its
                // release.
                links.next(node).store(pred, Ordering::Release);
                // Pairs with the last fence, like the barrier above.
                fence(Ordering::SeqCst);
                continue;
            }
            let link = links.next(pred);
            // Locks the predecessor. Acquire pairs with the Release of the thread that unlocked it
            // last.
            let lock =
                || link.compare_exchange(node, NIL, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if link.load(Ordering::Relaxed) == node && lock() {
                break;
            }
            backoff.wait();
        }
        // Release pairs with the Acquire of the successor, if a thread takes that out.
        links.prev(succ).store(pred, Ordering::Release);
        // Pairs with the two above of the thread that takes out `succ`.
        fence(Ordering::SeqCst);
        // Acquire pairs with the Release by which the successor releases this entry.
        while links.next(succ).load(Ordering::Acquire) == node {
            backoff.wait();
        }
        // Release pairs with the Acquire of the thread that locks the predecessor next.
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

    /// Locks `head`; waits.
    pub fn hold(&self, head: u32) -> HeldHead<'_, L> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(held) = self.try_hold(head) {
                return held;
            }
            backoff.wait();
        }
    }

    /// Locks `head` if no other thread holds it now.
    #[inline]
    pub fn try_hold(&self, head: u32) -> Option<HeldHead<'_, L>> {
        let link = self.links.next(head);
        let succ = link.load(Ordering::Relaxed);
        // Acquire pairs with the Release of the thread that unlocked it last.
        let lock =
            || link.compare_exchange(succ, NIL, Ordering::Acquire, Ordering::Relaxed).is_ok();
        (succ != NIL && lock()).then_some(HeldHead { links: &self.links, head, succ })
    }

    /// Puts `node` in front of the chain. The caller owns `node`, and no list has it.
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
    /// Puts the chain from `first` to `last` behind the head, and unlocks the head.
    #[inline]
    pub fn put(self, first: u32, last: u32) {
        let HeldHead { links, head, succ } = self;
        links.prev(first).store(head, Ordering::Relaxed);
        links.next(last).store(succ, Ordering::Relaxed);
        // Release pairs with the Acquire in the `del` of the former first entry, which finds `last`
        // linked.
        links.prev(succ).store(last, Ordering::Release);
        // Release pairs with the Acquire of the thread that locks the head next.
        links.next(head).store(first, Ordering::Release);
    }
}

mod exclusive;
#[cfg(all(test, not(loom)))]
mod tests;
