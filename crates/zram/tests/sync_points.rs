//! Races, each at its worst moment: what others do between two steps of a request.

mod common;

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use block::{BlockDevice, Context, IoError, Operation, Wait};
use common::{SyncPoints, disk};
use control::Errno;
use units::{Cpu, PAGE_SIZE};
use zram::{Disk, Writeback};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;

/// Reads bytes 100 to 199 of the disk.
type Way<'a> = &'a dyn Fn(&Disk) -> Vec<u8>;

fn page(stamp: u8) -> [u8; PAGE_SIZE] {
    core::array::from_fn(|n| if n % 7 == 0 { n as u8 } else { stamp })
}

fn write_back(disk: &Disk, index: u64) {
    disk.writeback(&Writeback { select: None, pages: vec![(index, index)] }).unwrap();
}

/// After a reader has seen that page 0 is in the only block there is, it is stored anew, and the
/// block becomes page 1's.
fn block_changes_hands(sync_points: &SyncPoints, disk: &Arc<Disk>) {
    disk.store_page(CPU, 0, &page(10)).unwrap();
    disk.store_page(CPU, 1, &page(11)).unwrap();
    write_back(disk, 0);
    let other = disk.clone();
    *sync_points.found_elsewhere.lock().unwrap() = Some(Box::new(move || {
        other.store_page(CPU, 0, &page(20)).unwrap();
        write_back(&other, 1);
    }));
}

