//! How the state of a machine goes from a process to another: by a text with the names of its
//! regions, their descriptors in a process that lives, and its disks.

use std::fmt::Write;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use host::{KeptRegion, Memfds};
use rampack::{HostSystem, Machine, MachineOptions, SavedDisk};

pub const CPUS: usize = 3;

pub fn options() -> MachineOptions {
    MachineOptions {
        cpus: CPUS,
        memory: 64 << 20,
        files: Arc::new(HostSystem),
        swap_scenario: Arc::new(host::Mmap),
        track_access: false,
    }
}

/// The state as this process has it.
pub fn write(to: &Path, regions: &[KeptRegion], disks: &[SavedDisk]) {
    let mut text = String::new();
    let pid = std::process::id();
    for KeptRegion { name, file, bytes } in regions {
        writeln!(text, "region {name} {bytes} /proc/{pid}/fd/{}", file.as_raw_fd()).unwrap();
    }
    for SavedDisk { id, bytes, generation, settings } in disks {
        writeln!(text, "disk {id} {bytes} {generation}").unwrap();
        for (name, value) in settings {
            writeln!(text, "setting {name} {value}").unwrap();
        }
    }
    // A reader sees all of it or nothing.
    let new = to.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, to).unwrap();
}

/// The state of another process: its regions, opened anew, and its disks.
pub fn read(from: &Path) -> (Vec<KeptRegion>, Vec<SavedDisk>) {
    let (mut regions, mut disks) = (Vec::new(), Vec::<SavedDisk>::new());
    for line in fs::read_to_string(from).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["region", name, bytes, path] => {
                let file = File::options().read(true).write(true).open(path).unwrap();
                let (name, bytes) = (name.into(), bytes.parse().unwrap());
                regions.push(KeptRegion { name, file: Arc::new(file), bytes });
            }
            ["disk", id, bytes, generation] => disks.push(SavedDisk {
                id: id.parse().unwrap(),
                bytes: bytes.parse().unwrap(),
                generation: generation.parse().unwrap(),
                settings: Vec::new(),
            }),
            ["setting", name, value] => {
                disks.last_mut().unwrap().settings.push((name.into(), value.into()));
            }
            _ => panic!("{line:?}"),
        }
    }
    (regions, disks)
}

/// Memory with these regions.
pub fn adopted(regions: &[KeptRegion]) -> Memfds {
    let memory = Memfds::new();
    for region in regions {
        let file = OwnedFd::from(region.file.try_clone().unwrap());
        memory.adopt(&region.name, file, region.bytes).unwrap();
    }
    memory
}

/// The machine that another process left, whole: a death at any instant leaves nothing that cannot
/// be.
pub fn recovered(memory: &Memfds, disks: &[SavedDisk]) -> Machine {
    let provider = Arc::new(host::Mmap);
    let (machine, told) = Machine::recover(memory, provider, options(), disks, &|_| ()).unwrap();
    for told in &told {
        assert_eq!((told.lost, &told.findings[..]), (0, &[][..]), "zram{}", told.id);
    }
    assert_eq!(machine.contradictions(), [""; 0]);
    for disk in machine.disks() {
        disk.validate();
    }
    machine.frames().validate();
    machine
}
