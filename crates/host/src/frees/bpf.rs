//! The calls for programs in the kernel: bpf(2), perf_event_open(2), and the memory of a map.
//!
//! # Why unsafe
//! System calls whose arguments are structures with addresses in them, and memory that the kernel
//! shares.

use std::ffi::{CStr, CString, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;

use sync::atomic::AtomicU64;

const MAP_CREATE: c_long = 0;
const PROG_LOAD: c_long = 5;
const MAP_TYPE_ARRAY: u64 = 2;
const PROG_TYPE_KPROBE: u64 = 2;
/// The memory of the map can be mapped (Linux 5.5).
const MMAPABLE: u64 = 1 << 10;
const LICENCE: &CStr = c"MIT";
const PERF_FLAG_FD_CLOEXEC: c_long = 8;
const PERF_EVENT_IOC_SET_BPF: libc::Ioctl = 0x4004_2408;

fn own(number: c_long) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

fn number(of: &OwnedFd) -> u64 {
    of.as_raw_fd() as u64
}

/// Words of 64 bits of two of 32, as they lie in memory.
fn pair(first: u64, second: u64) -> u64 {
    if cfg!(target_endian = "little") { first | second << 32 } else { first << 32 | second }
}

fn bpf(command: c_long, attributes: &[u64]) -> io::Result<OwnedFd> {
    // SAFETY: the structure lives through the call, and its size is told. What its addresses name
    // lives as long: see the callers.
    own(unsafe {
        libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(attributes))
    })
}

/// Makes a map of one value of so many bytes, which can be mapped.
pub fn make_map(bytes: u32) -> io::Result<OwnedFd> {
    let [key_bytes, entries] = [4, 1];
    let attributes =
        [pair(MAP_TYPE_ARRAY, key_bytes), pair(bytes.into(), entries), pair(MMAPABLE, 0)];
    bpf(MAP_CREATE, &attributes)
}

/// Loads a program for probes. Inside is what the kernel's verifier says of it at last.
pub fn load(code: &[u64]) -> io::Result<OwnedFd> {
    let (code_at, licence) = (code.as_ptr() as u64, LICENCE.as_ptr() as u64);
    let name = u64::from_ne_bytes(*b"rampack\0");
    let attributes =
        [pair(PROG_TYPE_KPROBE, code.len() as u64), code_at, licence, 0, 0, 0, name, 0];
    bpf(PROG_LOAD, &attributes)
}

/// What the verifier says of a program that it refuses.
#[cfg(test)]
pub fn why_not(code: &[u64]) -> String {
    let mut log = vec![0_u8; 1 << 20];
    let (code_at, licence) = (code.as_ptr() as u64, LICENCE.as_ptr() as u64);
    let kind = pair(PROG_TYPE_KPROBE, code.len() as u64);
    let level = pair(1, log.len() as u64);
    let loaded = bpf(PROG_LOAD, &[kind, code_at, licence, level, log.as_mut_ptr() as u64, 0, 0, 0]);
    let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let lines: Vec<_> = said.rsplit(|byte| *byte == b'\n').take(20).collect();
    let lines: Vec<_> = lines.iter().rev().map(|line| String::from_utf8_lossy(line)).collect();
    format!("{loaded:?}: {}", lines.join("\n"))
}

/// Where a program runs: at an address in a function of the kernel, or in a file of programs.
pub struct Probe<'a> {
    /// The number of its driver (`/sys/bus/event_source/devices/NAME/type`).
    pub driver: u32,
    /// The function of the kernel, or the file.
    pub name: &'a str,
    /// The offset in that.
    pub offset: u64,
    /// The only process; all without one.
    pub process: Option<u32>,
}

/// Has the program run there for as long as the result lives.
pub fn attach(probe: &Probe<'_>, program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = CString::new(probe.name).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut attributes = [0_u64; 9];
    attributes[0] = pair(probe.driver.into(), size_of_val(&attributes) as u64);
    (attributes[7], attributes[8]) = (name.as_ptr() as u64, probe.offset);
    let (process, cpu): (c_long, c_long) =
        probe.process.map_or((-1, 0), |process| (process.into(), -1));
    let group: c_long = -1;
    // SAFETY: the structure has its size in it. It and the name that it has the address of live
    // through the call.
    let event = own(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            process,
            cpu,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    })?;
    // SAFETY: two descriptors.
    let set = unsafe {
        libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_BPF, number(program) as libc::c_int)
    };
    if set == 0 { Ok(event) } else { Err(io::Error::last_os_error()) }
}

/// The memory of a map, which is the kernel's: it is always present.
pub struct Shared {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: atomics in memory that belongs to the process, not to a thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps the first `bytes` of a map, a multiple of the page size.
    pub fn of(map: &OwnedFd, bytes: usize) -> io::Result<Shared> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses overlaps no other.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        match NonNull::new(at.cast()) {
            Some(base) if at != libc::MAP_FAILED => Ok(Shared { base, words: bytes / 8 }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its words. The kernel changes them meanwhile, by whole words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page aligned, has so many words, and lives as long as `self`. All
        // values are good, and everybody else uses atomic operations.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast::<c_void>(), self.words * 8) };
    }
}
