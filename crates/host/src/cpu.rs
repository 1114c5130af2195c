//! CPUs: the number of the current one, how many exist, and binding a thread to one.
//!
//! # Why unsafe
//! Calls into libc: no arguments, or a buffer and its own length.

use std::{fs, io};

use units::Cpu;

/// The CPU this thread runs on. The thread may move to another CPU at any moment. Any thread may
/// call it.
///
/// A few nanoseconds: glibc reads the number from the thread's restartable-sequences area, or
/// asks the vDSO (sched_getcpu(3)).
#[inline]
#[must_use]
pub fn cpu() -> Cpu {
    // SAFETY: no arguments, nothing written.
    let cpu = unsafe { libc::sched_getcpu() };
    Cpu(u32::try_from(cpu).unwrap_or(0))
}

/// How many per-CPU instances a program needs so that each CPU has its own.
///
/// One more than the highest CPU number *present* (/sys/devices/system/cpu/present, kernel document
/// `admin-guide/cputopology.rst`). Not the *possible* ones: virtual machines often announce
/// hundreds that will never exist, and CPUs cost memory. A CPU that is plugged in later shares the
/// state of another one, because CPU numbers are taken modulo this number. Without sysfs it is the
/// number of configured CPUs.
#[must_use]
pub fn cpus() -> usize {
    fs::read_to_string("/sys/devices/system/cpu/present")
        .ok()
        .and_then(|text| highest_in_list(&text))
        .map_or_else(configured_cpus, |highest| highest + 1)
}

/// One more than the highest CPU number that can ever exist, which may be hundreds more than
/// [`cpus`]. Without sysfs as [`cpus`].
#[must_use]
pub fn possible_cpus() -> usize {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").ok();
    text.and_then(|text| highest_in_list(&text)).map_or_else(cpus, |highest| highest + 1)
}

fn configured_cpus() -> usize {
    // SAFETY: sysconf takes a number and returns one.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// The highest number in a list such as `0-3,8,10-11`.
pub(crate) fn highest_in_list(text: &str) -> Option<usize> {
    let mut highest = None;
    for part in text.trim().split(',') {
        let last = part.rsplit('-').next()?;
        highest = highest.max(Some(last.parse().ok()?));
    }
    highest
}

/// How many CPUs this thread may run on: those online and in its affinity mask
/// (sched_getaffinity(2)). At least 1.
#[must_use]
pub fn online_cpus() -> usize {
    allowed_cpus().len().max(1)
}

/// The numbers of the CPUs this thread may run on, ascending (sched_getaffinity(2)). Empty on an
/// error.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    const WORD: usize = u64::BITS as usize;
    // The kernel refuses a mask shorter than its own with EINVAL, and does not report its length.
    for words in [16, 64, 256, 1024] {
        let mut mask = vec![0u64; words];
        // SAFETY: the buffer is as long as said, and a CPU mask is made of machine words.
        let result = unsafe {
            libc::sched_getaffinity(0, words * size_of::<u64>(), mask.as_mut_ptr().cast())
        };
        if result == 0 {
            return (0..words * WORD).filter(|n| mask[n / WORD] >> (n % WORD) & 1 != 0).collect();
        }
    }
    Vec::new()
}

/// Binds this thread, and threads that it starts later, to CPU `cpu` (sched_setaffinity(2)).
///
/// # Errors
/// The error of the system, with the CPU in its text: the CPU does not exist, or this process may
/// not use it.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    const WORD: usize = u64::BITS as usize;
    const HIGHEST: usize = 1 << 16;
    let result = if cpu < HIGHEST {
        let mut mask = vec![0u64; cpu / WORD + 1];
        mask[cpu / WORD] = 1 << (cpu % WORD);
        // SAFETY: the buffer is as long as said, and a CPU mask is made of machine words.
        unsafe { libc::sched_setaffinity(0, size_of_val(mask.as_slice()), mask.as_ptr().cast()) }
    } else {
        return Err(no_cpu(cpu, io::Error::from_raw_os_error(libc::EINVAL)));
    };
    if result == 0 { Ok(()) } else { Err(no_cpu(cpu, io::Error::last_os_error())) }
}

fn no_cpu(cpu: usize, error: io::Error) -> io::Error {
    let allowed = allowed_cpus();
    io::Error::new(error.kind(), format!("cannot run on CPU {cpu}: {error}; allowed: {allowed:?}"))
}
