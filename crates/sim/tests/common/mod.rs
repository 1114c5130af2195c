//! Disks of the real stack, watched from their making to their end.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use block::{Abilities, BlockDevice, Geometry, IoError, Operation, Visit};
use stack::{Machine, MachineOptions, Variants};
use units::Lane;
use zcomp::Params;
use zram::Disk;

/// What a disk is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub bytes: u64,
    pub algorithm: &'static str,
    pub level: Option<i32>,
    /// The device's own limit; 0 for none.
    pub mem_limit: u64,
    /// What the whole machine has.
    pub memory: u64,
    pub lanes: usize,
    /// Compact after so many operations; 0 for never.
    pub compact_every: u32,
}

impl Plan {
    pub fn new(bytes: u64, algorithm: &'static str) -> Plan {
        Plan {
            bytes,
            algorithm,
            level: None,
            mem_limit: 0,
            memory: 1 << 30,
            lanes: 3,
            compact_every: 0,
        }
    }

    pub fn build(self) -> Watched {
        let Plan { memory, lanes, .. } = self;
        let options = MachineOptions {
            lanes,
            memory,
            variants: Variants::default(),
            outside: Arc::new(stack::Nowhere),
            track_access: false,
        };
        let machine = Machine::new(Arc::new(host::Mmap), options).expect("there are addresses");
        let disk = machine.add().expect("there are numbers");
        let watched =
            Watched { machine, disk, compact_every: self.compact_every, submits: 0.into() };
        watched.set_up(self);
        watched
    }

    pub fn device(self) -> Arc<dyn BlockDevice> {
        Arc::new(self.build())
    }
}

/// A disk. When it is dropped, everything the stack knows of it must add up, and when its contents
/// are discarded nothing may be left.
pub struct Watched {
    pub machine: Machine,
    pub disk: Arc<Disk>,
    compact_every: u32,
    submits: AtomicU32,
}

impl Watched {
    /// Gives a disk without a size its settings and size.
    pub fn set_up(&self, plan: Plan) {
        self.disk.set_algorithm(plan.algorithm).expect("the algorithm is known");
        self.disk.set_params(Params::at_level(plan.level)).expect("the level is right");
        self.disk.set_mem_limit(plan.mem_limit);
        self.disk.set_disksize(plan.bytes).expect("there are addresses");
    }

    /// Checks the structures, discards everything and checks that all memory came back.
    pub fn end(&self) {
        self.disk.validate();
        self.machine.frames().validate();
        let length = self.disk.bytes();
        let lent = self.machine.frames().stats().lent;
        assert!(lent * 4096 <= self.disk.stats().pool_bytes, "{lent} frames are lent to nobody");
        self.submit(Lane(0), Operation::Discard { offset: 0, length }).expect("discards succeed");
        let stats = self.disk.stats();
        assert_eq!(
            [stats.pages_stored, stats.compressed_bytes, stats.orig_bytes, stats.pool_bytes],
            [0; 4],
            "everything was discarded: {stats:?}"
        );
        assert_eq!(
            [stats.same_filled_pages, stats.zero_pages, stats.huge_pages],
            [0; 3],
            "everything was discarded: {stats:?}"
        );
        assert_eq!(self.machine.frames().stats().lent, 0, "frames were not given back");
        self.disk.validate();
        self.machine.frames().validate();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !thread::panicking() && self.disk.bytes() > 0 {
            self.end();
        }
    }
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.disk.abilities()
    }
    fn submit(&self, lane: Lane, operation: Operation<'_>) -> Result<(), IoError> {
        let submits = self.submits.fetch_add(1, Ordering::Relaxed) + 1;
        if self.compact_every > 0 && submits.is_multiple_of(self.compact_every) {
            self.disk.compact().expect("the disk has a size");
        }
        self.disk.submit(lane, operation)
    }
    fn extents(&self, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.disk.extents(offset, length, visit)
    }
}