#[test]
fn a_block_that_changes_hands_is_not_read_for_its_first_page() {
    let sync_points = Arc::default();
    let disk = disk(&sync_points, 1);
    let whole = |disk: &Disk| {
        let mut bytes = vec![0; 2 * PAGE_SIZE];
        disk.submit(CPU, Operation::Read { offset: 0, into: &mut bytes }).unwrap();
        assert!(bytes[PAGE_SIZE..] == page(11));
        bytes[100..200].to_vec()
    };
    let part = |disk: &Disk| {
        let mut bytes = vec![0; 100];
        disk.submit(CPU, Operation::Read { offset: 100, into: &mut bytes }).unwrap();
        bytes
    };
    let single = |disk: &Disk| {
        let mut bytes = [0; PAGE_SIZE];
        disk.load_page(CPU, 0, &mut bytes).unwrap();
        bytes[100..200].to_vec()
    };
    let ways: [(&str, Way<'_>); 3] = [("whole", &whole), ("part", &part), ("single", &single)];
    for (way, read) in ways {
        block_changes_hands(&sync_points, &disk);
        assert!(read(&disk) == page(20)[100..200], "{way}");
        assert!(sync_points.found_elsewhere.lock().unwrap().is_none(), "{way}: nobody looked");
        disk.discard_pages(CPU, 0, 64).unwrap();
    }
    block_changes_hands(&sync_points, &disk);
    disk.submit(CPU, Operation::Write { offset: 100, from: &[1; 10] }).unwrap();
    let mut expected = page(20);
    expected[100..110].fill(1);
    let mut back = [0; PAGE_SIZE];
    disk.load_page(CPU, 0, &mut back).unwrap();
    assert!(back == expected, "a part was changed");
}

#[test]
fn a_page_that_is_used_before_it_is_copied_out_takes_no_block() {
    let sync_points: Arc<SyncPoints> = Arc::default();
    let disk = disk(&sync_points, 1);
    disk.store_page(CPU, 0, &page(10)).unwrap();
    for stored in [false, true] {
        let other = disk.clone();
        *sync_points.exporting.lock().unwrap() = Some(Box::new(move || {
            let mut back = [0; PAGE_SIZE];
            other.load_page(CPU, 0, &mut back).unwrap();
            if stored {
                other.store_page(CPU, 0, &page(20)).unwrap();
            }
        }));
        write_back(&disk, 0);
        assert!(sync_points.exporting.lock().unwrap().is_none(), "nothing was copied out");
        assert_eq!(disk.stats().backed_pages, 0, "it is in use");
    }
    write_back(&disk, 0);
    assert_eq!(disk.stats().backed_pages, 1, "the only block was free");
    let mut back = [0; PAGE_SIZE];
    disk.load_page(CPU, 0, &mut back).unwrap();
    assert!(back == page(20));
}

#[test]
fn what_is_stored_while_a_part_changes_is_not_lost() {
    let sync_points: Arc<SyncPoints> = Arc::default();
    let disk = disk(&sync_points, 4);
    let mut expected = page(20);
    expected[100..110].fill(1);
    for before in ["nothing", "in memory", "elsewhere"] {
        if before != "nothing" {
            disk.store_page(CPU, 0, &page(10)).unwrap();
        }
        if before == "elsewhere" {
            write_back(&disk, 0);
        }
        let other = disk.clone();
        *sync_points.editing.lock().unwrap() = Some(Box::new(move || {
            other.store_page(CPU, 0, &page(20)).unwrap();
        }));
        disk.submit(CPU, Operation::Write { offset: 100, from: &[1; 10] }).unwrap();
        assert!(sync_points.editing.lock().unwrap().is_none(), "{before}: nobody changed a part");
        let mut back = [0; PAGE_SIZE];
        disk.load_page(CPU, 0, &mut back).unwrap();
        assert!(back == expected, "{before}");
        disk.discard_pages(CPU, 0, 64).unwrap();
        assert_eq!(disk.stats().pool_bytes, 0, "{before}");
    }
}

#[test]
fn a_disk_does_not_shrink_past_a_page_that_is_being_stored() {
    let sync_points: Arc<SyncPoints> = Arc::default();
    let disk = disk(&sync_points, 1);
    for _ in 0..20 {
        let (outcome, outcomes) = mpsc::channel();
        let shrinking = disk.clone();
        *sync_points.storing.lock().unwrap() = Some(Box::new(move || {
            let other = shrinking.clone();
            thread::spawn(move || outcome.send(other.resize(32 * P)).unwrap());
            // It waits for this request from then on.
            while shrinking.bytes() != 32 * P {
                thread::yield_now();
            }
            for _ in 0..20 {
                thread::yield_now();
            }
        }));
        disk.store_page(CPU, 63, &page(1)).unwrap();
        assert_eq!(outcomes.recv().unwrap().unwrap_err().errno, Errno::EBUSY);
        assert_eq!(disk.bytes(), 64 * P);
        let mut back = [0; PAGE_SIZE];
        disk.load_page(CPU, 63, &mut back).unwrap();
        assert!(back == page(1));
        disk.discard_pages(CPU, 63, 1).unwrap();
    }
}

#[test]
fn a_shrink_that_fails_refuses_no_page_of_the_disk() {
    let sync_points: Arc<SyncPoints> = Arc::default();
    let disk = disk(&sync_points, 1);
    let (outcome, outcomes) = mpsc::channel();
    let (stored, stores) = mpsc::channel();
    let shrinking = disk.clone();
    *sync_points.storing.lock().unwrap() = Some(Box::new(move || {
        let other = shrinking.clone();
        thread::spawn(move || outcome.send(other.resize(32 * P)).unwrap());
        // It waits for this request from then on.
        while shrinking.bytes() != 32 * P {
            thread::yield_now();
        }
        let at_once = Context { cpu: CPU, wait: Wait::No };
        let write = Operation::Write { offset: 40 * P, from: &page(2) };
        let refused = shrinking.perform(at_once, write);
        let other = shrinking.clone();
        thread::spawn(move || stored.send((refused, other.store_page(CPU, 40, &page(3)))).unwrap());
        for _ in 0..20 {
            thread::yield_now();
        }
    }));
    disk.store_page(CPU, 63, &page(1)).unwrap();
    assert_eq!(outcomes.recv().unwrap().unwrap_err().errno, Errno::EBUSY);
    let results = stores.recv_timeout(Duration::from_secs(60)).expect("it waits for ever");
    assert_eq!(results, (Err(IoError::WouldBlock), Ok(())));
    let mut back = [0; PAGE_SIZE];
    disk.load_page(CPU, 40, &mut back).unwrap();
    assert!(back == page(3));
    assert_eq!(disk.stats().invalid_io, 0, "all of it lay within the disk");
    assert_eq!(disk.store_page(CPU, 64, &page(4)), Err(IoError::OutOfRange));
    assert_eq!(disk.stats().invalid_io, 1);
}
