//! Bytes that block devices have read and written (kernel document `admin-guide/iostats.rst`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// Bytes of a sector in the kernel's counters.
const SECTOR: u64 = 512;

/// All whole block devices at one time: bytes read and written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disks(BTreeMap<String, (u64, u64)>);

/// The I/O of a block device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Disk {
    /// Its name in `/dev`.
    pub name: String,
    /// Bytes read from it.
    pub read: u64,
    /// Bytes written to it.
    pub written: u64,
    /// Whether it is hardware, also a virtual machine's: not made of memory, files or other block
    /// devices.
    pub real: bool,
}

impl Disks {
    /// The counters now.
    pub fn now() -> Result<Disks> {
        let text = fs::read_to_string("/proc/diskstats").context("/proc/diskstats")?;
        // Partitions are in the directories of their disks.
        Ok(Disks::parse(&text, |name| Path::new("/sys/block").join(name).exists()))
    }

    fn parse(text: &str, is_whole: impl Fn(&str) -> bool) -> Disks {
        let disk = |line: &str| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let bytes = |index: usize| Some(words.get(index)?.parse::<u64>().ok()? * SECTOR);
            let name = *words.get(2)?;
            is_whole(name).then_some(())?;
            Some((name.to_owned(), (bytes(5)?, bytes(9)?)))
        };
        Disks(text.lines().filter_map(disk).collect())
    }

    /// The I/O of each device that moved data since `before`.
    pub fn since(&self, before: &Disks) -> Vec<Disk> {
        let real = |name: &str| Path::new("/sys/block").join(name).join("device").exists();
        let disk = |(name, &(read, written)): (&String, &(u64, u64))| {
            let then = before.0.get(name).copied().unwrap_or_default();
            // A device that was made anew counts from zero.
            let (read, written) = (read.saturating_sub(then.0), written.saturating_sub(then.1));
            Disk { name: name.clone(), read, written, real: real(name) }
        };
        self.0.iter().map(disk).filter(|disk| disk.read + disk.written > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_devices_that_did_something() {
        let text = |read: u64| {
            format!(
                "   7 0 loop0 75 1 16 3 4 5 8 7 0 8 9 0 0 0 0 0 0\n\
                 254 0 vda 5 7 {read} 47 45 10 30 19 0 64 69\n 254 1 vda1 5 7 9 47 45 10 30 19\n x\n"
            )
        };
        let parse = |read| Disks::parse(&text(read), |name| !name.ends_with("a1"));
        let before = parse(100);
        assert_eq!(before.0["loop0"], (16 * 512, 8 * 512));
        assert_eq!(before.0.len(), 2);
        let since = parse(104).since(&before);
        assert_eq!(since.len(), 1);
        assert_eq!((since[0].name.as_str(), since[0].read, since[0].written), ("vda", 2048, 0));
    }
}
