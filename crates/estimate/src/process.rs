//! Processes: which of their pages are in memory, and what is in them.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use procfs::ProcError;
use procfs::process::{MMapPath, MemoryMap, MemoryPageFlags, PageInfo, PageMap};
use rustix::io::Errno;

use crate::error::Error;
use crate::resident::{Resident, Run};

/// System pages whose state is asked for at once.
const ASKED: usize = 1 << 16;
/// `KPF_ZERO_PAGE` of Linux' admin-guide/mm/pagemap.rst.
const ZERO_PAGE: u64 = 1 << 24;
/// Mappings of these files are memory that swap can take, though they have a path.
const SHARED_MEMORY: [&str; 3] = ["/memfd:", "/dev/shm/", "/dev/zero"];
/// Mappings of these are not, though they may look like it: devices, and huge pages that stay.
const NOT_SWAPPED: [&str; 3] = ["/dev/", "/anon_hugepage", "/memfd:hugetlb"];

/// A process whose memory may be read.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    name: String,
    process: procfs::process::Process,
}

/// The frames that several mappings share and that were met before.
#[derive(Debug)]
pub struct Frames {
    /// Whether the frame of a number is the kernel's zero page.
    seen: HashMap<u64, bool>,
    flags: Option<File>,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames { seen: HashMap::new(), flags: File::open("/proc/kpageflags").ok() }
    }
}

/// What a frame that others may have, too, adds to a sum.
enum Shared {
    /// The kernel's zero page takes no memory of its own.
    Zero,
    Again,
    New,
}

impl Frames {
    /// Tells of a frame. `number` is 0 where the kernel does not say it; then each mapping counts.
    fn meet(&mut self, number: u64) -> Shared {
        if number == 0 {
            return Shared::New;
        }
        match self.seen.get(&number) {
            Some(true) => Shared::Zero,
            Some(false) => Shared::Again,
            None => {
                let zero = self.is_zero(number);
                self.seen.insert(number, zero);
                if zero { Shared::Zero } else { Shared::New }
            }
        }
    }

    fn is_zero(&self, number: u64) -> bool {
        let mut word = [0; 8];
        let read = self.flags.as_ref().map(|file| file.read_exact_at(&mut word, number * 8));
        matches!(read, Some(Ok(()))) && u64::from_ne_bytes(word) & ZERO_PAGE != 0
    }
}

impl Process {
    /// The process with a number. The one that asks may need root, or the rights of ptrace(2).
    ///
    /// # Errors
    /// [`Error`] if there is no such process.
    pub fn open(pid: i32) -> Result<Process, Error> {
        let what = || format!("cannot look at process {pid}");
        let process =
            procfs::process::Process::new(pid).map_err(|it| Error::new(what(), io(it)))?;
        let name = process.stat().map_err(|it| Error::new(what(), io(it)))?.comm;
        Ok(Process { pid, name, process })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The name of its program, as the kernel cuts it off.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has memory of its own. A thread of the kernel has none, nor has a process that
    /// has ended.
    ///
    /// # Errors
    /// [`Error`] if it is gone.
    pub fn has_memory(&self) -> Result<bool, Error> {
        let what = || format!("cannot look at process {}, {}", self.pid, self.name);
        let size = self.process.statm().map_err(|it| Error::new(what(), io(it)))?.size;
        Ok(size > 0)
    }

    /// The pages that are in memory and that swap could take: private ones, and shared memory.
    /// Pages of files are not among them, because the kernel just drops these.
    ///
    /// # Errors
    /// [`Error`] without the right to read it, and if it has ended.
    pub(crate) fn resident(&self, frames: &mut Frames) -> Result<Resident, Error> {
        let what = || format!("cannot read the memory of process {}, {}", self.pid, self.name);
        let wrong = |error: ProcError| Error::new(what(), io(error));
        let maps = self.process.smaps().or_else(|_| self.process.maps()).map_err(wrong)?;
        let mut resident = Resident::default();
        if maps.0.is_empty() {
            return Ok(resident);
        }
        let mut pages = self.process.pagemap().map_err(wrong)?;
        for map in maps.iter().filter(|map| can_be_swapped(map) && has_pages(map)) {
            add(map, &mut pages, frames, &mut resident).map_err(wrong)?;
        }
        // The map can be seen with less than the right to read: what follows would only fail.
        if let Some(run) = resident.runs.first() {
            let mut byte = [0];
            if let Err(error) = self.try_read(run.start, &mut byte)
                && error.kind() == ErrorKind::PermissionDenied
            {
                return Err(Error::new(what(), error));
            }
        }
        Ok(resident)
    }

    /// Reads what is at an address; 0 bytes where there is nothing any more.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> usize {
        self.try_read(address, into).unwrap_or(0)
    }

    fn try_read(&self, address: u64, into: &mut [u8]) -> io::Result<usize> {
        host::read_memory_of(self.pid, address, into)
    }
}

