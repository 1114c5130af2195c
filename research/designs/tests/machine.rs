//! A machine of any designs: what its disks say of their streams, and caches with each index.
#![cfg(not(loom))]

use std::sync::Arc;

use block::{BlockDevice, Operation, Plain};
use control::Errno;
use designs::{INDEXES, Machine, MachineOptions, Variants};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::Params;
use zram::{Disk, NoHostFiles};
use zswap::{AreaOptions, SwapDevice, SwapType};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;

fn machine(variants: Variants) -> Machine {
    let options = MachineOptions {
        cpus: 2,
        memory: 64 << 20,
        variants,
        files: Arc::new(NoHostFiles),
        swap_memory: Arc::new(host::Mmap),
    };
    Machine::new(Arc::new(host::Mmap), options).unwrap()
}

/// A disk under a policy of streams, on two CPUs.
fn under(streams: &str) -> Arc<Disk> {
    machine(Variants { streams: streams.into(), ..Variants::default() }).add()
}

#[test]
fn one_stream_is_for_good() {
    for streams in ["single", "mutex"] {
        let disk = under(streams);
        for _ in 0..2 {
            assert_eq!((disk.max_streams(), disk.stats().streams), (1, 1));
            disk.set_disksize(1 << 20).unwrap();
            let fault = disk.set_max_streams(4).unwrap_err();
            assert_eq!(fault.errno, Errno::EINVAL);
            assert_eq!(fault.to_string().contains("reset it and set"), streams == "single");
            assert_eq!(disk.set_max_streams(0).unwrap_err().errno, Errno::EINVAL);
            disk.set_max_streams(1).unwrap();
            assert_eq!((disk.max_streams(), disk.stats().streams), (1, 1));
            disk.switch_algorithm(0, "zstd", Params::default()).unwrap();
            assert_eq!(disk.stats().streams, 1);
            disk.reset().unwrap();
        }
    }
    let fault = under("mutex").set_max_streams(2).unwrap_err();
    assert_eq!(fault.errno, Errno::EINVAL, "at any time");
}

#[test]
fn several_streams_are_made_when_wanted() {
    // Under `single` it is the number before the size that chooses.
    for (streams, wanted) in [("single", 3), ("multi", 3), ("multi", 1)] {
        let disk = under(streams);
        assert_eq!(disk.max_streams(), 1);
        disk.set_max_streams(wanted).unwrap();
        disk.set_disksize(1 << 20).unwrap();
        assert_eq!(disk.max_streams(), wanted);
        assert_eq!(disk.stats().streams, 1, "it begins with one");
        disk.set_max_streams(100).unwrap();
        assert_eq!(disk.max_streams(), 100);
        disk.set_max_streams(1).unwrap();
        assert_eq!(disk.stats().streams, 1);
        disk.reset().unwrap();
        assert_eq!(disk.max_streams(), 1);
    }
}

/// Half of it shrinks, half does not; no two are the same.
fn page(number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in page[..PAGE_SIZE / 2].chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    page
}

fn write(device: &dyn BlockDevice, number: u64, page: &Page) {
    device.submit(CPU, Operation::Write { offset: number * P, from: page }).unwrap();
}

fn read(device: &dyn BlockDevice, number: u64) -> Page {
    let mut page = [1; PAGE_SIZE];
    device.submit(CPU, Operation::Read { offset: number * P, into: &mut page }).unwrap();
    page
}

/// Pages come back whether they are in the cache or were written back, under every index.
#[test]
fn a_swap_device_keeps_what_it_was_given() {
    for index in INDEXES {
        let variants = Variants { index: (*index).into(), ..Variants::default() };
        let zswap = machine(variants).swap().unwrap();
        let backing: Arc<dyn BlockDevice> = Arc::new(Plain::new(4096 * PAGE_SIZE));
        let (swap, memcg) = (SwapType::new(3).unwrap(), zswap.memcg("default").unwrap());
        zswap.swapon(swap, 4096, AreaOptions { device: Some(backing), memcg }).unwrap();
        let device = SwapDevice::new(zswap.clone(), swap);
        zswap.set_max_pool_bytes(2 << 20);
        for number in 0..4096 {
            write(&device, number, &page(number));
        }
        let stats = zswap.stats();
        assert!(stats.written_back_pages > 2000, "{index}: {stats:?}");
        assert!(stats.pool_bytes <= 2 << 20, "{index}: {stats:?}");
        assert_eq!(stats.stored_pages + stats.on_device, 4096, "{index}: {stats:?}");
        for number in 0..4096 {
            assert!(read(&device, number) == page(number), "{index}: page {number}");
        }
        device.submit(CPU, Operation::Discard { offset: 0, length: 2048 * P }).unwrap();
        assert_eq!(read(&device, 7), [0; PAGE_SIZE]);
        assert!(read(&device, 2048) == page(2048));
        zswap.validate();
        assert_eq!(zswap.swapoff(swap).unwrap_err().errno, Errno::EBUSY);
        zswap.invalidate_area(CPU, swap);
        zswap.swapoff(swap).unwrap();
        zswap.validate();
        assert_eq!(zswap.stats().pool_bytes, 0);
    }
}
