//! What an administrator does while something is under way on the backing device. A gate holds its
//! writes or its reads, so that each test is at one certain point and depends on no timing.

use std::sync::{Arc, Barrier, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use control::{ControlError, Errno};
use machine::{Machine, MachineOptions};
use units::{Cpu, PAGE_SIZE};
use zram::{Budgets, Disk, HostFiles, Select, Writeback};

const CPU: Cpu = Cpu(0);
const PATIENCE: Duration = Duration::from_secs(60);

/// What the gate does with writes, or with reads.
#[derive(Default)]
struct Gate {
    closed: bool,
    to_reads: bool,
    waiting: usize,
    fails: bool,
}

struct Gated {
    next: Plain,
    gate: Mutex<Gate>,
    changed: Condvar,
}

impl Gated {
    fn new() -> Arc<Gated> {
        let (gate, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Gated { next: Plain::new(64 * PAGE_SIZE), gate, changed })
    }

    fn close(&self) {
        self.gate.lock().unwrap().closed = true;
    }

    /// Holds reads instead of writes.
    fn close_to_reads(&self) {
        *self.gate.lock().unwrap() = Gate { closed: true, to_reads: true, ..Gate::default() };
    }

    fn open(&self, fails: bool) {
        *self.gate.lock().unwrap() = Gate { fails, ..Gate::default() };
        self.changed.notify_all();
    }

    /// Waits until somebody stands before the closed gate.
    fn await_somebody(&self) {
        let gate = self.gate.lock().unwrap();
        let (gate, _) =
            self.changed.wait_timeout_while(gate, PATIENCE, |gate| gate.waiting == 0).unwrap();
        assert!(gate.waiting > 0, "nobody came");
    }
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let reads = match operation {
            Operation::Write { .. } => false,
            Operation::Read { .. } => true,
            _ => return self.next.perform(context, operation),
        };
        let mut gate = self.gate.lock().unwrap();
        if gate.to_reads == reads {
            gate.waiting += usize::from(gate.closed);
            self.changed.notify_all();
            gate = self.changed.wait_while(gate, |gate| gate.closed).unwrap();
            if gate.fails {
                return Err(IoError::Failed);
            }
        }
        drop(gate);
        self.next.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}

struct One(Arc<Gated>);

/// Files that take long to open: until what is to be done meanwhile is done.
#[derive(Default)]
struct Slow {
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl HostFiles for Slow {
    fn open_backing(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn BlockDevice>, ControlError> {
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
        Ok(Gated::new())
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::invalid(path))
    }
}

impl HostFiles for One {
    fn open_backing(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Ok(self.0.clone())
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::invalid(path))
    }
}

fn machine(backing: &Arc<Gated>) -> Machine {
    machine_with(Arc::new(One(backing.clone())))
}

fn machine_with(files: Arc<dyn HostFiles>) -> Machine {
    let options = MachineOptions {
        cpus: 2,
        memory: 1 << 28,
        files,
        swap_memory: Arc::new(host::Mmap),
        track_access: false,
    };
    Machine::new(Arc::new(host::Mmap), options).unwrap()
}

fn page(stamp: u64) -> [u8; PAGE_SIZE] {
    let mut rng = testkit::Rng::new(stamp);
    core::array::from_fn(|_| b"etaoin s"[rng.below(8) as usize])
}

fn with_pages(machine: &Machine, pages: u64) -> Arc<Disk> {
    let disk = machine.add().unwrap();
    disk.set_backing("/gated").unwrap();
    disk.set_disksize(1 << 20).unwrap();
    (0..pages).for_each(|index| disk.store_page(CPU, index, &page(index)).unwrap());
    disk
}

fn all() -> Writeback {
    Writeback { select: Some(Select::Any), pages: Vec::new() }
}

#[test]
fn removing_a_device_that_is_busy_holds_up_no_other() {
    let backing = Gated::new();
    let machine = machine(&backing);
    let disk = with_pages(&machine, 4);
    let other = machine.add().unwrap();
    backing.close();
    thread::scope(|scope| {
        scope.spawn(|| disk.writeback(&all()).unwrap());
        backing.await_somebody();
        let (removed, removes) = mpsc::channel();
        let machine = &machine;
        scope.spawn(move || removed.send(machine.remove(0)).unwrap());
        // Long enough for it to begin to wait for the writeback.
        let early = removes.recv_timeout(Duration::from_millis(100));
        let (seen, sees) = mpsc::channel();
        let id = other.id();
        scope.spawn(move || seen.send(machine.disk(id).is_some()).unwrap());
        let found = sees.recv_timeout(Duration::from_secs(10));
        backing.open(false);
        assert_eq!(found, Ok(true), "the other device was held up");
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "it waits for the writeback");
        removes.recv_timeout(PATIENCE).unwrap().unwrap();
    });
    assert!(machine.disk(0).is_none());
    assert_eq!(machine.remove(0).unwrap_err().errno, Errno::ENODEV);
    assert_eq!(machine.frames().stats().allocated, 0);
}

