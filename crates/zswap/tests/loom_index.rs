//! The table and the radix tree whose lookups take no lock, under loom: lookups beside entries that
//! come, go and are replaced, and beside nodes that are used again in other places. And the order of
//! the index with the lock bits of pages: a page is written back beside its invalidation; with what
//! an entry names; and with the mark that the device has the page.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-zswap --test loom_index --release`, in a
//! target directory of its own. Without `--cfg loom` this file is empty. The crate itself is empty
//! with it, as its pools are not made for loom; the table, the tree, the stock of its nodes and the
//! lock bits are compiled into this test, with nodes of two slots.
//!
//! Beside them a copy with one flaw at a time, which loom must refuse, and which passes without
//! one.
#![cfg(loom)]

extern crate alloc;

#[allow(dead_code)]
#[path = "../src/index/cells.rs"]
mod cells;
#[allow(dead_code)]
#[path = "../src/index/contract.rs"]
mod contract;
#[path = "common/copy.rs"]
mod copy;
#[allow(dead_code)]
#[path = "../src/index/flat.rs"]
mod flat;
#[allow(dead_code)]
#[path = "../src/key.rs"]
mod key;
#[path = "../src/lock_bits.rs"]
mod lock_bits;
#[allow(dead_code)]
#[path = "../src/index/node_pool.rs"]
mod node_pool;
#[allow(dead_code)]
#[path = "../src/index/radix.rs"]
mod radix;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cells::{BITS, Cells, SLOTS};
use contract::Index;
use copy::{Copy, Flaw};
use flat::Flat;
use key::{MAX_OFFSETS, Word};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use pagealloc::{MemoryProvider, NoMemory, Region};
use radix::Radix;
use sync::Mutex;
use units::Cpu;

/// Two levels of two slots.
const PAGES: u64 = 4;
const LEVELS: usize = 2;
/// As many nodes as can be in the tree, so that they are used again at once.
const NODES: u32 = 3;
const _: () = assert!(PAGES < MAX_OFFSETS && SLOTS.pow(LEVELS as u32) as u64 == PAGES);

/// A tree of words that are numbers, 0 for none.
trait Tree: Send + Sync + 'static {
    fn get(&self, offset: u64) -> u64;
    fn insert(&self, offset: u64, word: u64) -> u64;
    fn remove(&self, offset: u64, only: u64) -> u64;
}

struct Nodes(Vec<([AtomicU64; SLOTS], AtomicU32, AtomicU32)>);

impl Cells for Nodes {
    fn slot(&self, node: u32, slot: usize) -> &AtomicU64 {
        &self.0[node as usize].0[slot]
    }
    fn life(&self, node: u32) -> &AtomicU32 {
        &self.0[node as usize].1
    }
    fn count(&self, node: u32) -> &AtomicU32 {
        &self.0[node as usize].2
    }
    fn highest(&self) -> u32 {
        NODES
    }
}

/// The crate's tree, with a lock for those who change it.
struct Real {
    radix: Radix<Nodes>,
    root: AtomicU64,
    lock: Mutex<()>,
}

impl Real {
    fn new() -> Real {
        let zero = || AtomicU32::new(0);
        let node = |_| ([AtomicU64::new(0), AtomicU64::new(0)], zero(), zero());
        let nodes = Nodes((0..=NODES).map(node).collect());
        let radix = Radix::new(nodes, PAGES, 1);
        Real { radix, root: AtomicU64::new(0), lock: Mutex::new(()) }
    }
}

fn raw(word: Option<Word>) -> u64 {
    word.map_or(0, Word::get)
}

impl Tree for Real {
    fn get(&self, offset: u64) -> u64 {
        raw(self.radix.get(&self.root, offset))
    }
    fn insert(&self, offset: u64, word: u64) -> u64 {
        let _lock = self.lock.lock();
        let word = Word::from_raw(word).expect("a word");
        raw(self.radix.insert(Cpu(0), &self.root, offset, word).expect("there are nodes"))
    }
    fn remove(&self, offset: u64, only: u64) -> u64 {
        let _lock = self.lock.lock();
        raw(self.radix.remove(Cpu(0), &self.root, offset, Word::from_raw(only)))
    }
}

const CPU: Cpu = Cpu(0);

impl Tree for Flat {
    fn get(&self, offset: u64) -> u64 {
        raw(Index::get(self, CPU, offset))
    }
    fn insert(&self, offset: u64, word: u64) -> u64 {
        let word = Word::from_raw(word).expect("a word");
        raw(Index::insert(self, CPU, offset, word).expect("there is memory"))
    }
    fn remove(&self, offset: u64, only: u64) -> u64 {
        match Word::from_raw(only) {
            None => raw(Index::remove(self, CPU, offset)),
            Some(word) => u64::from(Index::remove_if(self, CPU, offset, word)) * only,
        }
    }
}

/// Tables are made one by one under loom.
struct NoProvider;

impl MemoryProvider for NoProvider {
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        Err(NoMemory { bytes })
    }
}

fn flat(_: Flaw) -> Flat {
    Flat::make(&NoProvider, PAGES, 0, 1).expect("it asks for nothing")
}

/// A table of one page whose words order nothing.
struct Careless(AtomicU64);