/// Adds what is in memory of a mapping.
fn add(
    map: &MemoryMap,
    pages: &mut PageMap,
    frames: &mut Frames,
    resident: &mut Resident,
) -> Result<(), ProcError> {
    let page = procfs::page_size();
    let is_shared_memory = is_shared_memory(&map.pathname);
    let (first, end) = ((map.address.0 / page) as usize, (map.address.1 / page) as usize);
    for start in (first..end).step_by(ASKED) {
        let states = pages.get_range_info(start..(start + ASKED).min(end))?;
        for (n, state) in states.into_iter().enumerate() {
            let PageInfo::MemoryPage(state) = state else { continue };
            if !state.contains(MemoryPageFlags::PRESENT)
                || (state.contains(MemoryPageFlags::FILE) && !is_shared_memory)
            {
                continue;
            }
            let own = match state.contains(MemoryPageFlags::MMAP_EXCLUSIVE) {
                true => true,
                false => match frames.meet(state.get_page_frame_number().0) {
                    Shared::Zero => continue,
                    Shared::Again => false,
                    Shared::New => true,
                },
            };
            let at = (start + n) as u64 * page;
            match resident.runs.last_mut() {
                Some(run) if run.end == at => run.end += page,
                _ => resident.runs.push(Run { start: at, end: at + page }),
            }
            resident.bytes += page;
            resident.own += if own { page } else { 0 };
        }
    }
    Ok(())
}

/// Whether a mapping has pages in memory. Programs reserve terabytes of addresses, and to ask for
/// the state of each page there takes minutes.
fn has_pages(map: &MemoryMap) -> bool {
    map.extension.map.get("Rss").is_none_or(|bytes| *bytes > 0)
}

fn is_shared_memory(path: &MMapPath) -> bool {
    match path {
        MMapPath::Vsys(_) => true,
        MMapPath::Path(path) => begins(path, &SHARED_MEMORY),
        _ => false,
    }
}

fn can_be_swapped(map: &MemoryMap) -> bool {
    match &map.pathname {
        MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall | MMapPath::Rollup => false,
        // `[vvar_vclock]` and the like. Names that programs give to memory are `[anon:NAME]`.
        MMapPath::Other(name) => name.starts_with("anon:") || name.starts_with("anon_shmem:"),
        MMapPath::Path(path) if begins(path, &["/memfd:hugetlb"]) => false,
        MMapPath::Path(path) => begins(path, &SHARED_MEMORY) || !begins(path, &NOT_SWAPPED),
        _ => true,
    }
}

fn begins(path: &Path, with: &[&str]) -> bool {
    let path = path.as_os_str().as_encoded_bytes();
    with.iter().any(|beginning| path.starts_with(beginning.as_bytes()))
}

fn io(error: ProcError) -> io::Error {
    match error {
        ProcError::PermissionDenied(_) => Errno::ACCESS.into(),
        // The text of a process that ends while it is read ends early.
        ProcError::NotFound(_) | ProcError::Incomplete(_) => Errno::SRCH.into(),
        ProcError::Io(error, _) => error,
        error => io::Error::other(error.to_string()),
    }
}

/// The numbers of all processes but this one.
///
/// # Errors
/// [`Error`] if /proc cannot be read.
pub fn all() -> Result<Vec<i32>, Error> {
    let wrong = |error: ProcError| Error::new("cannot list the processes", io(error));
    let own = std::process::id() as i32;
    let processes = procfs::process::all_processes().map_err(wrong)?;
    let mut pids: Vec<i32> =
        processes.filter_map(|it| Some(it.ok()?.pid)).filter(|it| *it != own).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// The numbers of the processes of a control group and of those below it. `group` is a directory,
/// or a path as in /proc/PID/cgroup.
///
/// # Errors
/// [`Error`] if there is no such group.
pub fn in_cgroup(group: &Path) -> Result<Vec<i32>, Error> {
    let places = ["", "/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"];
    let relative = group.strip_prefix("/").unwrap_or(group);
    let place = places.iter().map(|place| match *place {
        "" => group.to_owned(),
        place => Path::new(place).join(relative),
    });
    let found = place.into_iter().find(|place| place.join("cgroup.procs").exists());
    let Some(directory) = found else {
        let what = format!("there is no control group {}", group.display());
        return Err(Error::new(what, Errno::NOENT));
    };
    let mut pids = BTreeSet::new();
    add_group(&directory, &mut pids)
        .map_err(|error| Error::new(format!("cannot read {}", directory.display()), error))?;
    Ok(pids.into_iter().collect())
}

fn add_group(directory: &Path, pids: &mut BTreeSet<i32>) -> io::Result<()> {
    let text = fs::read_to_string(directory.join("cgroup.procs"))?;
    // 0 stands for a process of another namespace.
    pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid != 0));
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            add_group(&entry.path(), pids)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// `--all` looks at processes that may end at any moment.
    #[test]
    fn a_process_that_ends_while_it_is_read_is_gone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::open(child.id() as i32).unwrap();
        let maps = process.process.maps().unwrap();
        let mut pages = process.process.pagemap().unwrap();
        let (mut frames, mut resident) = (Frames::default(), Resident::default());
        let first = maps.iter().find(|map| can_be_swapped(map)).unwrap();
        add(first, &mut pages, &mut frames, &mut resident).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let cut_off = add(first, &mut pages, &mut frames, &mut resident).unwrap_err();
        let cut_off = Error::new("its pages", io(cut_off));
        assert!(cut_off.is_gone(), "{cut_off}");
        let gone = process.resident(&mut frames).unwrap_err();
        assert!(gone.is_gone(), "{gone}");
        let gone =
            Error::new("its memory", process.try_read(first.address.0, &mut [0]).unwrap_err());
        assert!(gone.is_gone(), "{gone}");
    }
}
