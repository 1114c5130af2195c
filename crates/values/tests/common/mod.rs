//! Stores for tests.
#![allow(dead_code, missing_docs)]

use std::sync::Arc;

use pagealloc::{Zone, ZoneOptions};
use values::{At, NoStore, Options, Parts, Values};
use zcomp::Params;

pub const CPUS: usize = 3;

pub fn open(codec: &str, options: Options) -> Result<Values, NoStore> {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(CPUS, 1 << 20)).expect("address space");
    let codec = zcomp::open(codec, &Params::default()).expect("a codec");
    let parts = Parts { frames: Arc::new(zone), cpus: CPUS, codec, seed: 0x5eed, options };
    Values::new(&host::Mmap, parts)
}

pub fn store(codec: &str, options: Options) -> Values {
    open(codec, options).expect("a store")
}

pub fn clone(values: &Values) -> Values {
    values.clone_contents(&host::Mmap).expect("addresses")
}

pub const fn at(cpu: u32, now: u32) -> At {
    At { cpu: units::Cpu(cpu), now }
}