impl Tree for Careless {
    fn get(&self, _: u64) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn insert(&self, _: u64, word: u64) -> u64 {
        self.0.swap(word, Ordering::Relaxed)
    }
    fn remove(&self, _: u64, _: u64) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn careless(_: Flaw) -> Careless {
    Careless(AtomicU64::new(0))
}

impl Tree for Copy {
    fn get(&self, offset: u64) -> u64 {
        Copy::get(self, offset)
    }
    fn insert(&self, offset: u64, word: u64) -> u64 {
        Copy::insert(self, offset, word)
    }
    fn remove(&self, offset: u64, only: u64) -> u64 {
        Copy::remove(self, offset, only)
    }
}

/// Makes the tree of a model.
type Make<T> = fn(Flaw) -> T;

fn real(_: Flaw) -> Real {
    Real::new()
}

fn copied(flaw: Flaw) -> Copy {
    Copy::new(flaw, BITS, LEVELS, NODES)
}

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
fn a_node_moves<T: Tree>(make: Make<T>, flaw: Flaw) {
    for looks_at in [0, 2] {
        bounded(3, move || {
            let tree = Arc::new(make(flaw));
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
fn a_neighbour_stays<T: Tree>(make: Make<T>, flaw: Flaw) {
    bounded(3, move || {
        let tree = Arc::new(make(flaw));
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
fn a_word_is_replaced<T: Tree>(make: Make<T>, flaw: Flaw) {
    bounded(3, move || {
        let tree = Arc::new(make(flaw));
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
fn two_change<T: Tree>(make: Make<T>, flaw: Flaw) {
    bounded(2, move || {
        let tree = Arc::new(make(flaw));
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
fn told_and_found<T: Tree>(make: Make<T>, flaw: Flaw) {
    bounded(3, move || {
        let tree = Arc::new(make(flaw));
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
enum Barriers {
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
fn a_page_is_invalidated<T: Tree>(make: Make<T>, barriers: Barriers) {
    bounded(3, move || {
        let tree = Arc::new(make(Flaw::None));
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
fn an_entry_is_written_first<T: Tree>(make: Make<T>) {
    bounded(3, move || {
        let shared = Arc::new((make(Flaw::None), Place(UnsafeCell::new(0))));
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
fn a_page_is_marked_before_it_leaves<T: Tree>(make: Make<T>) {
    bounded(3, move || {
        let shared = Arc::new((make(Flaw::None), AtomicU64::new(0)));
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

fn all<T: Tree>(make: Make<T>, flaw: Flaw) {
    a_node_moves(make, flaw);
    a_neighbour_stays(make, flaw);
    a_word_is_replaced(make, flaw);
}

#[test]
fn nodes_that_move() {
    a_node_moves(real, Flaw::None);
}

#[test]
fn neighbours_that_stay() {
    a_neighbour_stays(real, Flaw::None);
    a_neighbour_stays(flat, Flaw::None);
}

#[test]
fn words_that_are_replaced() {
    a_word_is_replaced(real, Flaw::None);
    a_word_is_replaced(flat, Flaw::None);
}

#[test]
fn words_come_out_once() {
    two_change(real, Flaw::None);
    two_change(flat, Flaw::None);
}

#[test]
fn what_one_is_told_of_is_found() {
    told_and_found(real, Flaw::None);
    told_and_found(flat, Flaw::None);
}

#[test]
fn what_a_word_names_was_written() {
    an_entry_is_written_first(real);
    an_entry_is_written_first(flat);
}

#[test]
fn a_page_is_in_one_of_two_places() {
    a_page_is_marked_before_it_leaves(flat);
}

#[test]
fn a_table_that_orders_nothing_is_found() {
    refused_model(|| an_entry_is_written_first(careless), &["Causality violation"]);
    refused_model(|| a_page_is_marked_before_it_leaves(careless), &["in neither place"]);
}

#[test]
fn invalidated_pages_are_not_written() {
    a_page_is_invalidated(real, Barriers::Real);
    a_page_is_invalidated(flat, Barriers::Real);
}

#[test]
fn a_faithful_copy_passes() {
    all(copied, Flaw::None);
    a_page_is_invalidated(real, Barriers::Copied { locking: true, removing: true });
}

fn refused(flaw: Flaw, complaints: &[&str]) {
    refused_model(|| all(copied, flaw), complaints);
}

fn refused_model(model: impl Fn(), complaints: &[&str]) {
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

/// What a lookup finds in a node that is used elsewhere: an entry of another page, or one where it
/// expects a node.
const ANOTHERS: &[&str] = &["another page's", "index out of bounds"];

#[test]
fn looking_at_no_life_is_found() {
    refused(Flaw::LooksAtNoLife, ANOTHERS);
}

#[test]
fn looking_before_reading_is_found() {
    refused(Flaw::LooksBefore, ANOTHERS);
}

#[test]
fn ending_no_life_is_found() {
    refused(Flaw::EndsNoLife, ANOTHERS);
}

#[test]
fn filling_without_release_is_found() {
    refused(Flaw::FillsRelaxed, ANOTHERS);
}

#[test]
fn linking_without_release_is_found() {
    refused(Flaw::LinksRelaxed, ANOTHERS);
}

#[test]
fn replacing_in_steps_is_found() {
    refused(Flaw::ReplacesInSteps, &["page 0 gives"]);
}

/// Two threads write the page's place at once.
const BOTH_WRITE: &[&str] = &["Causality violation"];

#[test]
fn locking_without_a_barrier_is_found() {
    let barriers = Barriers::Copied { locking: false, removing: true };
    refused_model(|| a_page_is_invalidated(real, barriers), BOTH_WRITE);
    refused_model(|| a_page_is_invalidated(flat, barriers), BOTH_WRITE);
}

#[test]
fn removing_without_a_barrier_is_found() {
    let barriers = Barriers::Copied { locking: true, removing: false };
    refused_model(|| a_page_is_invalidated(real, barriers), BOTH_WRITE);
    refused_model(|| a_page_is_invalidated(flat, barriers), BOTH_WRITE);
}
