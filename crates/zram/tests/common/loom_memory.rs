//! One slot under loom, the objects that it may name, and what threads do to both.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use pagealloc::NoMemory;
use units::Cpu;
use zram::slots::SlotTable;
use zram::{Kind, Object, Slot};
use zsmalloc::Handle;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Reads what the slot names.
    Load,
    /// Makes an object and has the slot name it.
    Store,
    /// Has the slot name nothing.
    Discard,
    /// Makes a new object of what the slot names, as for a part of a page.
    Change,
    /// Marks the slot, and takes the mark away.
    Claim,
    /// Looks at the slot.
    Peek,
    /// Moves the object to another place, as compaction does.
    Move,
    /// The same with a flaw: the old place is given back before the slot names the new one.
    MoveTooSoon,
    /// The same with a flaw: the slot names the copy, whatever it names by then.
    MoveOver,
}

/// What is in no object that was freed, or that was never made.
const NOTHING: u64 = 0;
/// What is in the object that is there at the beginning.
const FIRST: u64 = 1;
/// What a store puts into its object.
const STORED: u64 = 100;
/// What a change adds to what it found.
const CHANGED: u64 = 1000;

const OBJECTS: usize = 5;

/// A world that has no memory to give: tables under loom ask for none.
struct Nowhere;

impl pagealloc::MemoryProvider for Nowhere {
    fn reserve(&self, bytes: usize) -> Result<pagealloc::Region, NoMemory> {
        Err(NoMemory { bytes })
    }
}

/// A table of one slot, and objects, of which none is used again once it was freed.
struct World<T> {
    table: T,
    objects: [UnsafeCell<u64>; OBJECTS],
    next: AtomicUsize,
}

// SAFETY: the table keeps readers and those who free apart; loom checks that it does.
unsafe impl<T: Sync> Sync for World<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for World<T> {}

fn object_of(slot: Slot) -> Option<usize> {
    match slot.kind() {
        Kind::Stored(object) => Some(object.handle().get() as usize),
        Kind::Empty => None,
        other => panic!("the slot has become {other:?}"),
    }
}

impl<T: SlotTable> World<T> {
    fn new() -> World<T> {
        let table = T::new(&Nowhere, 1, 2).expect("it takes no memory");
        let objects = std::array::from_fn(|_| UnsafeCell::new(NOTHING));
        World { table, objects, next: AtomicUsize::new(0) }
    }

    fn read(&self, slot: Slot) -> Option<u64> {
        let object = object_of(slot)?;
        // SAFETY: loom checks that nobody changes it meanwhile.
        let contents = self.objects[object].with(|object| unsafe { *object });
        assert_ne!(contents, NOTHING, "a freed object was read");
        Some(contents)
    }

    fn make(&self, contents: u64) -> Slot {
        let new = self.next.fetch_add(1, Ordering::Relaxed);
        // SAFETY: nobody knows it yet; loom checks.
        self.objects[new].with_mut(|object| unsafe { *object = contents });
        Slot::stored(Object::Compressed {
            handle: Handle::from_raw(new as u32),
            length: 8,
            codec: 0,
        })
    }

    fn free(&self, slot: Slot) {
        let Some(object) = object_of(slot) else { return };
        // SAFETY: loom checks that nobody reads it any more.
        self.objects[object].with_mut(|object| unsafe {
            assert_ne!(*object, NOTHING, "freed twice");
            *object = NOTHING;
        });
    }

    fn install(&self, cpu: Cpu, slot: Slot) {
        let old = self.table.update(0, |_| Some(slot)).expect("it declines nothing");
        self.table.retire(cpu, old, |slot| self.free(slot));
    }

    /// As `Engine::modify` does it: claim, read, make, and install if the claim is still there.
    fn change(&self, cpu: Cpu) {
        loop {
            let claimed = self.table.update(0, |slot| Some(slot.claimed())).expect("any slot");
            let claimed = claimed.claimed();
            let seen = self.table.load(cpu, 0, |slot| (slot == claimed).then(|| self.read(slot)));
            let Some(seen) = seen else { continue };
            let base = seen.unwrap_or(FIRST);
            let new = self.make(base + CHANGED);
            let installed = self.table.update(0, |slot| {
                (slot == claimed).then(|| {
                    let now = self.read(slot).unwrap_or(FIRST);
                    assert_eq!(now, base, "the claim is there, and the contents are others");
                    new
                })
            });
            match installed {
                Ok(old) => {
                    let old = old.unclaimed();
                    let of_old = old == claimed.unclaimed();
                    assert!(of_old, "it was made of contents that were gone");
                    return self.table.retire(cpu, old, |slot| self.free(slot));
                }
                Err(_) => self.free(new),
            }
        }
    }

