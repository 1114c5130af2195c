//! How the state of a machine goes from a process to another: by a text with the names of its
//! regions, their descriptors in a process that lives, its disks and its cache of swap areas.

use std::fmt::Write;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::BlockDevice;
use control::ControlError;
use host::{KeptRegion, Memfds};
use machine::{HostSystem, Machine, MachineOptions};
use store::{Layout, Spec, Store};
use zram::{HostFiles, Recovered, SavedDisk};
use zswap::{SavedSwap, SwapType};

pub const CPUS: usize = 3;

pub fn options() -> MachineOptions {
    MachineOptions {
        cpus: CPUS,
        memory: 64 << 20,
        files: Arc::new(HostSystem),
        swap_memory: Arc::new(host::Mmap),
        track_access: false,
    }
}

/// What another process needs besides the regions.
#[derive(Default)]
pub struct Saved {
    pub disks: Vec<SavedDisk>,
    pub swap: Option<SavedSwap>,
    /// The device of area 0. That of area 2, if there is one, has a 2 behind its name.
    pub below: Option<PathBuf>,
}

impl Saved {
    pub fn of(machine: &Machine, below: Option<PathBuf>) -> Saved {
        Saved { disks: machine.saved(), swap: machine.saved_swap(), below }
    }
}

/// The state as this process has it.
pub fn write(to: &Path, regions: &[KeptRegion], saved: &Saved) {
    let Saved { disks, swap, below } = saved;
    let mut text = String::new();
    let pid = std::process::id();
    for KeptRegion { name, file, bytes } in regions {
        writeln!(text, "region {name} {bytes} /proc/{pid}/fd/{}", file.as_raw_fd()).unwrap();
    }
    for SavedDisk { id, bytes, generation, clone_of, settings } in disks {
        let clone_of = clone_of.map_or_else(|| "-".to_owned(), |id| id.to_string());
        writeln!(text, "disk {id} {bytes} {generation} {clone_of}").unwrap();
        for (name, value) in settings {
            writeln!(text, "setting {name} {value}").unwrap();
        }
    }
    if let Some(path) = below {
        writeln!(text, "below {}", path.to_str().unwrap()).unwrap();
    }
    if let Some(SavedSwap { areas, settings }) = swap {
        writeln!(text, "swap").unwrap();
        areas.iter().for_each(|area| writeln!(text, "area {}", area.number()).unwrap());
        for (name, value) in settings {
            writeln!(text, "parameter {name} {value}").unwrap();
        }
    }
    // A reader sees all of it or nothing.
    let new = to.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, to).unwrap();
}

/// The state of another process: its regions, opened anew, and what it saved.
pub fn read(from: &Path) -> (Vec<KeptRegion>, Saved) {
    let (mut regions, mut saved) = (Vec::new(), Saved::default());
    let Saved { disks, swap, below } = &mut saved;
    for line in fs::read_to_string(from).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["region", name, bytes, path] => {
                let file = File::options().read(true).write(true).open(path).unwrap();
                let (name, bytes) = (name.into(), bytes.parse().unwrap());
                regions.push(KeptRegion { name, file: Arc::new(file), bytes });
            }
            ["disk", id, bytes, generation, clone_of] => disks.push(SavedDisk {
                id: id.parse().unwrap(),
                bytes: bytes.parse().unwrap(),
                generation: generation.parse().unwrap(),
                clone_of: clone_of.parse().ok(),
                settings: Vec::new(),
            }),
            ["setting", name, ..] => {
                let value = words[2..].join(" ");
                disks.last_mut().unwrap().settings.push((name.into(), value));
            }
            ["below", path] => *below = Some(path.into()),
            ["swap"] => *swap = Some(SavedSwap::default()),
            ["area", number] => {
                let area = SwapType::new(number.parse().unwrap()).unwrap();
                swap.as_mut().unwrap().areas.push(area);
            }
            ["parameter", name, value] => {
                swap.as_mut().unwrap().settings.push((name.into(), value.into()));
            }
            _ => panic!("{line:?}"),
        }
    }
    (regions, saved)
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

/// The device of an area, in a log if one was left.
fn below(
    memory: &Memfds,
    path: &Path,
    area: SwapType,
) -> Result<Option<Arc<dyn BlockDevice>>, ControlError> {
    let path = match area.number() {
        0 => path.to_str().unwrap().to_owned(),
        2 => format!("{}2", path.display()),
        _ => return Ok(None),
    };
    let device = HostSystem.open_backing(&path, None)?;
    let name = format!("swap{}", area.number());
    let places = format!("{name}.places.");
    let table = memory.regions().into_iter().find(|region| region.name.starts_with(&places));
    let Some(table) = table else { return Ok(Some(device)) };
    let left = Some(device.geometry().bytes);
    let spec = Spec::new(device, path, Layout::Log(table.bytes / 8)).kept(memory, &name);
    let store = Store::open(Spec { left, ..spec }).unwrap();
    assert_eq!(store.findings.told, [""; 0]);
    Ok(Some(store.device))
}

/// The machine that another process left, and what was recovered of each disk. The first refusal of
/// a disk is an error.
pub fn recover(
    memory: &Memfds,
    disks: &[SavedDisk],
) -> Result<(Machine, Vec<Recovered>), ControlError> {
    let provider = Arc::new(host::Mmap);
    let (machine, outcomes) = Machine::recover(memory, provider, options(), disks, &|_| ())?;
    let told = outcomes.into_iter().map(|outcome| outcome.recovered).collect::<Result<_, _>>()?;
    Ok((machine, told))
}

/// The machine that another process left, whole: a death at any instant leaves nothing that cannot
/// be.
pub fn recovered(memory: &Memfds, saved: &Saved) -> Machine {
    let (machine, told) = recover(memory, &saved.disks).unwrap();
    for told in &told {
        assert_eq!((told.lost, &told.findings.told[..]), (0, &[][..]), "zram{}", told.id);
    }
    assert_eq!(machine.contradictions(), [""; 0]);
    for disk in machine.disks() {
        disk.validate();
    }
    machine.frames().validate();
    if let Some(swap) = &saved.swap {
        let below = |area: SwapType| {
            let path = saved.below.as_ref();
            path.map_or(Ok(None), |path| below(memory, path, area))
        };
        let (zswap, told) = machine.recover_swap(memory, swap, &below, &|_| ()).unwrap();
        assert_eq!(told.findings.told, [""; 0]);
        zswap.validate();
        zswap.zone().validate();
        let used = zswap.stats().pool_bytes / units::PAGE_SIZE as u64;
        assert_eq!(zswap.zone().stats().allocated, used, "frames of the cache");
    }
    machine
}