#[test]
fn nobody_waits_for_a_backing_device_that_is_being_opened() {
    let files = Arc::new(Slow::default());
    let machine = machine_with(files.clone());
    let disk = machine.add().unwrap();
    let (told, tells) = mpsc::channel();
    let asked = disk.clone();
    let ask = move || {
        let (say, said) = mpsc::channel();
        // What `status` and the thread of the tiers ask of each disk.
        let ask = move || {
            let all = (asked.stats().disksize, asked.auto(), asked.backing_path(), asked.openers());
            // Nobody hears it if it comes too late.
            let _ = say.send(all);
        };
        thread::spawn(ask);
        told.send(said.recv_timeout(Duration::from_secs(10))).unwrap();
    };
    *files.meanwhile.lock().unwrap() = Some(Box::new(ask));
    disk.set_backing("/slow").unwrap();
    assert_eq!(tells.recv().unwrap(), Ok((0, false, None, 0)), "it waited");
    assert_eq!(disk.backing_path().as_deref(), Some("/slow"));
}

#[test]
fn what_was_not_taken_from_the_limit_is_not_given_back() {
    for limited in [false, true] {
        let backing = Gated::new();
        let machine = machine(&backing);
        let disk = with_pages(&machine, 4);
        disk.set_writeback_limit(10);
        disk.limit_writeback(limited);
        backing.close();
        thread::scope(|scope| {
            let writeback = scope.spawn(|| disk.writeback(&all()));
            backing.await_somebody();
            disk.limit_writeback(!limited);
            backing.open(true);
            assert_eq!(writeback.join().unwrap().unwrap_err().errno, Errno::EIO);
        });
        assert_eq!(disk.writeback_limit(), (10, !limited), "every write failed");
        assert_eq!(disk.stats().backed_pages, 0);
    }
}

#[test]
fn pages_used_while_they_are_written_stay() {
    let backing = Gated::new();
    let machine = machine(&backing);
    let disk = with_pages(&machine, 6);
    for round in 0..40 {
        backing.close();
        thread::scope(|scope| {
            let writeback = scope.spawn(|| disk.writeback(&all()));
            backing.await_somebody();
            // Read, stored anew with the same, changed in part, discarded; two are left alone.
            let mut back = [0; PAGE_SIZE];
            disk.load_page(CPU, 0, &mut back).unwrap();
            assert!(back == page(0));
            disk.store_page(CPU, 1, &page(1 + 100 * round)).unwrap();
            let write = Operation::Write { offset: 2 * PAGE_SIZE as u64, from: &[round as u8; 10] };
            disk.submit(CPU, write).unwrap();
            disk.discard_pages(CPU, 3, 1).unwrap();
            backing.open(false);
            writeback.join().unwrap().unwrap();
        });
        let stats = disk.stats();
        assert_eq!((stats.pages_stored, stats.backed_pages), (5, 2), "round {round}");
        let mut third = page(2);
        third[..10].fill(round as u8);
        let expected = [page(0), page(1 + 100 * round), third, [0; PAGE_SIZE], page(4), page(5)];
        for (index, expected) in expected.iter().enumerate() {
            let mut back = [0; PAGE_SIZE];
            disk.load_page(CPU, index as u64, &mut back).unwrap();
            assert!(back == *expected, "round {round}: page {index}");
        }
        // Anew, in memory all of them; blocks that leaked would be missed after some rounds.
        disk.discard_pages(CPU, 0, 6).unwrap();
        (0..6).for_each(|index| disk.store_page(CPU, index, &page(index)).unwrap());
    }
    disk.discard_pages(CPU, 0, 256).unwrap();
    assert_eq!(disk.stats().compressed_bytes, 0);
    assert_eq!(machine.frames().stats().allocated, 0);
}

#[test]
fn a_codec_chosen_while_the_size_is_set_is_used() {
    let backing = Gated::new();
    let machine = machine(&backing);
    for round in 0..200 {
        let disk = machine.add().unwrap();
        let begin = Barrier::new(2);
        thread::scope(|scope| {
            let sized = scope.spawn(|| {
                begin.wait();
                disk.set_disksize(1 << 20)
            });
            begin.wait();
            // At another moment each time.
            (0..round * 20).for_each(|_| core::hint::spin_loop());
            disk.switch_algorithm(0, "zstd", zcomp::Params::default()).unwrap();
            sized.join().unwrap().unwrap();
        });
        disk.store_page(CPU, 0, &page(0)).unwrap();
        let stats = disk.stats();
        assert_eq!(stats.algorithm, "zstd");
        assert!(stats.compressed_bytes < 2000, "round {round}: lz4 made this: {stats:?}");
        machine.remove(disk.id()).unwrap();
    }
}

