//! The layer over a device in memory that keeps what it was given, and that the tests change behind
//! its back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use block::{
    Abilities, BlockDevice, Context, ExtentKind, Geometry, IoError, Job, Operation, Visit,
};
use host::Memfds;
use seal::Sealed;
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;
const BLOCKS: u64 = 256;

/// A device in memory.
struct Memory {
    bytes: Mutex<Vec<u8>>,
    /// Its length in blocks, as it is told.
    blocks: AtomicU64,
    /// Writes from now on that fail after their first half.
    torn: Mutex<u32>,
}

impl Memory {
    fn new() -> Arc<Memory> {
        Arc::new(Memory {
            bytes: Mutex::new(vec![0xee; (BLOCKS * P) as usize]),
            blocks: AtomicU64::new(BLOCKS),
            torn: Mutex::new(0),
        })
    }

    fn block(&self, block: u64) -> Vec<u8> {
        self.bytes.lock().unwrap()[(block * P) as usize..][..PAGE_SIZE].to_vec()
    }

    fn put(&self, block: u64, bytes: &[u8]) {
        self.bytes.lock().unwrap()[(block * P) as usize..][..PAGE_SIZE].copy_from_slice(bytes);
    }
}

impl BlockDevice for Memory {
    fn geometry(&self) -> Geometry {
        let bytes = self.blocks.load(Ordering::Relaxed) * P;
        Geometry { bytes, minimum_block: 4096, preferred_block: 4096 }
    }
    fn abilities(&self) -> Abilities {
        Abilities { flush: true, ..Abilities::default() }
    }
    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        let range = offset as usize..(offset + length) as usize;
        let mut bytes = self.bytes.lock().unwrap();
        match operation {
            Operation::Read { into, .. } => into.copy_from_slice(&bytes[range]),
            Operation::Write { from, .. } => {
                assert!(from.as_ptr().addr().is_multiple_of(PAGE_SIZE), "direct I/O wants this");
                let mut torn = self.torn.lock().unwrap();
                if *torn > 0 {
                    *torn -= 1;
                    let half = from.len() / 2;
                    bytes[range][..half].copy_from_slice(&from[..half]);
                    return Err(IoError::Failed);
                }
                bytes[range].copy_from_slice(from);
            }
            _ => {}
        }
        Ok(())
    }
    fn extents(&self, _: Cpu, _: u64, _: u64, _: Visit<'_>) -> Result<(), IoError> {
        Err(IoError::Unsupported)
    }
}

fn sealed() -> (Arc<Memory>, Sealed) {
    let memory = Memory::new();
    let sealed = Sealed::new(memory.clone(), &host::Mmap, u64::MAX, 2).unwrap();
    (memory, sealed)
}

fn page(stamp: u8) -> Vec<u8> {
    (0..PAGE_SIZE).map(|n| stamp ^ (n as u8).wrapping_mul(31)).collect()
}

fn write(device: &Sealed, block: u64, bytes: &[u8]) {
    device.submit(CPU, Operation::Write { offset: block * P, from: bytes }).unwrap();
}

fn read(device: &Sealed, block: u64) -> Result<Vec<u8>, IoError> {
    let mut page = vec![0x55; PAGE_SIZE];
    device.submit(CPU, Operation::Read { offset: block * P, into: &mut page }).map(|()| page)
}

#[test]
fn what_leaves_memory_cannot_be_read() {
    let (memory, device) = sealed();
    let text = [b"a secret that nobody else may see".as_slice(), &[0; PAGE_SIZE]].concat();
    write(&device, 3, &text[..PAGE_SIZE]);
    let there = memory.block(3);
    let zeroes = there.iter().filter(|byte| **byte == 0).count();
    assert!(zeroes < 100, "{zeroes} bytes of zeroes are left");
    assert!(!there.windows(6).any(|part| part == b"secret"));
    assert_eq!(read(&device, 3).unwrap(), &text[..PAGE_SIZE]);
    // The same page looks different each time, and in each place.
    write(&device, 4, &text[..PAGE_SIZE]);
    assert_ne!(memory.block(4), there);
    write(&device, 3, &text[..PAGE_SIZE]);
    assert_ne!(memory.block(3), there);
    // Another run has another key.
    let other = Sealed::new(memory, &host::Mmap, u64::MAX, 2).unwrap();
    assert_eq!(read(&other, 3).unwrap(), vec![0; PAGE_SIZE], "nothing was written by this one");
}

/// What the process after this one has: the same regions.
fn adopted(memory: &Memfds) -> Memfds {
    let later = Memfds::new();
    for region in memory.regions() {
        let file = region.file.try_clone().unwrap();
        later.adopt(&region.name, file.into(), region.bytes).unwrap();
    }
    later
}

