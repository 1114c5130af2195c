//! What is published under readers.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use sync::{Published, ReaderEpochs};
use units::Cpu;

use crate::{bounded, every};

/// Knows whether it was dropped: dropping writes to it, which loom checks against every reader.
struct Value(UnsafeCell<usize>);

// SAFETY: it is written only before it is published and when it is dropped; loom checks that.
unsafe impl Sync for Value {}
// SAFETY: as above.
unsafe impl Send for Value {}

impl Value {
    fn boxed(number: usize) -> Box<Value> {
        Box::new(Value(UnsafeCell::new(number)))
    }
    fn number(&self) -> usize {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.0.with(|number| unsafe { *number })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: loom checks that nobody reads any more.
        self.0.with_mut(|number| unsafe { *number = usize::MAX });
    }
}

struct World {
    readers: Arc<ReaderEpochs>,
    current: Published<Value>,
}

impl World {
    fn new() -> Arc<World> {
        let readers = Arc::new(ReaderEpochs::new(1));
        Arc::new(World { current: Published::new(readers.clone()), readers })
    }

    fn read(&self) -> Option<usize> {
        let reader = self.readers.enter(Cpu(0));
        self.current.get(&reader).map(Value::number)
    }
}

fn publish(world: &World, number: usize) -> bool {
    world.current.publish(Value::boxed(number)).is_ok()
}

#[test]
fn what_is_withdrawn_is_read_by_nobody() {
    every(|| {
        let world = World::new();
        assert!(publish(&world, 5));
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.read())
        };
        let value = world.current.withdraw();
        assert_eq!(value.as_ref().map(|value| value.number()), Some(5));
        drop(value);
        assert_eq!(world.read(), None, "who enters after the withdrawal sees it");
        let seen = reader.join().expect("no thread of the model panics");
        assert!(matches!(seen, None | Some(5)));
    });
}

#[test]
fn what_is_published_is_seen_whole() {
    every(|| {
        let world = World::new();
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.read())
        };
        assert!(publish(&world, 5));
        let seen = reader.join().expect("no thread of the model panics");
        assert!(matches!(seen, None | Some(5)));
        assert_eq!(world.read(), Some(5));
    });
}

#[test]
fn one_may_follow_another() {
    bounded(3, || {
        let world = World::new();
        assert!(publish(&world, 1));
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.read())
        };
        drop(world.current.withdraw());
        assert!(publish(&world, 2));
        drop(world.current.withdraw());
        let seen = reader.join().expect("no thread of the model panics");
        assert!(matches!(seen, None | Some(1 | 2)));
    });
}

#[test]
fn of_two_publishers_one_succeeds() {
    every(|| {
        let world = World::new();
        let other = {
            let world = world.clone();
            thread::spawn(move || publish(&world, 1))
        };
        let mine = publish(&world, 2);
        let theirs = other.join().expect("no thread of the model panics");
        assert!(mine != theirs, "exactly one of two may publish");
        assert_eq!(world.read(), Some(if mine { 2 } else { 1 }));
    });
}

#[test]
fn of_two_withdrawers_one_gets_it() {
    bounded(3, || {
        let world = World::new();
        assert!(publish(&world, 1));
        let other = {
            let world = world.clone();
            thread::spawn(move || world.current.withdraw().is_some())
        };
        let mine = world.current.withdraw().is_some();
        let theirs = other.join().expect("no thread of the model panics");
        assert!(mine != theirs, "exactly one of two may withdraw");
    });
}