#[test]
fn a_device_in_use_refuses_a_reset_at_once() {
    let backing = Gated::new();
    let machine = machine(&backing);
    let disk = with_pages(&machine, 4);
    let user = disk.open();
    backing.close();
    thread::scope(|scope| {
        let writeback = scope.spawn(|| disk.writeback(&all()));
        backing.await_somebody();
        let (refused, refusals) = mpsc::channel();
        let (disk, machine) = (&disk, &machine);
        scope.spawn(move || {
            refused.send([disk.reset(), machine.remove(0), disk.set_disksize(1)]).unwrap();
        });
        let results = refusals.recv_timeout(Duration::from_secs(10));
        backing.open(false);
        for result in results.expect("they waited for the writeback") {
            assert_eq!(result.unwrap_err().errno, Errno::EBUSY);
        }
        writeback.join().unwrap().unwrap();
    });
    drop(user);
    machine.remove(0).unwrap();
}

/// What reads or changes pages that are on the backing device. Returns what page 0 reads as.
type Way = fn(&Disk) -> [u8; PAGE_SIZE];

/// All of it, in each way.
const WAYS: [(&str, Way); 4] = [
    ("one page", |disk| {
        let mut back = [0; PAGE_SIZE];
        disk.load_page(CPU, 0, &mut back).unwrap();
        back
    }),
    ("three pages", |disk| {
        let mut back = [0; 3 * PAGE_SIZE];
        disk.submit(CPU, Operation::Read { offset: 0, into: &mut back }).unwrap();
        assert!(back[PAGE_SIZE..2 * PAGE_SIZE] == page(1) && back[2 * PAGE_SIZE..] == page(2));
        *back.first_chunk().unwrap()
    }),
    ("parts of pages", |disk| {
        let mut back = [0; 2 * PAGE_SIZE + 100];
        disk.submit(CPU, Operation::Read { offset: 4096 + 4000, into: &mut back[..4192] }).unwrap();
        assert!(back[..96] == page(1)[4000..] && back[96..4192] == page(2));
        let mut back = [0; PAGE_SIZE];
        for (n, half) in back.chunks_mut(2048).enumerate() {
            disk.submit(CPU, Operation::Read { offset: n as u64 * 2048, into: half }).unwrap();
        }
        back
    }),
    ("a part that changes", |disk| {
        let from = page(0);
        let write = Operation::Write { offset: 100, from: &from[100..200] };
        disk.submit(CPU, write).unwrap();
        let mut back = [0; PAGE_SIZE];
        disk.load_page(CPU, 0, &mut back).unwrap();
        back
    }),
];

/// A disk with four pages on its backing device; compressed there, or not.
fn written_back(machine: &Machine, compressed: bool) -> Arc<Disk> {
    let disk = machine.add().unwrap();
    disk.set_backing("/gated").unwrap();
    disk.set_compressed_writeback(compressed).unwrap();
    disk.set_disksize(1 << 20).unwrap();
    (0..4).for_each(|index| disk.store_page(CPU, index, &page(index)).unwrap());
    disk.writeback(&all()).unwrap();
    assert_eq!(disk.stats().backed_pages, 4);
    disk
}

/// Does some work while the gate is closed, and then opens it. The work must not wait for that.
fn while_it_is_closed(backing: &Gated, work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let (done, results) = mpsc::channel();
        scope.spawn(move || {
            work();
            let _ = done.send(());
        });
        let worked = results.recv_timeout(Duration::from_secs(10));
        backing.open(false);
        assert_eq!(worked, Ok(()), "it waited for the backing device, or failed");
    });
}

#[test]
fn a_read_of_the_backing_device_holds_up_no_administrator() {
    let both = WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]);
    for ((way, read), compressed) in both {
        let backing = Gated::new();
        let machine = machine(&backing);
        let disk = written_back(&machine, compressed);
        backing.close_to_reads();
        thread::scope(|scope| {
            let reading = scope.spawn(|| read(&disk));
            backing.await_somebody();
            while_it_is_closed(&backing, || {
                disk.compact().unwrap();
                disk.resize(1 << 19).unwrap();
                disk.switch_algorithm(0, "zstd", zcomp::Params::default()).unwrap();
                disk.switch_algorithm(0, "lzo", zcomp::Params::default()).unwrap();
            });
            assert!(reading.join().unwrap() == page(0), "{way}");
        });
        assert_eq!(disk.stats().failed_reads + disk.stats().failed_writes, 0, "{way}");
    }
}

