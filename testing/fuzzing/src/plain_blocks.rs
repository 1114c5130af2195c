//! The blocks of a backing device that is not sealed: nothing tells that somebody changed them.

use std::sync::{Arc, OnceLock};

use block::{BlockDevice, Operation, Plain};
use control::{ControlError, Errno};
use pagealloc::{Zone, ZoneOptions};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, HostFiles, Recompress, Resources, Select, Writeback};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;
/// Pages of the disk. Every third one is same-filled and stays in memory.
const PAGES: u64 = 12;
const BLOCKS: usize = 16;

struct OneFile(Arc<Plain>);

impl HostFiles for OneFile {
    fn open_backing(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Ok(self.0.clone())
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::new(Errno::ENOENT, format!("{path} is not there")))
    }
}

/// Page `number` of the contents; they are made once.
fn page(number: u64) -> Page {
    static MADE: OnceLock<Vec<Page>> = OnceLock::new();
    MADE.get_or_init(|| (0..=PAGES).map(make_page).collect())[number as usize]
}

fn make_page(number: u64) -> Page {
    let mut random = fastrand::Rng::with_seed(number);
    let mut page = [0; PAGE_SIZE];
    match number % 3 {
        0 => page.fill(number as u8),
        1 => page.fill_with(|| random.u8(..)),
        _ => page.fill_with(|| b"page of text"[random.usize(..12)]),
    }
    page
}

/// A disk whose pages are written back, compressed or not, to `below`.
fn disk(below: &Arc<Plain>, codec: &str, compressed: bool) -> Arc<Disk> {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(1, 4096)).expect("addresses");
    let files = Arc::new(OneFile(below.clone()));
    let resources = Resources::new(Arc::new(host::Mmap), Arc::new(zone), 1, files);
    let disk = Disk::new(0, Arc::new(resources));
    let set_up = || {
        disk.set_algorithm(codec)?;
        disk.set_algorithm_at(1, "lzo")?;
        disk.set_sealed_backing(false)?;
        disk.set_backing("/below")?;
        disk.set_compressed_writeback(compressed)?;
        disk.set_disksize(PAGES * P)
    };
    set_up().expect("settings of a new disk");
    for number in 0..PAGES {
        disk.store_page(CPU, number, &page(number)).expect("there is memory");
    }
    let all = Writeback { select: Some(Select::Any), pages: Vec::new() };
    disk.writeback(&all).expect("there are blocks");
    disk
}

fn contents(device: &Plain) -> Vec<u8> {
    let mut bytes = vec![0; BLOCKS * PAGE_SIZE];
    let read = Operation::Read { offset: 0, into: &mut bytes };
    device.submit(CPU, read).expect("it is in memory");
    bytes
}

/// Changes of a backing device behind a disk's back; the first byte chooses the codec, and whether
/// the pages on it are compressed.
///
/// A page whose block did not change is right, and so is every page in memory. An uncompressed page
/// is what its block holds now; a compressed one is anything or an error. Parts of pages can be
/// written, pages compressed again and stored anew, and then all is as on any disk.
pub fn plain_blocks(input: &[u8]) {
    let (how, changes) = input.split_first().map_or((0, input), |(first, rest)| (*first, rest));
    let compressed = how & 1 != 0;
    let codec = ["lz4", "lzo-rle", "lz4", "842"][usize::from(how >> 1) % 4];
    let below = Arc::new(Plain::new(BLOCKS * PAGE_SIZE));
    let disk = disk(&below, codec, compressed);
    let before = contents(&below);
    let mut raw = before.clone();
    for change in changes.chunks(6) {
        let [high, low, bytes @ ..] = change else { break };
        let at = usize::from(u16::from_be_bytes([*high, *low])) * 2 % raw.len();
        raw[at..].iter_mut().zip(bytes).for_each(|(old, new)| *old ^= new);
    }
    below.submit(CPU, Operation::Write { offset: 0, from: &raw }).expect("it is in memory");

    for number in 0..PAGES {
        let mut found = [0x55; PAGE_SIZE];
        let read = disk.load_page(CPU, number, &mut found);
        let stored = page(number);
        if number % 3 == 0 || raw == before {
            assert!(read.is_ok() && found == stored, "page {number} is another one");
        } else if !compressed {
            let block = before.chunks(PAGE_SIZE).position(|block| block == stored);
            let block = block.expect("it was written back") * PAGE_SIZE;
            assert_eq!(read, Ok(()), "page {number}");
            assert!(found == raw[block..block + PAGE_SIZE], "page {number} is not its block");
        }
    }
    for number in 0..PAGES {
        // A change of a part fetches the page, which may be damaged.
        let _ = disk.submit(CPU, Operation::Write { offset: number * P + 100, from: &[7; 50] });
    }
    if how & 8 != 0 {
        let _ = disk.recompress(&Recompress::default());
        let _ = disk.compact();
    }
    for number in 0..PAGES {
        disk.store_page(CPU, number, &page(number + 1)).expect("there is memory");
    }
    for number in 0..PAGES {
        let mut found = [0x55; PAGE_SIZE];
        assert_eq!(disk.load_page(CPU, number, &mut found), Ok(()));
        assert!(found == page(number + 1), "page {number} is not what was stored anew");
    }
    disk.validate();
    disk.discard_pages(CPU, 0, PAGES).expect("pages of the disk");
    let stats = disk.stats();
    assert_eq!((stats.pages_stored, stats.backed_pages, stats.compressed_bytes), (0, 0, 0));
}

pub fn seeds() -> Vec<Vec<u8>> {
    (0..16)
        .map(|how| vec![how, 0, 0, 1, 2, 3, 4, 8, 1, 0xff, 0xff, 0, 0, 16, 2, 0x80, 0, 0, 1])
        .chain([vec![1, 0, 4, 0, 0, 0, 9], vec![0]])
        .collect()
}
