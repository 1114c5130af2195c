//! After it was opened, the data path takes nothing from the heap.

mod common;

use backing::{Options, open};
use block::{BlockDevice, Job, Operation};
use common::*;
use testkit::{CountingHeap, TempDir};
use units::Cpu;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

fn work(device: &dyn BlockDevice, memory: &mut [u8]) {
    let (mut jobs, mut rest): ([_; 100], _) = ([const { None }; 100], memory);
    for (n, job) in jobs.iter_mut().enumerate() {
        let (page, others) = rest.split_at_mut(P as usize);
        rest = others;
        let offset = n as u64 * P;
        *job = Some(Job::new(match n % 3 {
            0 => Operation::Read { offset, into: page },
            1 => Operation::Write { offset, from: page },
            _ => Operation::Discard { offset, length: P },
        }));
    }
    let mut jobs = jobs.map(|job| job.unwrap_or(Job::new(Operation::Flush)));
    device.submit_all(Cpu(0), &mut jobs);
    assert!(jobs.iter().all(|job| job.result == Ok(())));
}

#[test]
fn operations_allocate_nothing() {
    let directory = TempDir::new();
    for io_uring in [true, false] {
        let path = sparse(&directory.join("f"), 100 * P);
        let device = open(&path, Options { io_uring, ..Options::default() }).unwrap();
        let mut memory = vec![5; 100 * P as usize];
        let calls = CountingHeap::calls_of(|| {
            for _ in 0..5 {
                work(&*device, &mut memory);
                let read = Operation::Read { offset: 0, into: &mut memory };
                device.submit(Cpu(0), read).unwrap();
            }
        });
        assert_eq!(calls, 0, "io_uring: {io_uring}");
    }
}
