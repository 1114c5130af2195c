use std::vec;
use std::vec::Vec;

use super::*;

/// Links of a few nodes.
struct Table(Vec<[AtomicU32; 2]>);

impl Links for Table {
    fn next(&self, node: u32) -> &AtomicU32 {
        &self.0[node as usize][0]
    }
    fn prev(&self, node: u32) -> &AtomicU32 {
        &self.0[node as usize][1]
    }
}

/// Lists with the heads 0 and 1, both empty.
fn lists(nodes: usize) -> SmpLists<Table> {
    let table = (0..nodes).map(|_| [AtomicU32::new(NIL), AtomicU32::new(NIL)]).collect();
    let mut lists = SmpLists::new(Table(table));
    lists.make_list(0);
    lists.make_list(1);
    lists
}

fn entries(lists: &mut SmpLists<Table>, head: u32) -> Vec<u32> {
    lists.validate(head, "the list");
    let mut node = head;
    core::iter::from_fn(|| {
        node = lists.behind(head, node)?;
        Some(node)
    })
    .collect()
}

#[test]
fn one_thread_sees_lists_like_any_other() {
    let mut lists = lists(20);
    assert_eq!(lists.first(0), None);
    for node in 2..8 {
        if node % 2 == 0 { lists.add(0, node) } else { lists.push(0, node) }
    }
    assert_eq!(entries(&mut lists, 0), [7, 6, 5, 4, 3, 2]);
    lists.del(7);
    lists.del(4);
    lists.remove(2);
    assert_eq!(entries(&mut lists, 0), [6, 5, 3]);
    let mut chain = Chain::EMPTY;
    for node in 10..13 {
        lists.chain(&mut chain, node);
    }
    assert_eq!((chain.first, chain.last, chain.len), (12, 10, 3));
    lists.splice(0, chain.first, chain.last);
    assert_eq!(entries(&mut lists, 0), [12, 11, 10, 6, 5, 3]);
    assert_eq!(lists.before(12), 0);
    assert_eq!(lists.before(10), 11);
    assert_eq!(lists.cut(0, 10), 12);
    assert_eq!(entries(&mut lists, 0), [6, 5, 3]);
    for node in [3, 5, 6] {
        lists.del(node);
    }
    assert_eq!((lists.first(0), lists.first(1)), (None, None));
    lists.add(1, 5);
    assert_eq!(entries(&mut lists, 1), [5]);
}

#[test]
fn a_head_that_is_held_is_not_to_be_had() {
    let mut lists = lists(4);
    let held = lists.try_hold(0).unwrap();
    assert!(lists.try_hold(0).is_none());
    assert!(lists.try_hold(1).is_some_and(|other| {
        other.put(3, 3);
        true
    }));
    held.put(2, 2);
    assert_eq!((entries(&mut lists, 0), entries(&mut lists, 1)), (vec![2], vec![3]));
}