fn kept(memory: &Memfds, below: &Arc<Memory>) -> Sealed {
    let left = memory.regions().into_iter().find(|region| region.name == "seals");
    let key = memory.secret("key", seal::draw).unwrap();
    let seals = (&memory.provider("seals") as _, left.map(|region| region.bytes));
    Sealed::kept(below.clone(), seals, u64::MAX, 2, key).unwrap()
}

#[test]
fn a_later_process_opens_what_an_earlier_one_sealed() {
    let (below, mut memory) = (Memory::new(), Memfds::new());
    let mut device = kept(&memory, &below);
    write(&device, 3, &page(3));
    let mut seen = vec![below.block(3)];
    for _ in 0..3 {
        let later = adopted(&memory);
        // The process dies without dropping anything.
        std::mem::forget(std::mem::replace(&mut device, kept(&later, &below)));
        memory = later;
        assert_eq!(read(&device, 3).unwrap(), page(3));
        assert_eq!(read(&device, 4).unwrap(), vec![0; PAGE_SIZE]);
        // The same page in the same place: a number that was used before would show.
        write(&device, 3, &page(3));
        assert!(!seen.contains(&below.block(3)), "a number was used twice");
        seen.push(below.block(3));
    }
    below.put(3, &seen[0]);
    assert_eq!(read(&device, 3), Err(IoError::Corrupt), "an old block");
}

/// Between two processes a backing file may have become longer, also so much that its seals would
/// need another region, or shorter.
#[test]
fn no_number_is_used_again_when_the_device_has_another_length() {
    let (below, mut memory) = (Memory::new(), Memfds::new());
    let mut device = kept(&memory, &below);
    write(&device, 3, &page(3));
    write(&device, 200, &page(200));
    let mut seen = vec![below.block(3)];
    for blocks in [BLOCKS + 1, 300, 100, 7, BLOCKS, 1 << 20, 201] {
        below.blocks.store(blocks, Ordering::Relaxed);
        let later = adopted(&memory);
        std::mem::forget(std::mem::replace(&mut device, kept(&later, &below)));
        memory = later;
        assert_eq!(device.geometry().bytes, blocks.min(BLOCKS) * P, "as long as at first, or less");
        assert_eq!(read(&device, 3).unwrap(), page(3), "{blocks} blocks");
        write(&device, 3, &page(3));
        assert!(!seen.contains(&below.block(3)), "{blocks} blocks: a number was used twice");
        seen.push(below.block(3));
        assert_eq!(bad_blocks(&device), [], "of {blocks} blocks");
    }
    assert_eq!(read(&device, 200).unwrap(), page(200));
}

#[test]
fn seals_of_blocks_that_were_never_written_take_no_memory_in_a_later_process() {
    let (below, mut memory) = (Memory::new(), Memfds::new());
    // 24 MiB of seals.
    below.blocks.store(1 << 20, Ordering::Relaxed);
    let mut device = kept(&memory, &below);
    write(&device, 3, &page(3));
    let taken = |memory: &Memfds| {
        let regions = memory.regions();
        let seals = regions.iter().find(|region| region.name == "seals").unwrap();
        seals.resident_bytes().unwrap()
    };
    let before = taken(&memory);
    // It is absent, longer, or shorter.
    for blocks in [0, 2 << 20, 7] {
        below.blocks.store(blocks, Ordering::Relaxed);
        let later = adopted(&memory);
        std::mem::forget(std::mem::replace(&mut device, kept(&later, &below)));
        memory = later;
        let more = taken(&memory) - before;
        assert!(more <= 2 << 20, "{blocks} blocks: {more} bytes more");
    }
    assert_eq!(read(&device, 3).unwrap(), page(3));
}

/// A write that had a number but had not ended: the next process gives the number to nobody.
#[test]
fn a_block_that_was_being_written_at_the_death_is_an_error() {
    struct Dies(Arc<Memory>);
    impl BlockDevice for Dies {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn abilities(&self) -> Abilities {
            self.0.abilities()
        }
        fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
            let Operation::Write { offset, from } = operation else {
                return self.0.perform(context, operation);
            };
            self.0.perform(context, Operation::Write { offset, from })?;
            panic!("the process dies here");
        }
        fn extents(&self, _: Cpu, _: u64, _: u64, _: Visit<'_>) -> Result<(), IoError> {
            Err(IoError::Unsupported)
        }
    }
    let (below, memory) = (Memory::new(), Memfds::new());
    let key = memory.secret("key", seal::draw).unwrap();
    let seals = (&memory.provider("seals") as _, None);
    let dying = Sealed::kept(Arc::new(Dies(below.clone())), seals, u64::MAX, 2, key).unwrap();
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        write(&dying, 5, &page(5));
    }));
    assert!(died.is_err());
    let written = below.block(5);
    let device = kept(&adopted(&memory), &below);
    std::mem::forget(dying);
    assert_eq!(read(&device, 5), Err(IoError::Corrupt));
    write(&device, 5, &page(5));
    assert_ne!(below.block(5), written, "the number was used again");
    assert_eq!(read(&device, 5).unwrap(), page(5));
}

