//! Swap areas whose cache is in memory that outlives the process, and another process that recovers
//! them.

use std::fs::File;
use std::mem::forget;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block::{BlockDevice, IoError, Operation, Plain};
use control::{ControlError, Errno};
use host::Memfds;
use machine::Machine;
use units::{Cpu, PAGE_SIZE, Page};
use zswap::{AreaOptions, Recovered, SavedSwap, SwapDevice, SwapType, Zswap};

use crate::kept;

pub const CPU: Cpu = Cpu(0);
pub const P: u64 = PAGE_SIZE as u64;
pub const PAGES: u64 = 600;

pub type Below = Option<Arc<dyn BlockDevice>>;

/// A page of text and numbers, or of another kind every few pages.
pub fn contents(page: u64) -> Page {
    let mut bytes = [0; PAGE_SIZE];
    for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
        let mixed = (page * 512 + n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let value = match page % 8 {
            0 => page + 1,
            1 => mixed,
            2 => page << 32,
            _ if n % 5 == 0 => mixed,
            _ => n as u64,
        };
        word.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

pub fn swap(number: usize) -> SwapType {
    SwapType::new(number).unwrap()
}

pub fn plain(pages: u64) -> Arc<dyn BlockDevice> {
    Arc::new(Plain::new(pages as usize * PAGE_SIZE))
}

pub fn machine(memory: &Memfds) -> Machine {
    Machine::kept(memory, Arc::new(host::Mmap), kept::options()).unwrap()
}

/// A cache with area 0 of [`PAGES`] pages.
pub fn cache(below: Below) -> (Memfds, Machine, Arc<Zswap>) {
    let memory = Memfds::new();
    let machine = machine(&memory);
    let zswap = machine.kept_swap(&memory).unwrap();
    on(&zswap, 0, "default", below);
    (memory, machine, zswap)
}

pub fn on(zswap: &Arc<Zswap>, number: usize, memcg: &str, device: Below) -> SwapDevice {
    let memcg = zswap.memcg(memcg).unwrap();
    zswap.swapon(swap(number), PAGES, AreaOptions { device, memcg }).unwrap();
    SwapDevice::new(zswap.clone(), swap(number))
}

pub fn device(zswap: &Arc<Zswap>, number: usize) -> SwapDevice {
    SwapDevice::new(zswap.clone(), swap(number))
}

pub fn write(device: &SwapDevice, page: u64, from: &Page) {
    device.submit(CPU, Operation::Write { offset: page * P, from }).unwrap();
}

pub fn fill(device: &SwapDevice, pages: std::ops::Range<u64>) {
    pages.for_each(|page| write(device, page, &contents(page)));
}

pub fn discard(device: &SwapDevice, page: u64) {
    device.submit(CPU, Operation::Discard { offset: page * P, length: P }).unwrap();
}

pub fn read(device: &SwapDevice, page: u64) -> Result<Page, IoError> {
    let mut into = [7; PAGE_SIZE];
    device.submit(CPU, Operation::Read { offset: page * P, into: &mut into }).map(|()| into)
}

/// What another process finds when this one has died.
pub fn dies(memory: &Memfds, machine: Machine) -> (Memfds, SavedSwap) {
    let (regions, saved) = (memory.regions(), machine.saved_swap().unwrap());
    forget(machine);
    (kept::adopted(&regions), saved)
}

pub type Back = Result<(Machine, Arc<Zswap>, Recovered), ControlError>;

pub fn try_recover(memory: &Memfds, saved: &SavedSwap, below: &[(usize, Below)]) -> Back {
    let options = kept::options();
    let (machine, _) =
        Machine::recover(memory, Arc::new(host::Mmap), options, &[], &|_| ()).unwrap();
    let open = |area: SwapType| {
        let found = below.iter().find(|(number, _)| *number == area.number());
        Ok(found.and_then(|(_, device)| device.clone()))
    };
    let (zswap, told) = machine.recover_swap(memory, saved, &open, &|_| ())?;
    Ok((machine, zswap, told))
}

pub fn recover(
    memory: &Memfds,
    saved: &SavedSwap,
    below: Below,
) -> (Machine, Arc<Zswap>, Recovered) {
    try_recover(memory, saved, &[(0, below)]).unwrap()
}

pub fn refusal(memory: &Memfds, saved: &SavedSwap, below: Below) -> (Errno, String) {
    let error = try_recover(memory, saved, &[(0, below)]).err().expect("a refusal");
    (error.errno, error.message)
}

pub fn region(memory: &Memfds, name: &str) -> Arc<File> {
    let regions = memory.regions();
    regions.into_iter().find(|region| region.name == name).expect(name).file
}

pub fn read_word(memory: &Memfds, (name, at): (&str, u64)) -> u64 {
    let mut bytes = [0; 8];
    region(memory, name).read_exact_at(&mut bytes, at * 8).unwrap();
    u64::from_ne_bytes(bytes)
}

pub fn write_word(memory: &Memfds, (name, at): (&str, u64), word: u64) {
    region(memory, name).write_all_at(&word.to_ne_bytes(), at * 8).unwrap();
}

pub const RECORD: &str = "swap.record";
pub const ENTRIES: &str = "swap.entries";

/// The word of a page of area 0 in its index.
pub fn index_of(page: u64) -> (&'static str, u64) {
    ("swap0.1.index", page)
}

/// Word `which` of the entry of a page: key, object, links, state, pattern.
pub fn entry_of(memory: &Memfds, page: u64, which: u64) -> (&'static str, u64) {
    let number = u64::from(read_word(memory, index_of(page)) as u32);
    (ENTRIES, number * 5 + which)
}

/// Area 0 of a recovered cache, on which each page of `lost` is lost, and no other.
pub fn check(zswap: &Arc<Zswap>, told: &Recovered, lost: &[u64]) -> SwapDevice {
    let device = device(zswap, 0);
    for page in 0..PAGES {
        match lost.contains(&page) {
            true => assert_eq!(read(&device, page), Err(IoError::Corrupt), "page {page}"),
            false => assert!(read(&device, page) == Ok(contents(page)), "page {page}"),
        }
    }
    let count: u64 = told.areas.iter().map(|area| area.lost).sum();
    assert_eq!(count, lost.len() as u64, "{:?}", told.findings.told);
    assert_eq!(zswap.stats().lost_pages, lost.len() as u64);
    zswap.validate();
    // Of memory that is provided ahead, what is not yet provided counts as allocated.
    if !zswap.is_ahead() {
        assert_eq!(zswap.zone().stats().allocated * P, zswap.stats().pool_bytes);
    }
    device
}
