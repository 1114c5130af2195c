//! No thread waits for the system call of another: the zone asks for addresses and memory while it
//! holds no lock that an allocation or a free wants.

use std::boxed::Box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pagealloc::{Frames, MemoryProvider, NoMemory, Region, RegionKeeper, Zone, ZoneOptions};
use units::{Cpu, FRAMES_PER_PAGEBLOCK};

use crate::provider::HeapProvider;

/// After this time a thread is taken to wait for ever.
const LONG: Duration = Duration::from_secs(30);

/// The system calls that wait while the gate is closed.
#[derive(Default)]
struct Gate {
    commits: AtomicBool,
    populates: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: bool,
    open: bool,
}

impl Gate {
    fn pass(&self, closed: &AtomicBool) {
        // The first one waits.
        if closed.swap(false, Relaxed) {
            let mut state = self.state.lock().unwrap();
            state.waiting = true;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| !state.open).unwrap());
        }
    }

    /// Runs `slow`, which comes to wait in a system call, and beside it `quick`, which must end
    /// while the other still waits.
    fn beside(&self, slow: impl FnOnce() + Send, quick: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(slow);
            let state = self.state.lock().unwrap();
            let (state, _) =
                self.changed.wait_timeout_while(state, LONG, |state| !state.waiting).unwrap();
            assert!(state.waiting, "there was no system call");
            drop(state);
            let (done, end) = mpsc::channel();
            scope.spawn(move || {
                quick();
                done.send(()).unwrap();
            });
            let ended = end.recv_timeout(LONG);
            self.state.lock().unwrap().open = true;
            self.changed.notify_all();
            ended.expect("a thread waited for another one's system call");
        });
    }
}

struct SlowProvider(Arc<Gate>);

struct SlowKeeper {
    region: Region,
    gate: Arc<Gate>,
}

impl MemoryProvider for SlowProvider {
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        let region = HeapProvider::default().reserve(bytes)?;
        let (base, bytes) = (region.base(), region.bytes());
        let keeper = SlowKeeper { region, gate: self.0.clone() };
        // SAFETY: the region inside owns the range, and aligned it.
        Ok(unsafe { Region::new(base, bytes, Box::new(keeper)) })
    }
}

// SAFETY: the region inside keeps the range.
unsafe impl RegionKeeper for SlowKeeper {
    fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory> {
        self.gate.pass(&self.gate.commits);
        self.region.commit(offset, bytes)
    }
    fn release(&self, offset: usize, bytes: usize) {
        self.region.release(offset, bytes);
    }
    fn collapse(&self, offset: usize) {
        self.region.collapse(offset);
    }
    fn populate(&self, offset: usize, bytes: usize) -> bool {
        self.gate.pass(&self.gate.populates);
        self.region.populate(offset, bytes)
    }
}

fn slow_zone() -> (Arc<Gate>, Zone) {
    let gate = Arc::new(Gate::default());
    let options = ZoneOptions { collapse: true, ..ZoneOptions::new(2, 32 * FRAMES_PER_PAGEBLOCK) };
    let zone = Zone::new(&SlowProvider(gate.clone()), options).unwrap();
    (gate, zone)
}

#[test]
fn nobody_waits_for_the_memory_of_another_threads_frames() {
    let (gate, zone) = slow_zone();
    gate.populates.store(true, Relaxed);
    gate.beside(
        || assert!(zone.alloc(Cpu(0)).is_some()),
        || {
            // This CPU, and the other one.
            for cpu in [0, 1].map(Cpu) {
                let frames: Vec<_> = (0..1000).map(|_| zone.alloc(cpu)).collect();
                for frame in frames {
                    zone.free(cpu, frame.unwrap());
                }
            }
        },
    );
    zone.validate();
}

#[test]
fn nobody_waits_for_the_growth_of_the_zone() {
    let (gate, zone) = slow_zone();
    let all = (0..16 * FRAMES_PER_PAGEBLOCK).map(|_| zone.alloc(Cpu(1)).unwrap());
    let all: Vec<_> = all.collect();
    let managed = zone.stats().managed;
    assert_eq!(managed, u64::from(16 * FRAMES_PER_PAGEBLOCK), "all of it is allocated now");
    gate.commits.store(true, Relaxed);
    gate.beside(
        || assert!(zone.alloc(Cpu(0)).is_some()),
        || {
            all[..512].iter().for_each(|frame| zone.free(Cpu(1), *frame));
            all[512..1024].iter().for_each(|frame| zone.free(Cpu(0), *frame));
            for cpu in [0, 1].map(Cpu) {
                let frames: Vec<_> = (0..100).map(|_| zone.alloc(cpu)).collect();
                for frame in frames {
                    zone.free(cpu, frame.unwrap());
                }
            }
        },
    );
    zone.validate();
    assert!(zone.stats().managed > managed);
}
