//! What a scrub of a disk finds: pages that changed on the backing device, and no others.

#[path = "kills/kept.rs"]
#[allow(dead_code)]
mod kept;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use block::{Context, IoError, Operation};
use control::{Errno, Object};
use machine::Machine;
use testkit::{Rng, TempDir};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, Select, Writeback, attributes};

const CPU: Cpu = Cpu(0);
const PAGES: u64 = 40;

fn contents(page: u64) -> Page {
    let mut bytes = [0; PAGE_SIZE];
    Rng::new(page).fill(&mut bytes);
    bytes
}

/// A disk all of whose pages are in the file, in either layout, sealed or not.
fn written_back(file: &Path, layout: &str, sealed: &str) -> (Machine, Arc<Disk>) {
    File::create(file).unwrap().set_len(4 << 20).unwrap();
    let machine = Machine::new(Arc::new(host::Mmap), kept::options()).unwrap();
    let disk = machine.add().unwrap();
    for (name, value) in [
        ("sealed_backing", sealed),
        ("backing_layout", layout),
        ("backing_dev", file.to_str().unwrap()),
        ("disksize", "1M"),
    ] {
        attributes(disk.clone()).store(name, value).unwrap();
    }
    (0..PAGES).for_each(|page| disk.store_page(CPU, page, &contents(page)).unwrap());
    disk.writeback(&Writeback { select: Some(Select::Any), pages: Vec::new() }).unwrap();
    assert_eq!(disk.stats().backed_pages, PAGES);
    (machine, disk)
}

/// Changes a bit in the middle of a page's worth of the file that is in use, and returns how many
/// pages cannot be read then.
fn damage(file: &Path, disk: &Disk) -> Vec<u64> {
    let device = File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    let at = 3 * PAGE_SIZE as u64 + 1000;
    device.read_exact_at(&mut byte, at).unwrap();
    device.write_all_at(&[byte[0] ^ 8], at).unwrap();
    let mut page = [0; PAGE_SIZE];
    (0..PAGES)
        .filter(|index| disk.load_page(CPU, *index, &mut page) == Err(IoError::Corrupt))
        .collect()
}

#[test]
fn a_bad_block_is_found_until_no_page_has_it() {
    let directory = TempDir::new();
    for (layout, sealed) in [("pages", "1"), ("log", "1"), ("log", "0")] {
        let file = directory.path().join(format!("{layout}{sealed}"));
        let (_machine, disk) = written_back(&file, layout, sealed);
        assert_eq!(disk.scrub().unwrap(), PAGES, "{layout}");
        let bad = damage(&file, &disk);
        assert!((1..=2).contains(&bad.len()), "{layout}: {bad:?}");
        let error = disk.scrub().unwrap_err();
        assert_eq!(error.errno, Errno::EIO);
        let said = format!("{} of {PAGES} pages in ", bad.len());
        assert!(error.message.starts_with(&said), "{error}");
        // An object of the log may begin in the block before.
        let blocks = if layout == "pages" { 3..=3 } else { 2..=3 };
        let (_, block) = error.message.rsplit_once("; the first is block ").unwrap();
        assert!(blocks.contains(&block.parse().unwrap()), "{error}");
        for page in &bad {
            disk.store_page(CPU, *page, &contents(*page)).unwrap();
        }
        assert_eq!(disk.scrub().unwrap(), PAGES - bad.len() as u64, "{layout}: new contents");
        let (offset, length) = (0, PAGES * PAGE_SIZE as u64);
        let discard = Operation::Discard { offset, length };
        block::BlockDevice::perform(&disk.open(), Context::waiting(CPU), discard).unwrap();
        assert_eq!((disk.stats().backed_pages, disk.scrub().unwrap()), (0, 0), "{layout}");
    }
}

#[test]
fn pages_without_a_checksum_cannot_be_scrubbed() {
    let directory = TempDir::new();
    let (_machine, disk) = written_back(&directory.path().join("file"), "pages", "0");
    let error = disk.scrub().unwrap_err();
    assert_eq!(error.errno, Errno::ENOTSUP);
    assert!(error.message.contains("unsealed"), "{error}");
}
