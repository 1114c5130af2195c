//! The methods of lists that need exclusive access.
//!
//! `&mut self` proves exclusive access: the thread that holds the lock round the lists in exclusive
//! mode has it. The lock orders these accesses with all others, so they are relaxed.

use super::*;

impl<L: Links> SmpLists<L> {
    /// Makes `head` the head of an empty list.
    pub fn make_list(&mut self, head: u32) {
        self.join(head, head);
    }

    /// The first entry.
    #[inline]
    pub fn first(&mut self, head: u32) -> Option<u32> {
        self.behind(head, head)
    }

    /// The entry behind `node`.
    #[inline]
    pub fn behind(&mut self, head: u32, node: u32) -> Option<u32> {
        let next = self.links.next(node).load(Ordering::Relaxed);
        (next != head).then_some(next)
    }

    /// The entry in front of `node`, or the head.
    #[inline]
    pub fn before(&mut self, node: u32) -> u32 {
        self.links.prev(node).load(Ordering::Relaxed)
    }

    /// Puts `node`, which is in no list, behind `head`.
    #[inline]
    pub fn push(&mut self, head: u32, node: u32) {
        let succ = self.links.next(head).load(Ordering::Relaxed);
        self.join(node, succ);
        self.join(head, node);
    }

    /// Takes `node` out of the list it is in.
    #[inline]
    pub fn remove(&mut self, node: u32) {
        let succ = self.links.next(node).load(Ordering::Relaxed);
        let pred = self.links.prev(node).load(Ordering::Relaxed);
        self.join(pred, succ);
    }

    /// Takes all entries up to `last` out, and returns the first. These entries stay linked to each
    /// other.
    #[inline]
    pub fn cut(&mut self, head: u32, last: u32) -> u32 {
        let first = self.links.next(head).load(Ordering::Relaxed);
        let succ = self.links.next(last).load(Ordering::Relaxed);
        self.join(head, succ);
        first
    }

    /// Checks that the neighbour behind every entry of a list links back to it.
    ///
    /// # Panics
    /// The message names the first entry whose neighbour does not link back.
    pub fn validate(&mut self, head: u32, name: impl core::fmt::Display) {
        let mut node = head;
        loop {
            let next = self.links.next(node).load(Ordering::Relaxed);
            assert_ne!(next, NIL, "{name}: node {node} is locked");
            let back = self.links.prev(next).load(Ordering::Relaxed);
            assert_eq!(back, node, "{name}: node {next} and the one in front of it");
            if next == head {
                return;
            }
            node = next;
        }
    }

    #[inline]
    fn join(&mut self, pred: u32, succ: u32) {
        self.links.next(pred).store(succ, Ordering::Relaxed);
        self.links.prev(succ).store(pred, Ordering::Relaxed);
    }
}
