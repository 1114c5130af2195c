//! What a disk or the swap cache gave up cannot be found in the memory of the zone, which other
//! disks get next.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use machine::{Machine, MachineOptions};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, NoHostFiles};
use zswap::{AreaOptions, Key, SwapType};

const CPU: Cpu = Cpu(0);
const PAGES: u64 = 700;
/// Codecs leave it as it is, because it comes once in a page and nothing else is like it.
const SECRET: [u8; 16] = *b"Xq7;4wZ,9k{Vu2~P";

fn machine() -> Machine {
    let options = MachineOptions {
        cpus: 2,
        memory: 1 << 28,
        files: Arc::new(NoHostFiles),
        swap_memory: Arc::new(host::Mmap),
        track_access: false,
    };
    Machine::new(Arc::new(host::Mmap), options).unwrap()
}

/// Pages with the secret: some that compress, and some that are kept as they are.
fn page(number: u64) -> Page {
    let mut random = testkit::Rng::new(number);
    let mut page = [0; PAGE_SIZE];
    let noise = if number.is_multiple_of(2) { PAGE_SIZE } else { 200 };
    random.fill(&mut page[..noise]);
    page[100..116].copy_from_slice(&SECRET);
    page
}

/// How often the secret is in the memory of a zone.
fn secrets(frames: &dyn pagealloc::Frames) -> usize {
    let memory = File::open("/proc/self/mem").unwrap();
    let mut bytes = vec![0; frames.stats().managed as usize * PAGE_SIZE];
    memory.read_exact_at(&mut bytes, frames.base().as_ptr() as u64).unwrap();
    bytes.windows(SECRET.len()).filter(|bytes| *bytes == SECRET).count()
}

fn fill(disk: &Disk) {
    for number in 0..PAGES {
        disk.store_page(CPU, number, &page(number)).unwrap();
    }
}

fn with_secrets(machine: &Machine) -> Arc<Disk> {
    let disk = machine.add().unwrap();
    disk.set_disksize(PAGES * PAGE_SIZE as u64).unwrap();
    fill(&disk);
    assert_eq!(secrets(&**machine.frames()), PAGES as usize, "the test cannot see the secret");
    disk
}

#[test]
fn pages_that_were_discarded_are_gone() {
    let machine = machine();
    let disk = with_secrets(&machine);
    disk.discard_pages(CPU, 0, PAGES).unwrap();
    assert_eq!(secrets(&**machine.frames()), 0);
}

#[test]
fn pages_that_shrank_to_nothing_are_gone() {
    let machine = machine();
    let disk = with_secrets(&machine);
    for number in 0..PAGES {
        disk.store_page(CPU, number, &[number as u8; PAGE_SIZE]).unwrap();
    }
    assert_eq!(secrets(&**machine.frames()), 0);
}

#[test]
fn a_disk_that_was_reset_leaves_nothing() {
    let machine = machine();
    let disk = with_secrets(&machine);
    let other = machine.add().unwrap();
    other.set_disksize(PAGES * PAGE_SIZE as u64).unwrap();
    disk.reset().unwrap();
    assert_eq!(secrets(&**machine.frames()), 0);
    machine.remove(disk.id()).unwrap();
    assert_eq!(secrets(&**machine.frames()), 0);
}

#[test]
fn what_compaction_moved_stays_once() {
    let machine = machine();
    let disk = with_secrets(&machine);
    for number in (0..PAGES).filter(|number| number % 5 != 0) {
        disk.discard_pages(CPU, number, 1).unwrap();
    }
    disk.compact().unwrap();
    // Frames that are free hold nothing. A frame in use may hold what the same disk freed in it.
    disk.discard_pages(CPU, 0, PAGES).unwrap();
    assert_eq!(secrets(&**machine.frames()), 0);
}

#[test]
fn swapped_pages_that_were_freed_are_gone() {
    let machine = machine();
    let zswap = machine.swap().unwrap();
    let (swap, memcg) = (SwapType::new(0).unwrap(), zswap.memcg("secret").unwrap());
    let options = AreaOptions { device: None, memcg: memcg.clone() };
    zswap.swapon(swap, PAGES, options).unwrap();
    for offset in 0..PAGES {
        // Without a device a page that does not compress is refused.
        let page = page(2 * offset + 1);
        zswap.store(CPU, Key { swap, offset }, &memcg, &page).unwrap();
    }
    assert_eq!(secrets(&**zswap.zone()), PAGES as usize, "the test cannot see the secret");
    zswap.invalidate_area(CPU, swap);
    zswap.swapoff(swap).unwrap();
    assert_eq!(secrets(&**zswap.zone()), 0);
}
