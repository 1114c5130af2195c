//! A machine of any designs: what its disks say of their streams.
#![cfg(not(loom))]

use std::sync::Arc;

use control::Errno;
use designs::{Machine, Variants};
use zcomp::Params;
use zram::Disk;

fn machine(variants: Variants) -> Machine {
    Machine::new(variants, 2, 64 << 20).unwrap()
}

/// A disk under a policy of streams, on two CPUs.
fn under(streams: &str) -> Arc<Disk> {
    machine(Variants { streams: streams.into(), ..Variants::default() }).add()
}

#[test]
fn one_stream_is_for_good() {
    for streams in ["single", "mutex"] {
        let disk = under(streams);
        assert_eq!(disk.set_max_streams(2).unwrap_err().errno, Errno::EINVAL, "at any time");
        for _ in 0..2 {
            assert_eq!((disk.max_streams(), disk.stats().streams), (1, 1));
            disk.set_disksize(1 << 20).unwrap();
            let fault = disk.set_max_streams(4).unwrap_err();
            assert_eq!(fault.errno, Errno::EINVAL);
            assert_eq!(disk.set_max_streams(0).unwrap_err().errno, Errno::EINVAL);
            disk.set_max_streams(1).unwrap();
            assert_eq!((disk.max_streams(), disk.stats().streams), (1, 1));
            disk.switch_algorithm(0, "zstd", Params::default()).unwrap();
            assert_eq!(disk.stats().streams, 1);
            disk.reset().unwrap();
        }
    }
}

#[test]
fn several_streams_are_made_when_wanted() {
    for wanted in [3, 1] {
        let disk = under("multi");
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
