//! What loom plays on an index of words, and refuses of a broken one.
// Each test uses a part of it.
#![allow(dead_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::thread;

use super::key::Word;
use super::lock_bits;

/// An index of words that are numbers, 0 for none.
pub trait Tree: Send + Sync + 'static {
    fn get(&self, offset: u64) -> u64;
    fn insert(&self, offset: u64, word: u64) -> u64;
    fn remove(&self, offset: u64, only: u64) -> u64;
}

/// The word as a number, 0 for none.
pub fn raw(word: Option<Word>) -> u64 {
    word.map_or(0, Word::get)
}

/// Makes the index of a model.
pub trait Make<T>: Fn() -> T + Send + Sync + Copy + 'static {}

impl<T, F: Fn() -> T + Send + Sync + Copy + 'static> Make<T> for F {}

fn bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Looks at the tree in a thread beside `change`. Changes are made by the first thread: loom
/// remembers one access to a place, so it forgets who looked there before a thread that looks there
/// itself and then stores.
fn beside<T: Tree>(tree: &Arc<T>, look: fn(&T), change: impl FnOnce(&T)) {
    let theirs = tree.clone();
    let other = thread::spawn(move || look(&theirs));
    change(tree);
    other.join().expect("no thread of the model panics");
}

/// The lowest node of page 0 goes, and is used for page 2, in the same slot.
pub fn a_node_moves<T: Tree>(make: impl Make<T>) {
    for looks_at in [0, 2] {
        bounded(3, move || {
            let tree = Arc::new(make());
            tree.insert(0, 10);
            tree.insert(3, 13);
            let look: fn(&T) = match looks_at {
                0 => |tree| {
                    let found = tree.get(0);
                    assert!(found == 10 || found == 0, "page 0 gives {found}, another page's");
                },
                _ => |tree| {
                    let found = tree.get(2);
                    assert!(found == 30 || found == 0, "page 2 gives {found}, another page's");
                },
            };
            beside(&tree, look, |tree| {
                assert_eq!(tree.remove(3, 13), 13);
                assert_eq!(tree.remove(0, 10), 10);
                assert_eq!(tree.insert(2, 30), 0);
            });
            assert_eq!((tree.get(0), tree.get(2)), (0, 30));
        });
    }
}

/// What nobody touches is found, beside others of its node and nodes that come and go.
pub fn a_neighbour_stays<T: Tree>(make: impl Make<T>) {
    bounded(3, move || {
        let tree = Arc::new(make());
        tree.insert(0, 10);
        tree.insert(1, 11);
        let look = |tree: &T| assert_eq!(tree.get(0), 10, "page 0 was never touched");
        beside(&tree, look, |tree| {
            assert_eq!(tree.remove(1, 0), 11);
            tree.insert(3, 13);
        });
        assert_eq!((tree.get(0), tree.get(1), tree.get(3)), (10, 0, 13));
    });
}

/// While a word is replaced there is always one.
pub fn a_word_is_replaced<T: Tree>(make: impl Make<T>) {
    bounded(3, move || {
        let tree = Arc::new(make());
        tree.insert(0, 10);
        let look = |tree: &T| {
            let first = tree.get(0);
            assert!(first == 10 || first == 20, "page 0 gives {first}");
            let second = tree.get(0);
            assert!(second == 20 || second == first, "page 0 gives {first} and then {second}");
        };
        beside(&tree, look, |tree| assert_eq!(tree.insert(0, 20), 10));
    });
}

/// Two take out and put in: each word comes out once.
pub fn two_change<T: Tree>(make: impl Make<T>) {
    bounded(2, move || {
        let tree = Arc::new(make());
        tree.insert(0, 10);
        let taken = Arc::new(AtomicU64::new(0));
        let theirs = (tree.clone(), taken.clone());
        let other = thread::spawn(move || {
            let (tree, taken) = theirs;
            taken.fetch_add(tree.remove(0, 10), Ordering::Relaxed);
            taken.fetch_add(tree.insert(2, 200), Ordering::Relaxed);
        });
        taken.fetch_add(tree.remove(0, 0), Ordering::Relaxed);
        taken.fetch_add(tree.insert(2, 3000), Ordering::Relaxed);
        other.join().expect("no thread of the model panics");
        let left = tree.remove(2, 0) + tree.get(0) + tree.get(2);
        assert_eq!(taken.load(Ordering::Relaxed) + left, 3210, "a word came out twice, or never");
    });
}

