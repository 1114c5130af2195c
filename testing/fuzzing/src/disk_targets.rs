//! Targets about a disk: what an operator writes to its attributes, and what somebody else writes
//! to its backing device.

use std::sync::Arc;

use block::{BlockDevice, Operation, Plain};
use control::{Access, ControlError, Errno, Object};
use pagealloc::{Zone, ZoneOptions};
use seal::Sealed;
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, HostFiles, Resources};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;
/// Pages that are stored before an input begins.
const STORED: u64 = 24;
/// Attributes that are no settings: they count, or show what the pool takes.
const COUNTS: &[&str] = &[
    "mm_stat",
    "io_stat",
    "bd_stat",
    "debug_stat",
    "stat",
    "block_state",
    "num_reads",
    "num_writes",
    "failed_reads",
    "failed_writes",
    "invalid_io",
    "notify_free",
    "zero_pages",
    "orig_data_size",
    "compr_data_size",
    "mem_used_total",
    "lost_pages",
    "writeback_limit",
];

struct OneBacking;

impl HostFiles for OneBacking {
    fn open_backing(
        &self,
        path: &str,
        _: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        match path {
            "/backing" => Ok(Arc::new(Plain::new(64 * PAGE_SIZE))),
            _ => Err(ControlError::new(Errno::ENOENT, format!("{path} is not there"))),
        }
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        match path {
            "/dictionary" => Ok(b"a dictionary of few words".repeat(20)),
            _ => Err(ControlError::new(Errno::ENOENT, format!("{path} is not there"))),
        }
    }
}

fn disk() -> Arc<Disk> {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(1, 4096)).expect("addresses");
    let resources = Resources::new(Arc::new(host::Mmap), Arc::new(zone), 1, Arc::new(OneBacking));
    Disk::new(0, Arc::new(resources))
}

/// A page that can be told from others: text, noise, or one byte.
fn page(number: u64) -> Page {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut page = [0; PAGE_SIZE];
    match number % 3 {
        0 => page.fill(number as u8),
        1 => page.fill_with(|| rng.u8(..)),
        _ => page.fill_with(|| b"page of text"[rng.usize(..12)]),
    }
    page
}

fn settings(disk: &dyn Object) -> Vec<(&'static str, String)> {
    let all = disk.attributes();
    let shown = all.iter().filter(|info| {
        matches!(info.access, Access::Read | Access::ReadWrite) && !COUNTS.contains(&info.name)
    });
    shown.map(|info| (info.name, disk.show(info.name).expect("it can be read"))).collect()
}

/// Lines of `NAME VALUE`, written to the attributes of a disk with contents.
///
/// A refusal says why and changes no setting. Stored pages stay until a reset.
pub fn attribute_stores(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let disk = disk();
    let object = zram::attributes(disk.clone());
    let mut stored = false;
    for line in text.lines().take(12) {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let before = settings(&object);
        match object.store(name, value) {
            Ok(()) if name == "reset" => stored = false,
            Ok(()) => {}
            Err(error) => {
                assert!(!error.message.is_empty(), "{line:?} is refused without a reason");
                assert_eq!(settings(&object), before, "{line:?} is refused: {error}");
            }
        }
        if !stored && disk.bytes() >= STORED * P {
            for n in 0..STORED {
                let from = &page(n);
                // A limit may be set.
                let _ = disk.submit(CPU, Operation::Write { offset: n * P, from });
            }
            stored = (0..STORED).all(|n| holds(&disk, n));
        }
        if stored && disk.bytes() >= STORED * P {
            for n in 0..STORED {
                assert!(holds(&disk, n), "page {n} is another one after {line:?}");
            }
        }
    }
}

fn holds(disk: &Disk, number: u64) -> bool {
    let mut found = [0x55; PAGE_SIZE];
    let read = disk.submit(CPU, Operation::Read { offset: number * P, into: &mut found });
    read.is_ok() && found == page(number)
}

/// Changes of a sealed backing device behind its back: for each, a place and bytes.
///
/// Every page reads as it was written, or as an error.
pub fn sealed_blocks(input: &[u8]) {
    const BLOCKS: u64 = 8;
    let below = Arc::new(Plain::new((BLOCKS * P) as usize));
    let sealed = Sealed::new(below.clone(), &host::Mmap, u64::MAX, 1).expect("memory for a key");
    for n in 0..BLOCKS {
        let from = &page(n);
        sealed.submit(CPU, Operation::Write { offset: n * P, from }).expect("it is in memory");
    }
    let mut raw = vec![0; (BLOCKS * P) as usize];
    let read = Operation::Read { offset: 0, into: &mut raw };
    below.submit(CPU, read).expect("it is in memory");
    let before = raw.clone();
    for change in input.chunks(5) {
        let [high, low, how, bytes @ ..] = change else { break };
        let at = usize::from(u16::from_be_bytes([*high, *low])) % raw.len();
        match how % 3 {
            // Other bytes, a moved block, a flipped bit.
            0 => raw[at..].iter_mut().zip(bytes).for_each(|(old, new)| *old = *new),
            1 => {
                let to = usize::from(*bytes.first().unwrap_or(&0)) % BLOCKS as usize * PAGE_SIZE;
                let from = at / PAGE_SIZE * PAGE_SIZE;
                raw.copy_within(from..from + PAGE_SIZE, to);
            }
            _ => raw[at] ^= 1 << (how % 8),
        }
    }
    below.submit(CPU, Operation::Write { offset: 0, from: &raw }).expect("it is in memory");
    for n in 0..BLOCKS {
        let mut found = [0x55; PAGE_SIZE];
        let read = sealed.submit(CPU, Operation::Read { offset: n * P, into: &mut found });
        let range = (n * P) as usize..((n + 1) * P) as usize;
        let is_same = raw[range.clone()] == before[range];
        assert_eq!(read.is_ok(), is_same, "block {n}");
        assert!(read.is_err() || found == page(n), "block {n} is another one");
    }
}

pub fn store_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "disksize 1M\nmem_limit 4M\ncompact 1\nidle all\nrecompress type=huge",
        "comp_algorithm zstd\nalgorithm_params level=3\ndisksize 256K\nresize 1M\nreset 1",
        "backing_dev /backing\ncompressed_writeback yes\ndisksize 128K\nidle all\nwriteback idle",
        "recomp_algorithm algo=zstd priority=1\ndisksize 1M\nrecompress threshold=3000",
        "algorithm_params algo=lz4 dict=/dictionary\ndisksize 1M\nswitch_algorithm algo=zstd",
        "sealed_backing 0\nbacking_dev /backing\ndisksize 1M\nscrub 1\nwriteback page_indexes=1-9",
        "backing_layout log\nbacking_dev /backing\ndisksize 1M\nwriteback type=idle\nlog_stat 1",
        "max_comp_streams 4\ntrack_access 1\ndisksize 1M\nidle 3600\nmem_used_max 0\ndisksize 2M",
        "writeback_limit 3\nwriteback_limit_enable 1\nwriteback_batch_size 7\ninitstate 1\nreset 0",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub fn block_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0, 0, 0, 1, 2],
        vec![0x10, 0, 1, 0, 0],
        vec![0x7f, 0xff, 2, 0, 0, 0x20, 0, 1, 7, 7],
        vec![0x30, 1, 0, 0, 0, 0x30, 2, 2, 9, 9, 0x50, 0, 1, 4, 0],
    ]
}
