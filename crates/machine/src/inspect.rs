//! A look at disks that outlive their process, which changes nothing: what recovery would find.
//!
//! It is the recovery itself, on copies of the memory ([`Memfds::copies`]).
//! docs/internals/kept-state.md has the numbers of the invariants that the findings bear.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Operation, Visit,
};
use control::{ControlError, Errno};
use host::{KeptRegion, Memfds};
use store::{Layout, Memory, SEAL_BYTES, Spec, Store, seals_of};
use units::{Cpu, PAGE_SIZE};
use zram::{Findings, HostFiles, Recovered, SavedDisk};
use zswap::{RecoveredArea, SavedSwap, SwapDevice, SwapType, Zswap};

use crate::host_files::{path_of, text_of};
use crate::kept::DiskOutcome;
use crate::machine::{Machine, MachineOptions};
use crate::recovery::Tell;

/// Slots in 4096 bytes of their table, for which there is a bit in the table of marks.
const SLOTS: u64 = PAGE_SIZE as u64 / 8;
/// In the names of seals.
const SEALS: &str = ".seals.";
/// What was found of a state.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Inspected {
    /// What recovery makes of each disk that has a size.
    pub disks: Vec<Recovered>,
    /// What recovery makes of the cache in front of swap areas, if there is one.
    pub swap: Option<zswap::Recovered>,
    /// What else cannot be right.
    pub others: Findings,
}

impl Inspected {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let swap = self.swap.as_ref().map_or(0, |swap| swap.findings.all);
        self.others.all == 0 && swap == 0 && self.disks.iter().all(|disk| disk.findings.all == 0)
    }

    /// Adds that something cannot be recovered, if that is for what was found and not for want of
    /// memory now.
    fn add_refusal(&mut self, why: ControlError) -> Result<(), ControlError> {
        if ![Errno::EINVAL, Errno::ENOTSUP].contains(&why.errno) {
            return Err(why);
        }
        self.others.add(why.message);
        Ok(())
    }
}

/// The cache in front of swap areas as another process left it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SwapSeen {
    /// The areas that are on, and the settings.
    pub saved: SavedSwap,
    /// The devices below areas.
    pub below: Vec<BelowSeen>,
}

/// The device below a swap area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BelowSeen {
    /// The area.
    pub area: SwapType,
    /// Its path.
    pub path: PathBuf,
    /// What is there is sealed.
    pub is_sealed: bool,
    /// The pages of the area, if they are in a log, and the bytes that the device had then.
    pub logged: Option<(u64, u64)>,
}

/// Looks at the disks whose memory is in `regions`, and at the cache in front of swap areas if
/// there is one, by the code of recovery. Nobody may write to
/// them meanwhile. With `contents` each page is read as well, those on backing devices included if
/// they are not sealed: the key is not there. It takes memory for what recovery changes, which is a
/// part of the tables, and for each object.
///
/// # Errors
/// Those of [`Machine::recover`]: then nothing can be recovered. The error of the system.
pub fn inspect(
    regions: &[KeptRegion],
    disks: &[SavedDisk],
    swap: Option<&SwapSeen>,
    contents: bool,
    progress: Tell<'_>,
) -> Result<Inspected, ControlError> {
    let system = |error: std::io::Error| {
        ControlError::new(Errno(error.raw_os_error().unwrap_or(Errno::EINVAL.0)), error.to_string())
    };
    let memory = Memfds::copies();
    for region in regions {
        let file = region.file.try_clone().map_err(system)?;
        memory.adopt(&region.name, file.into(), region.bytes).map_err(system)?;
    }
    let mut found = Inspected::default();
    // Recovery itself sees only what is marked.
    for region in regions.iter().filter(|region| region.name.ends_with(".slots")) {
        let marks = format!("{}.1", region.name);
        if let Some(marks) = regions.iter().find(|other| other.name == marks) {
            unmarked(region, marks, &mut found).map_err(system)?;
        }
    }
    let seals = regions.iter().filter(|region| region.name.contains(SEALS));
    let seals = seals.map(|region| (region.name.clone(), region.file.clone())).collect();
    let files = Arc::new(Looking(seals));
    let options = MachineOptions {
        cpus: host::cpus(),
        memory: 0,
        files: files.clone(),
        swap_memory: Arc::new(host::Mmap),
        track_access: true,
    };
    let provider = Arc::new(host::Mmap);
    let (machine, recovered) = Machine::recover(&memory, provider, options, disks, progress)?;
    for DiskOutcome { id, recovered } in recovered {
        match recovered {
            Ok(disk) => {
                if let Some(why) = &disk.absent_backing {
                    found.others.add(format!("zram{id} has no backing device: {why}"));
                }
                found.disks.push(disk);
            }
            Err(why) => found.add_refusal(why)?,
        }
    }
    for text in machine.contradictions() {
        found.others.add(text);
    }
    if contents {
        for disk in machine.disks() {
            disk.read_all(|index, error| {
                if error == IoError::Unsupported {
                    return;
                }
                let name = disk.name();
                found.others.add(format!("page {index} of {name} cannot be read: {error} (K21)"));
            });
        }
    }
    let Some(SwapSeen { saved, below }) = swap else { return Ok(found) };
    let logs = RefCell::new(Findings::default());
    let open = |area: SwapType| {
        let Some(below) = below.iter().find(|it| it.area == area) else { return Ok(None) };
        let name = format!("swap{}", area.number());
        let path = text_of(&below.path);
        let device = files.open_backing(&path, below.is_sealed.then_some(&*name))?;
        let Some((pages, bytes)) = below.logged else { return Ok(Some(device)) };
        let kept = Memory::Kept { memory: &memory, name: &name, is_ahead: false, least: 1 };
        let spec = Spec::new(device, path, Layout::Log(pages));
        let store = Store::open(Spec { memory: kept, left: Some(bytes), ..spec })?;
        logs.borrow_mut().append(store.findings);
        Ok(Some(store.device))
    };
    let (zswap, recovered) = match machine.recover_swap(&memory, saved, &open, progress) {
        Ok(recovered) => recovered,
        Err(why) => return found.add_refusal(why).map(|()| found),
    };
    found.others.append(logs.into_inner());
    for area in &recovered.areas {
        if let Some(why) = &area.absent_device {
            found.others.add(format!("swap{} has no backing device: {why}", area.swap));
        }
        if contents {
            read_area(&zswap, area, &mut found);
        }
    }
    found.swap = Some(recovered);
    Ok(found)
}