/// A disk whose pages move by themselves, to the backing device if it has one.
fn with_tiers(machine: &Machine, backing: bool) -> Arc<Disk> {
    let disk = machine.add().unwrap();
    disk.set_track_access(true).unwrap();
    if backing {
        disk.set_backing("/gated").unwrap();
        disk.set_budgets(Budgets { written_a_day: 1 << 40, ..Budgets::default() }).unwrap();
    }
    disk.set_auto(true).unwrap();
    disk.set_disksize(1 << 20).unwrap();
    (0..4).for_each(|index| disk.store_page(CPU, index, &page(index)).unwrap());
    disk
}

#[test]
fn who_asks_what_the_tiers_did_waits_for_no_backing_device() {
    let backing = Gated::new();
    let machine = machine(&backing);
    let disk = with_tiers(&machine, true);
    backing.close();
    let go = |seconds: std::ops::Range<u32>| {
        for second in seconds {
            machine.set_clock(second);
            disk.move_pages(1_000_000_000, &|| 0).unwrap();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| go(1..2000));
        backing.await_somebody();
        while_it_is_closed(&backing, || assert!(disk.tier_stats().passes > 0));
    });
    let (stats, backed) = (disk.tier_stats(), disk.stats().backed_pages);
    assert_eq!((stats.written_bytes, backed), (4 * PAGE_SIZE as u64, 4));
}

/// As the threads of the tiers of a daemon: one is kept by a device, and the next goes on.
#[test]
fn while_a_backing_device_hangs_pages_of_other_disks_move() {
    let backing = Gated::new();
    let machine = machine(&backing);
    let (disk, other) = (with_tiers(&machine, true), with_tiers(&machine, false));
    backing.close();
    let go = |seconds: std::ops::Range<u32>| {
        for second in seconds {
            machine.set_clock(second);
            machine.move_pages(Duration::from_secs(1)).unwrap();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| go(1..2000));
        backing.await_somebody();
        while_it_is_closed(&backing, || {
            let passes = || [&disk, &other].map(|disk| disk.tier_stats().passes);
            for is_on in [true, false] {
                disk.set_auto(is_on).unwrap();
                let before = passes();
                go(if is_on { 2000..2100 } else { 2100..2200 });
                let after = passes();
                assert!(before[0] == after[0] && before[1] < after[1], "{before:?} {after:?}");
            }
        });
    });
    assert!(disk.stats().backed_pages > 0);
}

#[test]
fn a_codec_may_go_while_a_page_that_needed_it_is_fetched() {
    for (way, read) in WAYS {
        let backing = Gated::new();
        let machine = machine(&backing);
        let disk = written_back(&machine, true);
        backing.close_to_reads();
        thread::scope(|scope| {
            let reading = scope.spawn(|| read(&disk));
            backing.await_somebody();
            while_it_is_closed(&backing, || {
                disk.switch_algorithm(0, "zstd", zcomp::Params::default()).unwrap();
                // No page needs the first codec any more.
                (0..4).for_each(|index| disk.store_page(CPU, index, &page(index)).unwrap());
                disk.switch_algorithm(0, "lzo", zcomp::Params::default()).unwrap();
            });
            assert!(reading.join().unwrap() == page(0), "{way}");
        });
        assert_eq!(disk.stats().failed_reads + disk.stats().failed_writes, 0, "{way}");
    }
}

#[test]
fn a_part_is_not_changed_behind_the_new_end_of_a_disk() {
    let backing = Gated::new();
    let machine = machine(&backing);
    let disk = written_back(&machine, false);
    backing.close_to_reads();
    thread::scope(|scope| {
        let write = Operation::Write { offset: 3 * PAGE_SIZE as u64 + 100, from: &[1; 10] };
        let writing = scope.spawn(|| disk.submit(CPU, write));
        backing.await_somebody();
        while_it_is_closed(&backing, || {
            assert_eq!(disk.resize(3 * PAGE_SIZE as u64).unwrap_err().errno, Errno::EBUSY);
            disk.discard_pages(CPU, 3, 1).unwrap();
            disk.resize(3 * PAGE_SIZE as u64).unwrap();
        });
        assert_eq!(writing.join().unwrap(), Err(IoError::OutOfRange));
    });
    disk.resize(1 << 20).unwrap();
    let mut back = [1; PAGE_SIZE];
    disk.load_page(CPU, 3, &mut back).unwrap();
    assert!(back == [0; PAGE_SIZE]);
}