/// What can happen to blocks 7 and 8 of a device, and which pages it concerns.
type Harm = fn(&Memory, &Sealed);

#[test]
fn every_change_of_a_block_is_an_error_and_never_data() {
    let harms: [(&str, Harm, &[u64]); 7] = [
        ("a flipped bit", |memory, _| flip(memory, 7, 0), &[7]),
        ("the last bit", |memory, _| flip(memory, 7, PAGE_SIZE * 8 - 1), &[7]),
        ("an old block", |memory, device| old(memory, device, 7), &[7]),
        ("a torn block", |memory, device| torn(memory, device, 7), &[7]),
        ("another block's", |memory, _| memory.put(7, &memory.block(8)), &[7]),
        ("two changed places", |memory, _| swap(memory, 7, 8), &[7, 8]),
        ("zeroes", |memory, _| memory.put(7, &[0; PAGE_SIZE]), &[7]),
    ];
    for (what, harm, blocks) in harms {
        let (memory, device) = sealed();
        for block in 0..16 {
            write(&device, block, &page(block as u8));
        }
        harm(&memory, &device);
        for block in 0..16 {
            match read(&device, block) {
                Ok(found) => {
                    assert!(!blocks.contains(&block), "{what}: block {block} was read");
                    assert_eq!(found, page(block as u8), "{what}: block {block}");
                }
                Err(error) => {
                    assert_eq!(error, IoError::Corrupt, "{what}");
                    assert!(blocks.contains(&block), "{what}: block {block} was refused");
                }
            }
        }
        assert_eq!((written(&device), &*bad_blocks(&device)), (16, blocks), "{what}");
        // A write heals it.
        write(&device, 7, &page(99));
        assert_eq!(read(&device, 7).unwrap(), page(99), "{what}");
    }
}

/// The blocks that cannot be read.
fn bad_blocks(device: &Sealed) -> Vec<u64> {
    (0..device.geometry().bytes / P).filter(|block| read(device, *block).is_err()).collect()
}

/// The number of blocks that were written.
fn written(device: &Sealed) -> u64 {
    let mut bytes = 0;
    let mut count = |extent: block::Extent| {
        bytes += if extent.kind == block::ExtentKind::Data { extent.length } else { 0 };
        std::ops::ControlFlow::Continue(())
    };
    device.extents(CPU, 0, device.geometry().bytes, &mut count).unwrap();
    bytes / P
}

fn flip(memory: &Memory, block: u64, bit: usize) {
    let mut bytes = memory.block(block);
    bytes[bit / 8] ^= 1 << (bit % 8);
    memory.put(block, &bytes);
}

fn old(memory: &Memory, device: &Sealed, block: u64) {
    let before = memory.block(block);
    write(device, block, &page(block as u8));
    memory.put(block, &before);
}

fn torn(memory: &Memory, device: &Sealed, block: u64) {
    let before = memory.block(block);
    write(device, block, &page(block as u8));
    let mut mixed = memory.block(block);
    mixed[PAGE_SIZE / 2..].copy_from_slice(&before[PAGE_SIZE / 2..]);
    memory.put(block, &mixed);
}

fn swap(memory: &Memory, one: u64, other: u64) {
    let (first, second) = (memory.block(one), memory.block(other));
    memory.put(one, &second);
    memory.put(other, &first);
}

#[test]
fn a_write_that_fails_leaves_old_data_or_an_error() {
    let (memory, device) = sealed();
    let both = [page(1), page(2)].concat();
    write(&device, 0, &both);
    *memory.torn.lock().unwrap() = 1;
    let new = [page(3), page(4)].concat();
    let failed = device.submit(CPU, Operation::Write { offset: 0, from: &new });
    assert_eq!(failed, Err(IoError::Failed));
    assert_eq!(read(&device, 0), Err(IoError::Corrupt), "the device has half of the new pages");
    assert_eq!(read(&device, 1).unwrap(), page(2));
}

