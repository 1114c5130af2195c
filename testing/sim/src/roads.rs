//! The tests that every road to a device must pass: NBD, files, block devices, virtual machines.
//!
//! A road is what a client sees of a device. So a client is a [`BlockDevice`] here, and the road
//! must pass what its device passes: [`suite::block_device`], by several threads as well. Further
//! parts are about the road itself: flushes, ends, errors, waits, a server that goes away, and
//! peers that mean no good. What a road has not it says by [`Lack`], and [`pass`] prints it.

mod controls;
mod file;
mod subject;

use std::io::Write;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit, ZeroMode};
use testkit::{Rng, cases};
use units::{Cpu, PAGE_SIZE};

use crate::model::{Drive, Model};
use crate::suite::{self, Crowd};

pub use controls::{RoadFlaw, Short};
pub use file::FileClient;
pub use subject::{Kind, Subject};
use subject::{LETS_GO, PANICS, WAITING};

const P: u64 = PAGE_SIZE as u64;
/// What is never answered within this time hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client at the end of a road. Threads may share it. It splits what is too long for its road,
/// and leaves the edges of a discard alone that its road would give up with the rest.
pub trait Client: BlockDevice {
    /// Another client of the same device.
    fn another(&self) -> Arc<dyn Client>;

    /// The server goes away, or is cut off. Returns when it has.
    fn lose_server(&self);

    /// A peer comes to the server, does anything, and goes.
    fn stranger(&self, rng: &mut Rng);
}

/// What a road has not, so that this is left out of the suite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// Discards and zeroes that pass the end are cut off there, as holes of files are.
    EndsOfFrees,
    /// A full device has no error of its own: it fails, as a broken one.
    FullError,
    /// Requests that wait hold up others: [`waits`].
    Waits,
    /// Nobody can take the server away: [`loss`].
    Loss,
    /// There is nobody but the clients: [`strangers`].
    Strangers,
}

/// The whole suite for the road `name`, whose servers and clients `open` makes.
///
/// # Panics
/// With what is wrong.
pub fn pass(name: &str, lacks: &[Lack], open: impl Fn(Subject) -> Arc<dyn Client>) {
    let seed = testkit::seed(name);
    let lacking: Vec<String> = lacks.iter().map(|lack| format!("{lack:?}")).collect();
    if !lacking.is_empty() {
        // Past the harness, which hides the output of what passes.
        let _ = writeln!(std::io::stderr(), "{name}: without {}", lacking.join(", "));
    }
    let has = |lack| !lacks.contains(&lack);
    suite::block_device(seed, |bytes| open(Kind::Plain.of(bytes)));
    let hesitant = |bytes| -> Arc<dyn BlockDevice> { open(Kind::Hesitant.of(bytes)) };
    suite::against_model(&hesitant, 16 * P, Drive::new(seed, cases(1500)));
    suite::neighbours(&*hesitant(16 * P), Crowd::new(seed));
    suite::filling_up(seed, |bytes| {
        let client = open(Kind::Full.of(bytes));
        if has(Lack::FullError) { client } else { Arc::new(Vague(client)) }
    });
    flushes(&*open(Kind::Deferring.of(16 * P)));
    faults(&*open(Kind::Faulty.of(16 * P)), seed);
    panics(&*open(Kind::Panicking.of(16 * P)));
    limits(&*open(Kind::Plain.of(3 * P)), has(Lack::EndsOfFrees));
    if has(Lack::Waits) {
        waits(&open(Kind::Waiting.of(16 * P)), PATIENCE);
    }
    if has(Lack::Loss) {
        loss(&open(Kind::Plain.of(16 * P)), PATIENCE);
    }
    if has(Lack::Strangers) {
        strangers(&*open(Kind::Plain.of(16 * P)), seed);
    }
}

fn read(client: &dyn Client, page: u64) -> Result<Vec<u8>, IoError> {
    let mut into = vec![0xa5; PAGE_SIZE];
    client.submit(Cpu(0), Operation::Read { offset: page * P, into: &mut into })?;
    Ok(into)
}

fn write(client: &dyn Client, page: u64, byte: u8) -> Result<(), IoError> {
    client.submit(Cpu(0), Operation::Write { offset: page * P, from: &[byte; PAGE_SIZE] })
}

/// A flush comes to the device after what was answered before it, and is answered when it is done.
/// The device shows only what was flushed.
pub fn flushes(client: &dyn Client) {
    for round in 1..=50 {
        for page in 0..4 {
            assert_eq!(write(client, page, round), Ok(()), "a write failed");
        }
        assert_eq!(client.submit(Cpu(0), Operation::Flush), Ok(()), "a flush failed");
        for page in 0..4 {
            let is = read(client, page).expect("a read").first().copied();
            assert_eq!(is, Some(round), "page {page} is older than the flush of round {round}");
        }
    }
}