    /// As the engine does it: copy, install if the slot still names the object, retire what it
    /// named.
    fn relocate(&self, cpu: Cpu, flaw: Option<Act>) {
        let slot = self.table.peek(0);
        let Some(object) = object_of(slot.unclaimed()) else { return };
        let is_there = |slot: Slot| object_of(slot) == Some(object) && !slot.is_claimed();
        let copy =
            self.table.load(cpu, 0, |slot| is_there(slot).then(|| self.read(slot)).flatten());
        let Some(new) = copy.map(|contents| self.make(contents)) else { return };
        if flaw == Some(Act::MoveTooSoon) {
            self.free(slot);
        }
        let over = flaw == Some(Act::MoveOver);
        let named = new.object().map(|object| move |slot: Slot| slot.moved_to(object));
        let named = named.expect("it was just made");
        match self.table.update(0, |now| (over || is_there(now)).then(|| named(now))) {
            Ok(_) if flaw == Some(Act::MoveTooSoon) => {}
            Ok(old) => self.table.retire(cpu, old, |slot| self.free(slot)),
            Err(_) => self.free(new),
        }
    }

    fn act(&self, act: Act, cpu: Cpu) {
        match act {
            Act::Move => self.relocate(cpu, None),
            Act::MoveTooSoon | Act::MoveOver => self.relocate(cpu, Some(act)),
            Act::Load => drop(self.table.load(cpu, 0, |slot| self.read(slot))),
            Act::Store => self.install(cpu, self.make(STORED)),
            Act::Discard => self.install(cpu, Slot::EMPTY),
            Act::Change => self.change(cpu),
            Act::Claim => {
                self.table.update(0, |slot| Some(slot.claimed())).expect("any slot");
                self.table.update(0, |slot| Some(slot.unclaimed())).expect("any slot");
            }
            Act::Peek => drop(object_of(self.table.peek(0).unclaimed())),
        }
    }

    /// When nobody is at it: what the slot names is there, all else was freed.
    fn rest(&self, acts: &[Act]) {
        self.table.quiesce(|slot| self.free(slot));
        let slot = self.table.peek(0).unclaimed();
        let named = object_of(slot);
        if !acts.contains(&Act::Discard) {
            assert!(named.is_some(), "a store was lost");
        }
        for (number, object) in self.objects.iter().enumerate() {
            // SAFETY: every thread has ended.
            let contents = object.with(|object| unsafe { *object });
            assert_eq!(contents != NOTHING, named == Some(number), "object {number} was lost");
        }
        let contents = self.table.load(Cpu(0), 0, |slot| self.read(slot)).unwrap_or(FIRST);
        if acts.contains(&Act::Store) && !acts.contains(&Act::Discard) {
            assert_ne!(contents, FIRST, "a store was replaced by an older page");
        }
        let changes = acts.iter().filter(|act| **act == Act::Change).count() as u64;
        let found = contents / CHANGED;
        match acts.iter().any(|act| matches!(act, Act::Store | Act::Discard)) {
            false => assert_eq!(found, changes, "a change was lost"),
            true => assert!(found <= changes, "{found} changes were made, of {changes}"),
        }
    }
}

/// A slot that names an object, and a thread for each of `acts`, this one too.
pub fn run<T: SlotTable + 'static>(acts: &'static [Act]) {
    let play = spawn(move || play::<T>(acts));
    play.join().expect("no thread of the model panics");
}

/// A thread with room to panic: loom's usual stacks of 32 KiB are too small to say why.
fn spawn(act: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    /// In words.
    const STACK: usize = 1 << 16;
    thread::Builder::new().stack_size(STACK).spawn(act).expect("a thread of the model")
}

fn play<T: SlotTable + 'static>(acts: &'static [Act]) {
    let world = Arc::new(World::<T>::new());
    world.install(Cpu(0), world.make(FIRST));
    let others: Vec<_> = (1u32..)
        .zip(&acts[1..])
        .map(|(cpu, act)| {
            let world = world.clone();
            spawn(move || world.act(*act, Cpu(cpu)))
        })
        .collect();
    world.act(acts[0], Cpu(0));
    others.into_iter().for_each(|other| other.join().expect("no thread of the model panics"));
    world.rest(acts);
}

/// An empty slot, a thread that stores and tells, and one that is told and loads. Before it is told
/// it finds the object or nothing.
pub fn told<T: SlotTable + 'static>() {
    let world = Arc::new(World::<T>::new());
    let told = Arc::new(AtomicBool::new(false));
    let (theirs, tells) = (world.clone(), told.clone());
    let other = spawn(move || {
        theirs.act(Act::Store, Cpu(1));
        tells.store(true, Ordering::Release);
    });
    let told = told.load(Ordering::Acquire);
    let found = world.table.load(Cpu(0), 0, |slot| world.read(slot));
    assert!(found == Some(STORED) || (found.is_none() && !told), "{found:?}, told: {told}");
    if told {
        assert_eq!(world.table.next_touched(0, 1), 0, "a walk would pass over it");
    }
    other.join().expect("no thread of the model panics");
    assert_eq!(world.table.load(Cpu(0), 0, |slot| world.read(slot)), Some(STORED));
}