#[test]
fn what_was_given_up_or_never_written_reads_as_zeroes() {
    let (_, device) = sealed();
    assert_eq!(read(&device, 9).unwrap(), vec![0; PAGE_SIZE]);
    write(&device, 9, &[page(1), page(2), page(3)].concat());
    device.submit(CPU, Operation::Discard { offset: 10 * P, length: P }).unwrap();
    let mut three = vec![0; 3 * PAGE_SIZE];
    device.submit(CPU, Operation::Read { offset: 9 * P, into: &mut three }).unwrap();
    assert!(three == [page(1), vec![0; PAGE_SIZE], page(3)].concat());
    let mut kinds = Vec::new();
    let seen = device.extents(CPU, 8 * P, 5 * P, &mut |extent| {
        kinds.push((extent.length / P, extent.kind));
        std::ops::ControlFlow::Continue(())
    });
    seen.unwrap();
    use ExtentKind::{Data, Hole};
    assert_eq!(kinds, [(1, Hole), (1, Data), (1, Hole), (1, Data), (1, Hole)]);
}

#[test]
fn bad_ranges_are_refused_and_change_nothing() {
    let (_, device) = sealed();
    write(&device, BLOCKS - 1, &page(5));
    let from = page(6);
    let cases = [
        (Operation::Write { offset: 7, from: &from }, IoError::Unaligned),
        (Operation::Write { offset: 0, from: &from[..100] }, IoError::Unaligned),
        (Operation::Write { offset: BLOCKS * P, from: &from }, IoError::OutOfRange),
        (Operation::Discard { offset: u64::MAX, length: P }, IoError::OutOfRange),
        (Operation::Discard { offset: P * (BLOCKS - 1) + 1, length: 7 }, IoError::Unaligned),
    ];
    for (operation, error) in cases {
        assert_eq!(device.submit(CPU, operation), Err(error));
    }
    assert_eq!(read(&device, BLOCKS - 1).unwrap(), page(5));
}

/// One job of the model: block, pages, and the stamp that is written, or none for a read.
type Step = (u64, u64, Option<u8>);

#[test]
fn batches_of_jobs_do_what_a_map_does() {
    let mut rng = Rng::new(testkit::seed("batches_of_jobs_do_what_a_map_does"));
    let (_, device) = sealed();
    let mut model: BTreeMap<u64, u8> = BTreeMap::new();
    for _ in 0..2000 {
        // Jobs on different blocks, some larger than a buffer.
        let (mut steps, mut at): (Vec<Step>, u64) = (Vec::new(), rng.below(8));
        while at < BLOCKS {
            let most = if rng.below(20) == 0 { 60 } else { 4 };
            let pages = (1 + rng.below(most)).min(BLOCKS - at);
            let stamp = (rng.below(2) == 0).then(|| rng.below(256) as u8);
            steps.push((at, pages, stamp));
            at += pages + rng.below(16);
        }
        let mut buffers: Vec<Vec<u8>> = steps
            .iter()
            .map(|(_, pages, stamp)| match stamp {
                Some(stamp) => page(*stamp).repeat(*pages as usize),
                None => vec![0x77; *pages as usize * PAGE_SIZE],
            })
            .collect();
        let mut jobs: Vec<Job<'_>> = steps
            .iter()
            .zip(&mut buffers)
            .map(|((block, _, stamp), buffer)| {
                Job::new(match stamp {
                    Some(_) => Operation::Write { offset: block * P, from: buffer },
                    None => Operation::Read { offset: block * P, into: buffer },
                })
            })
            .collect();
        device.submit_all(CPU, &mut jobs);
        assert!(jobs.iter().all(|job| job.result.is_ok()));
        drop(jobs);
        for ((block, pages, stamp), buffer) in steps.iter().zip(&buffers) {
            for (n, found) in (*block..block + pages).zip(buffer.chunks(PAGE_SIZE)) {
                match stamp {
                    Some(stamp) => _ = model.insert(n, *stamp),
                    None => {
                        let expected = model.get(&n).map_or(vec![0; PAGE_SIZE], |s| page(*s));
                        assert!(found == expected, "block {n}");
                    }
                }
            }
        }
    }
    assert_eq!((written(&device), &*bad_blocks(&device)), (model.len() as u64, &[][..]));
}

#[test]
fn writers_of_different_blocks_share_few_buffers() {
    let (_, device) = sealed();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..200u64 {
                    let block = thread * 64 + round % 64;
                    let bytes = page((thread * 50 + round) as u8);
                    let write = Operation::Write { offset: block * P, from: &bytes };
                    device.submit(Cpu(thread as u32), write).unwrap();
                    assert_eq!(read(device, block).unwrap(), bytes);
                }
            });
        }
    });
}
