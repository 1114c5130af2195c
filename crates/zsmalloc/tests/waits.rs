//! No thread waits for the system call of another: the page allocator may make one when a frame is
//! allocated or freed, and meanwhile other threads store and free objects of the same size class.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pagealloc::{Frames, Zone, ZoneOptions, ZoneStats};
use units::{Cpu, Frame, PAGE_SIZE};
use zsmalloc::{Handle, Pool, Room};

/// Two objects of this size fill a frame.
const HALF: usize = PAGE_SIZE / 2;
/// After this time a thread is taken to wait for ever.
const LONG: Duration = Duration::from_secs(30);

/// A zone whose calls for one CPU wait while the gate is closed, as in a system call.
struct SlowZone {
    zone: Zone,
    slow: Cpu,
    allocs: AtomicBool,
    frees: AtomicBool,
    state: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    waiting: bool,
    open: bool,
}

impl SlowZone {
    fn pass(&self, cpu: Cpu, closed: &AtomicBool) {
        if cpu != self.slow || !closed.load(Relaxed) {
            return;
        }
        let mut state = self.state.lock().unwrap();
        state.waiting = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.open).unwrap());
    }

    fn until_somebody_waits(&self) {
        let state = self.state.lock().unwrap();
        let (state, _) =
            self.changed.wait_timeout_while(state, LONG, |state| !state.waiting).unwrap();
        assert!(state.waiting, "the page allocator was never called");
    }

    fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }
}

// SAFETY: the zone inside keeps the promises.
unsafe impl Frames for SlowZone {
    fn base(&self) -> NonNull<u8> {
        self.zone.base()
    }
    fn capacity(&self) -> u32 {
        self.zone.capacity()
    }
    fn alloc(&self, cpu: Cpu) -> Option<Frame> {
        self.pass(cpu, &self.allocs);
        self.zone.alloc(cpu)
    }
    fn free(&self, cpu: Cpu, frame: Frame) {
        self.pass(cpu, &self.frees);
        self.zone.free(cpu, frame);
    }
    fn drain(&self) {
        self.zone.drain();
    }
    fn stats(&self) -> ZoneStats {
        self.zone.stats()
    }
    fn free_blocks(&self, see: &mut dyn FnMut(Frame, u8)) {
        self.zone.free_blocks(see);
    }
    fn validate(&self) {
        self.zone.validate();
    }
}

struct Site {
    zone: Arc<SlowZone>,
    pool: Pool,
}

fn site(slow: Cpu) -> Site {
    let zone = Arc::new(SlowZone {
        zone: Zone::new(&host::Mmap, ZoneOptions::new(2, 1024)).unwrap(),
        slow,
        allocs: AtomicBool::new(false),
        frees: AtomicBool::new(false),
        state: Mutex::new(Gate::default()),
        changed: Condvar::new(),
    });
    let pool = Pool::new(&host::Mmap, zone.clone()).unwrap();
    Site { zone, pool }
}

impl Site {
    fn store(&self, cpu: Cpu) -> Handle {
        self.pool.store(cpu, Room::Open, &[7; HALF], None).unwrap()
    }

    fn free(&self, cpu: Cpu, handle: Handle) {
        // SAFETY: each test frees what it stored once, and nobody reads it.
        unsafe { self.pool.free(cpu, handle) }
    }

    /// Runs `slow`, which comes to wait in the page allocator, and beside it `quick`, which must
    /// end while the other still waits.
    fn beside(&self, slow: impl FnOnce() + Send, quick: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(slow);
            self.zone.until_somebody_waits();
            let (done, end) = mpsc::channel();
            scope.spawn(move || {
                quick();
                done.send(()).unwrap();
            });
            let ended = end.recv_timeout(LONG);
            self.zone.open();
            ended.expect("a thread waited for another one's system call");
        });
        self.pool.validate();
    }
}

#[test]
fn a_store_waits_for_no_other_threads_frame() {
    let site = site(Cpu(0));
    site.zone.allocs.store(true, Relaxed);
    site.beside(
        || _ = site.store(Cpu(0)),
        || {
            let first = site.store(Cpu(1));
            let second = site.store(Cpu(1));
            site.free(Cpu(1), first);
            site.free(Cpu(1), second);
        },
    );
    assert_eq!(site.pool.stats().objects, 1);
}

#[test]
fn a_store_waits_for_no_other_threads_free() {
    let site = site(Cpu(0));
    let alone = site.store(Cpu(1));
    site.zone.frees.store(true, Relaxed);
    site.beside(|| site.free(Cpu(0), alone), || _ = site.store(Cpu(1)));
    assert_eq!(site.pool.stats().objects, 1);
}

#[test]
fn a_store_waits_for_no_frame_of_compaction() {
    let site = site(Cpu(0));
    // Zspages of one object each: compaction empties all but one.
    let handles: Vec<Handle> = (0..64).map(|_| site.store(Cpu(1))).collect();
    for pair in handles.chunks(2) {
        site.free(Cpu(1), pair[0]);
    }
    site.zone.frees.store(true, Relaxed);
    site.beside(
        || {
            let mut left: Vec<Handle> = handles.iter().skip(1).step_by(2).copied().collect();
            site.pool.compact(Cpu(0), |pass| {
                for place in &mut left {
                    if !pass.is_leaving(*place) {
                        continue;
                    }
                    let Some(to) = pass.place_for(*place) else { continue };
                    // SAFETY: the object is live, and the place was taken for it.
                    unsafe { pass.copy(*place, to) };
                    site.free(Cpu(0), std::mem::replace(place, to));
                }
            });
        },
        || {
            let stored = site.store(Cpu(1));
            site.free(Cpu(1), stored);
        },
    );
    assert_eq!(site.pool.stats().objects, 32);
}