/// Requests that pass the end of a device of three pages fail and change nothing before it, and the
/// client can go on.
pub fn limits(client: &dyn Client, frees_end: bool) {
    let bytes = client.geometry().bytes;
    assert_eq!(bytes, 3 * P, "another size");
    (0..3).for_each(|page| write(client, page, 7).expect("a write"));
    let mut two = [1; 2 * PAGE_SIZE];
    let (length, mode) = (2 * P, ZeroMode::MayPunch);
    for offset in [2 * P, 3 * P, 4 * P, 1 << 40] {
        let frees = [
            Operation::Discard { offset, length },
            Operation::WriteZeroes { offset, length, mode },
        ];
        for free in frees.into_iter().filter(|_| frees_end) {
            let what = format!("{free:?}");
            assert!(client.submit(Cpu(0), free).is_err(), "{what} passes the end, and succeeds");
        }
        let done = client.submit(Cpu(0), Operation::Read { offset, into: &mut two });
        assert!(done.is_err(), "a read at {offset} passes the end, and succeeds");
        two.fill(1);
        let done = client.submit(Cpu(0), Operation::Write { offset, from: &two });
        assert!(done.is_err(), "a write at {offset} passes the end, and succeeds");
        for page in 0..2 {
            assert_eq!(read(client, page), Ok(vec![7; PAGE_SIZE]), "page {page} has changed");
        }
    }
    assert_eq!(write(client, 2, 8), Ok(()), "the last page cannot be written");
    assert_eq!(read(client, 2), Ok(vec![8; PAGE_SIZE]), "the last page is lost");
}

/// A fault of the device fails its request, and no other one: what failed has changed nothing, what
/// did not is there.
pub fn faults(client: &dyn Client, seed: u64) {
    let mut rng = Rng::new(seed);
    let pages = client.geometry().bytes / P;
    let mut model = vec![0; pages as usize];
    let mut failed = [0; 2];
    let rounds = cases(1000);
    for round in 0..rounds {
        let (page, byte) = (rng.below(pages), round as u8);
        if rng.one_in(2) {
            match write(client, page, byte) {
                Ok(()) => model[page as usize] = byte,
                Err(_) => failed[0] += 1,
            }
        } else {
            match read(client, page) {
                Ok(is) => assert_eq!(is[0], model[page as usize], "page {page}, beside faults"),
                Err(_) => failed[1] += 1,
            }
        }
    }
    let few = |count: &usize| (1..rounds / 2).contains(count);
    assert!(failed.iter().all(few), "{failed:?} of {rounds} failed: a fifth of them should");
}

/// A device that panics at a page is one that fails there.
pub fn panics(client: &dyn Client) {
    // A road may know what was never written, and ask nobody.
    for page in [0, PANICS] {
        assert_eq!(write(client, page, 1), Ok(()), "a write failed");
    }
    for _ in 0..3 {
        assert!(read(client, PANICS).is_err(), "a panic gave an answer");
        assert_eq!(read(&*client.another(), 0), Ok(vec![1; PAGE_SIZE]), "after a panic");
    }
}

/// Reads of a page that wait until another one was written hold up nobody else.
pub fn waits(client: &Arc<dyn Client>, patience: Duration) {
    assert_eq!(write(&**client, WAITING, 1), Ok(()), "a write failed");
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            answered(patience, "a read that waited", move || read(&*client, WAITING))
        })
        .collect();
    let other = client.another();
    answered(patience, "another client, while one waits", move || {
        for round in 0..20 {
            write(&*other, 2, round).expect("a write");
            assert_eq!(read(&*other, 2), Ok(vec![round; PAGE_SIZE]), "beside reads that wait");
        }
        write(&*other, LETS_GO, 1).expect("a write");
    })();
    for wait in waiting {
        assert_eq!(wait(), Ok(vec![1; PAGE_SIZE]), "a read that waited");
    }
}

/// Once the server is lost, requests fail; none waits for ever.
pub fn loss(client: &Arc<dyn Client>, patience: Duration) {
    assert_eq!(write(&**client, 0, 1), Ok(()), "a write failed");
    let reader = client.clone();
    let reads =
        answered(patience, "a read without a server", move || while read(&*reader, 0).is_ok() {});
    client.lose_server();
    reads();
    let late = client.clone();
    let [first, second] = answered(patience, "a request without a server", move || {
        [write(&*late, 0, 2), read(&*late, 0).map(drop)]
    })();
    assert!(first.is_err() && second.is_err(), "{first:?}, {second:?} without a server");
}

/// Whatever strangers do, a client sees its device as it left it.
pub fn strangers(client: &dyn Client, seed: u64) {
    let rng = Mutex::new(Rng::new(seed));
    let drive = Drive::new(seed, cases(600));
    let beside = || {
        let mut own = rng.lock().unwrap_or_else(PoisonError::into_inner).fork();
        client.stranger(&mut own);
    };
    let mut model = Model::new(client, false);
    let right = |result: Result<(), String>| {
        result.unwrap_or_else(|wrong| panic!("{wrong}, beside strangers (drawn from {seed:#x})"));
    };
    let mut events = drive.events(client);
    let task = || events.by_ref().for_each(|event| right(model.step(client, &event)));
    suite::together(vec![Box::new(task)], &beside);
    beside();
    right(model.compare_all(client));
}

/// Does `task` on a thread of its own. Its result has to be waited for, `patience` at most.
fn answered<T: Send + 'static>(
    patience: Duration,
    what: &'static str,
    task: impl FnOnce() -> T + Send + 'static,
) -> impl FnOnce() -> T {
    let (ends, ended) = channel::<()>();
    let thread = thread::spawn(move || {
        // Dropped when the task ends or panics.
        let _ends = ends;
        task()
    });
    move || {
        let hangs = ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
        assert!(!hangs, "{what} is not answered");
        thread.join().unwrap_or_else(|payload| resume_unwind(payload))
    }
}

/// A client whose road says of a full device that it failed.
struct Vague(Arc<dyn Client>);

impl BlockDevice for Vague {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let full = if operation.changes() { IoError::NoSpace } else { IoError::Failed };
        self.0.perform(context, operation).map_err(|error| match error {
            IoError::Failed => full,
            error => error,
        })
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.0.extents(cpu, offset, length, visit)
    }
}