/// Who was told that a word is there finds it, though nodes are taken out meanwhile.
pub fn told_and_found<T: Tree>(make: impl Make<T>) {
    bounded(3, move || {
        let tree = Arc::new(make());
        tree.insert(0, 10);
        let told = Arc::new(AtomicBool::new(false));
        let (theirs, told_them) = (tree.clone(), told.clone());
        let other = thread::spawn(move || {
            let told = told_them.load(Ordering::Acquire);
            let found = theirs.get(2);
            assert!(found == 30 || (found == 0 && !told), "page 2 gives {found}, told: {told}");
        });
        assert_eq!(tree.remove(0, 0), 10);
        tree.insert(2, 30);
        told.store(true, Ordering::Release);
        tree.insert(1, 11);
        other.join().expect("no thread of the model panics");
    });
}

/// The barriers of the lock bits. The crate has both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Barriers {
    /// The crate's own functions.
    Real,
    /// A copy of them, which may lack a barrier: after locking, and after a removal.
    Copied { locking: bool, removing: bool },
}

impl Barriers {
    fn try_lock(self, word: &AtomicU64) -> bool {
        match self {
            Barriers::Real => lock_bits::try_lock(word, 1),
            Barriers::Copied { locking, .. } => {
                let was = word.fetch_or(1, Ordering::Acquire);
                if locking {
                    fence(Ordering::SeqCst);
                }
                was & 1 == 0
            }
        }
    }

    fn is_locked_after_removal(self, word: &AtomicU64) -> bool {
        match self {
            Barriers::Real => lock_bits::removed(),
            Barriers::Copied { removing: true, .. } => fence(Ordering::SeqCst),
            Barriers::Copied { .. } => {}
        }
        lock_bits::locked(word) & 1 != 0
    }
}

/// The place of a page on the device. Loom finds two threads that write it at once.
struct Place(UnsafeCell<u64>);

// SAFETY: loom refuses a model in which two threads use the cell at once.
unsafe impl Sync for Place {}
// SAFETY: as above.
unsafe impl Send for Place {}

/// A page is written back while its owner invalidates it, and then writes the place himself.
pub fn a_page_is_invalidated<T: Tree>(make: impl Make<T>, barriers: Barriers) {
    bounded(3, move || {
        let tree = Arc::new(make());
        tree.insert(0, 10);
        let shared = Arc::new((AtomicU64::new(0), Place(UnsafeCell::new(0))));
        let (their_tree, theirs) = (tree.clone(), shared.clone());
        let evictor = thread::spawn(move || {
            let (lock, place) = &*theirs;
            assert!(barriers.try_lock(lock), "nobody else locks");
            if their_tree.get(0) == 10 {
                // SAFETY: the pointer is that of the cell.
                place.0.with_mut(|page| unsafe { *page = 10 });
            }
            lock_bits::unlock(lock, 1);
        });
        let (lock, place) = &*shared;
        assert_eq!(tree.remove(0, 0), 10);
        // One that sees the lock waits for it.
        if !barriers.is_locked_after_removal(lock) {
            // SAFETY: as above.
            place.0.with_mut(|page| unsafe { *page = 20 });
        }
        evictor.join().expect("no thread of the model panics");
    });
}

/// Who finds a word finds what it names as it was written.
pub fn an_entry_is_written_first<T: Tree>(make: impl Make<T>) {
    bounded(3, move || {
        let shared = Arc::new((make(), Place(UnsafeCell::new(0))));
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            let (tree, entry) = &*theirs;
            if tree.get(0) == 10 {
                // SAFETY: the pointer is that of the cell.
                entry.0.with(|entry| assert_eq!(unsafe { *entry }, 5));
            }
        });
        let (tree, entry) = &*shared;
        // SAFETY: as above.
        entry.0.with_mut(|entry| unsafe { *entry = 5 });
        tree.insert(0, 10);
        other.join().expect("no thread of the model panics");
    });
}

/// Who finds that a page has left for the device finds its mark.
pub fn a_page_is_marked_before_it_leaves<T: Tree>(make: impl Make<T>) {
    bounded(3, move || {
        let shared = Arc::new((make(), AtomicU64::new(0)));
        shared.0.insert(0, 10);
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            let (tree, mark) = &*theirs;
            mark.store(1, Ordering::Relaxed);
            assert_eq!(tree.remove(0, 10), 10);
        });
        let (tree, mark) = &*shared;
        let is_there = tree.get(0) == 10 || mark.load(Ordering::Relaxed) == 1;
        assert!(is_there, "the page is in neither place");
        other.join().expect("no thread of the model panics");
    });
}

/// Loom refuses the model with one of `complaints`.
pub fn refused_model(model: impl Fn(), complaints: &[&str]) {
    let checked = catch_unwind(AssertUnwindSafe(model));
    let payload = checked.expect_err("loom passed a model that is broken on purpose");
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("");
    assert!(
        complaints.iter().any(|complaint| said.contains(complaint)),
        "loom refused the model, but for another reason: {said}"
    );
}
