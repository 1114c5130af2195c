//! Keeps a disk in memory that outlives its machine, and makes it anew from there, as a process does
//! whose predecessor was killed. Prints how long that takes.
//!
//! ```sh
//! cargo run --release -p rampack-machine --example recover -- 2G
//! ```
//!
//! Between two processes, what [`Memfds::regions`] returns goes by descriptors, and what
//! [`Machine::saved`] returns as text.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use host::{Memfds, Mmap};
use machine::{HostSystem, Machine, MachineOptions};
use units::{PAGE_SIZE, Page};

/// A page that compresses to about a half.
fn page(number: u64) -> Page {
    let mut bytes = [0; PAGE_SIZE];
    for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
        let mixed = (number * 512 + n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let value = if n % 2 == 0 { mixed ^ mixed >> 29 } else { number };
        word.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

fn options(bytes: u64) -> MachineOptions {
    MachineOptions {
        cpus: host::cpus(),
        memory: bytes,
        files: Arc::new(HostSystem),
        swap_memory: Arc::new(Mmap),
        track_access: false,
    }
}

fn run(bytes: u64) -> Result<(), Box<dyn Error>> {
    let pages = bytes / PAGE_SIZE as u64;
    let memory = Memfds::new();
    let machine = Machine::kept(&memory, Arc::new(Mmap), options(bytes))?;
    let disk = machine.add()?;
    disk.set_disksize(bytes)?;
    for number in 0..pages {
        disk.store_page(host::cpu(), number, &page(number))?;
    }
    let (regions, disks) = (memory.regions(), machine.saved());
    // A dead process gives nothing up.
    std::mem::forget(machine);

    let memory = Memfds::new();
    for region in regions {
        memory.adopt(&region.name, region.file.try_clone()?.into(), region.bytes)?;
    }
    let start = Instant::now();
    let (machine, told) =
        Machine::recover(&memory, Arc::new(Mmap), options(bytes), &disks, &|_| ())?;
    let seconds = start.elapsed().as_secs_f64();
    for outcome in told {
        let told = outcome.recovered?;
        let compressed = told.compressed_bytes as f64 / 1e9;
        println!(
            "zram{}: {} pages, {compressed:.2} GB compressed, {} lost, in {seconds:.3} s: {:.1} GB/s",
            told.id,
            told.pages,
            told.lost,
            compressed / seconds
        );
    }
    let disk = machine.disk(0).ok_or("the disk is not there")?;
    let mut found = [0; PAGE_SIZE];
    for number in (0..pages).step_by(97) {
        disk.load_page(host::cpu(), number, &mut found)?;
        assert!(found == page(number), "page {number} is as it was");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let size = std::env::args().nth(1).unwrap_or_else(|| "1G".into());
    run(units::parse_size(&size)?)
}

#[test]
fn recovers() {
    run(16 << 20).unwrap();
}
