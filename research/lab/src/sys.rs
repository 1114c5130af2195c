//! System calls that the standard library does not offer.
//!
//! # Why unsafe
//! It runs code between fork and exec. That code makes system calls, which neither allocate nor
//! lock; and it declares a function of the system's heap.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use memmap2::{MmapMut, MmapOptions};
use nix::errno::Errno;
use nix::sys::personality::{self, Persona};
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
pub use nix::sys::signal::Signal;
use nix::sys::time::TimeVal;
use nix::unistd::Pid;

/// Makes the kernel send `signal` to a child of this command when this process dies, even when this
/// process is killed. If `fixed`, the child has its memory at the same addresses each time
/// (personality(2)).
pub fn bind(command: &mut Command, signal: Signal, fixed: bool) -> &mut Command {
    let prepare = move || {
        prctl::set_pdeathsig(signal)?;
        if fixed && let Ok(now) = personality::get() {
            // Containers often forbid it. Then only the addresses are random.
            let _ = personality::set(now | Persona::ADDR_NO_RANDOMIZE);
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(prepare) }
}

/// Sends `signal` to a child that is not reaped yet, so that its process id is still its own.
pub fn signal(child: &mut Child, signal: Signal) -> io::Result<()> {
    if child.try_wait()?.is_some() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
    }
    Ok(nix::sys::signal::kill(Pid::from_raw(child.id() as i32), signal)?)
}

/// Makes a child of this command enter a control group before it becomes the program. `procs` is
/// the group's open `cgroup.procs` (kernel document `admin-guide/cgroup-v2.rst`: 0 is the writing
/// process).
pub fn enter(command: &mut Command, procs: File) -> &mut Command {
    // SAFETY: the closure only makes a system call.
    unsafe { command.pre_exec(move || (&procs).write_all(b"0")) }
}

/// Kills the process with this number. A process that has ended is no error.
pub fn kill(process: u32) -> io::Result<()> {
    match nix::sys::signal::kill(Pid::from_raw(process as i32), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file `bytes` bytes, all of them with blocks on the disk (posix_fallocate(3)).
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(nix::fcntl::posix_fallocate(file, 0, i64::try_from(bytes).map_err(io::Error::other)?)?)
}

/// The usage of processes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// CPU seconds in the programs.
    pub user: f64,
    /// CPU seconds in the kernel for the programs.
    pub system: f64,
    /// Page faults that read from a disk or from swap.
    pub major_faults: u64,
}

/// The usage of all reaped children so far, with that of their children (getrusage(2)).
pub fn children() -> Usage {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Usage::default() };
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Usage {
        user: seconds(usage.user_time()),
        system: seconds(usage.system_time()),
        major_faults: usage.major_page_faults() as u64,
    }
}

/// The resident bytes of this process, once the heap has given back what is free in it.
pub fn settled_bytes() -> u64 {
    // SAFETY: malloc_trim(3) takes any number, and any thread may call it.
    unsafe extern "C" {
        safe fn malloc_trim(pad: usize) -> i32;
    }
    malloc_trim(0);
    host::resident_bytes()
}

/// The bytes of the heap in use, with what the heap adds to each piece.
pub fn heap_bytes() -> u64 {
    /// `struct mallinfo2`: of ten numbers the fifth is bytes of maps, the eighth those in use.
    #[repr(C)]
    struct Counts([usize; 10]);
    // SAFETY: mallinfo2(3) returns such a struct; any thread may call it.
    unsafe extern "C" {
        safe fn mallinfo2() -> Counts;
    }
    let Counts([_, _, _, _, maps, _, _, used, ..]) = mallinfo2();
    (maps + used) as u64
}

/// CPU time of this thread (clock_gettime(2)). It stands still while other programs run, and goes
/// on in system calls.
pub fn thread_time() -> Duration {
    Duration::from_nanos(host::thread_cpu_time())
}

/// Memory of our own, page-aligned. Drop returns it to the system whole, so it does not disturb a
/// measurement of other memory.
pub type Memory = MmapMut;

/// Maps `bytes` bytes, resident from the start, and zeroed.
pub fn memory(bytes: usize) -> io::Result<Memory> {
    MmapOptions::new().len(bytes.max(1)).populate().map_anon()
}