/// Reads each page of an area. What is sealed on a device cannot be read: the key is not there.
fn read_area(zswap: &Arc<Zswap>, area: &RecoveredArea, found: &mut Inspected) {
    let (device, mut page) = (SwapDevice::new(zswap.clone(), area.swap), [0; PAGE_SIZE]);
    for index in 0..area.pages {
        let read = Operation::Read { offset: index * PAGE_SIZE as u64, into: &mut page };
        match device.submit(Cpu(0), read) {
            Ok(()) | Err(IoError::Unsupported) => {}
            Err(error) => {
                let name = format!("swap{}", area.swap.number());
                found.others.add(format!("page {index} of {name} cannot be read: {error} (K21)"));
            }
        }
    }
}

/// Looks for words in parts of a table of slots that are not marked as written: K13. A bit of
/// `marks` stands for a page of slots.
fn unmarked(
    slots: &KeptRegion,
    marks: &KeptRegion,
    found: &mut Inspected,
) -> Result<(), std::io::Error> {
    let (mut page, mut word) = ([0; PAGE_SIZE], [0; 8]);
    let mut from = 0;
    while let Some(data) = slots.data(from)? {
        for number in data.start / PAGE_SIZE as u64..data.end.div_ceil(PAGE_SIZE as u64) {
            marks.file.read_exact_at(&mut word, number / 64 * 8)?;
            if u64::from_ne_bytes(word) >> (number % 64) & 1 != 0 {
                continue;
            }
            slots.file.read_exact_at(&mut page, number * PAGE_SIZE as u64)?;
            if let Some(at) = page.iter().position(|byte| *byte != 0) {
                let index = number * SLOTS + at as u64 / 8;
                let name = &slots.name;
                found
                    .others
                    .add(format!("slot {index} of {name} is in a part that is not marked (K13)"));
            }
        }
        from = data.end;
    }
    Ok(())
}

/// The files of the system, for a look: nothing is written, and nothing is claimed. It has the
/// seals of sealed devices by the names of regions.
struct Looking(Vec<(String, Arc<File>)>);

impl HostFiles for Looking {
    fn open_backing(
        &self,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let seals = seal.map(|device| {
            let beginning = seals_of(device);
            let found = self.0.iter().find(|(name, _)| name.starts_with(&beginning));
            found.map(|(_, file)| file.clone())
        });
        let opened = || {
            let mut file = File::open(path_of(path))?;
            let bytes = file.seek(SeekFrom::End(0))?;
            Ok(Backing { file, bytes: bytes / PAGE_SIZE as u64 * PAGE_SIZE as u64, seals })
        };
        opened().map(|device| Arc::new(device) as Arc<dyn BlockDevice>).map_err(
            |error: std::io::Error| {
                let errno = Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
                ControlError::new(errno, format!("the backing device {path}: {error}"))
            },
        )
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        let why = format!("{}: nothing is read for a look", Path::new(path).display());
        Err(ControlError::new(Errno::EPERM, why))
    }
}

/// A backing device that is only read.
struct Backing {
    file: File,
    bytes: u64,
    /// For a sealed device, its seals if they are there.
    seals: Option<Option<Arc<File>>>,
}

impl Backing {
    /// Whether the block can be opened with the key.
    fn has_seal(&self, block: u64) -> bool {
        let Some(seals) = &self.seals else { return true };
        let mut number = [0; 8];
        let read = seals.as_ref().map(|seals| seals.read_exact_at(&mut number, block * SEAL_BYTES));
        matches!(read, Some(Ok(()))) && u64::from_ne_bytes(number) != 0
    }
}

impl BlockDevice for Backing {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes, minimum_block: 1, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { read_only: true, ..Abilities::default() }
    }

    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match operation {
            Operation::Read { .. } if self.seals.is_some() => Err(IoError::Unsupported),
            Operation::Read { offset, into } => {
                self.file.read_exact_at(into, offset).map_err(|_| IoError::Failed)
            }
            Operation::Flush => Ok(()),
            _ => Err(IoError::ReadOnly),
        }
    }

    fn extents(&self, _: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes);
        let blocks = offset / PAGE_SIZE as u64..end.ok_or(IoError::OutOfRange)? / PAGE_SIZE as u64;
        for block in blocks {
            let kind = if self.has_seal(block) { ExtentKind::Data } else { ExtentKind::Hole };
            if visit(Extent { length: PAGE_SIZE as u64, kind }).is_break() {
                break;
            }
        }
        Ok(())
    }
}
