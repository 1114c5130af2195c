//! The calls of the system that roles are made of, in groups.
//!
//! For a call without a condition no filter runs on Linux 5.11 and later: the kernel keeps a bit
//! for each number whose answer does not depend on arguments. So the calls of the data path have
//! none.

/// A condition on an argument: the bits of `mask` in argument `index` have one of `values`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    pub(super) index: u8,
    pub(super) mask: u64,
    pub(super) values: &'static [u64],
}

/// When a call is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Always,
    If(Condition),
    /// Its first argument is the number of this process.
    OnThisProcess,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    #[allow(dead_code, reason = "the test that compares with docs/operating/safety.md reads it")]
    pub(super) name: &'static str,
    pub(super) number: libc::c_long,
    pub(super) when: When,
}

macro_rules! always {
    ($($name:literal $number:ident),* $(,)?) => {
        &[$(Call { name: $name, number: libc::$number, when: When::Always }),*]
    };
}

const fn only(
    name: &'static str,
    number: libc::c_long,
    index: u8,
    mask: u64,
    values: &'static [u64],
) -> Call {
    Call { name, number, when: When::If(Condition { index, mask, values }) }
}

const INT: u64 = u32::MAX as u64;

/// A group of calls.
pub(super) struct Group {
    /// Its name in docs/operating/safety.md.
    #[allow(dead_code, reason = "the test that compares with that document reads it")]
    pub(super) name: &'static str,
    pub(super) calls: &'static [&'static [Call]],
}

/// What any thread needs: to wait, to ask for memory and give it back, to tell the time, to handle
/// a signal, to write a line to standard error, to end, and to end the process when it is broken.
/// No memory becomes code. `fcntl` looks at flags (a debug build does before each close) and copies
/// descriptors. Any signal of the process may come to any thread; its handler writes to
/// a socket.
pub(super) const THREAD: Group = Group {
    name: "thread",
    calls: &[
        always!(
            "futex" SYS_futex,
            "madvise" SYS_madvise,
            "mremap" SYS_mremap,
            "munmap" SYS_munmap,
            "brk" SYS_brk,
            "mlock" SYS_mlock,
            "mlock2" SYS_mlock2,
            "munlock" SYS_munlock,
            "clock_gettime" SYS_clock_gettime,
            "clock_getres" SYS_clock_getres,
            "gettimeofday" SYS_gettimeofday,
            "clock_nanosleep" SYS_clock_nanosleep,
            "nanosleep" SYS_nanosleep,
            "getcpu" SYS_getcpu,
            "sched_yield" SYS_sched_yield,
            "sched_getaffinity" SYS_sched_getaffinity,
            "membarrier" SYS_membarrier,
            "getrandom" SYS_getrandom,
            "getpid" SYS_getpid,
            "gettid" SYS_gettid,
            "write" SYS_write,
            "writev" SYS_writev,
            "sendto" SYS_sendto,
            "ppoll" SYS_ppoll,
            "close" SYS_close,
            "restart_syscall" SYS_restart_syscall,
            "rt_sigreturn" SYS_rt_sigreturn,
            "rt_sigprocmask" SYS_rt_sigprocmask,
            "rt_sigaction" SYS_rt_sigaction,
            "sigaltstack" SYS_sigaltstack,
            "rseq" SYS_rseq,
            "set_robust_list" SYS_set_robust_list,
            "exit" SYS_exit,
            "exit_group" SYS_exit_group,
        ),
        #[cfg(target_arch = "x86_64")]
        always!("poll" SYS_poll, "time" SYS_time),
        &[
            only("mmap", libc::SYS_mmap, 2, libc::PROT_EXEC as u64, &[0]),
            only("mprotect", libc::SYS_mprotect, 2, libc::PROT_EXEC as u64, &[0]),
            only(
                "prctl",
                libc::SYS_prctl,
                0,
                INT,
                &[
                    libc::PR_SET_NAME as u64,
                    libc::PR_GET_NAME as u64,
                    libc::PR_SET_NO_NEW_PRIVS as u64,
                    libc::PR_GET_NO_NEW_PRIVS as u64,
                ],
            ),
            only(
                "fcntl",
                libc::SYS_fcntl,
                1,
                INT,
                &[libc::F_DUPFD_CLOEXEC as u64, libc::F_GETFD as u64, libc::F_GETFL as u64],
            ),
            Call { name: "tgkill", number: libc::SYS_tgkill, when: When::OnThisProcess },
        ],
    ],
};

/// To read and write backing files and devices that are open, and to give back parts of them
/// and of kept memory.
pub(super) const STORAGE: Group = Group {
    name: "storage",
    calls: &[
        always!(
            "io_uring_enter" SYS_io_uring_enter,
            "pread64" SYS_pread64,
            "pwrite64" SYS_pwrite64,
            "fdatasync" SYS_fdatasync,
            "fallocate" SYS_fallocate,
            "lseek" SYS_lseek,
            "flock" SYS_flock,
        ),
        &[only("ioctl", libc::SYS_ioctl, 1, INT, &[BLKDISCARD])],
    ],
};

/// `BLKDISCARD` of linux/fs.h.
const BLKDISCARD: u64 = 0x1277;

/// To start threads, which inherit what this one has. Processes cannot be started: `clone` needs
/// `CLONE_THREAD`. No filter can see the arguments of `clone3`, so it is answered with `ENOSYS`,
/// after which the C library calls `clone`.
pub(super) const THREADS: Group = Group {
    name: "threads",
    calls: &[
        always!("clone3" SYS_clone3),
        &[only(
            "clone",
            libc::SYS_clone,
            0,
            libc::CLONE_THREAD as u64,
            &[libc::CLONE_THREAD as u64],
        )],
    ],
};

/// To serve a connected socket or a pair of pipes.
pub(super) const SOCKET: Group = Group {
    name: "socket",
    calls: &[always!(
        "recvfrom" SYS_recvfrom,
        "read" SYS_read,
        "readv" SYS_readv,
        "getsockopt" SYS_getsockopt,
        "setsockopt" SYS_setsockopt,
        "shutdown" SYS_shutdown,
    )],
};

/// To take connections of a listening socket.
pub(super) const ACCEPT: Group = Group {
    name: "accept",
    calls: &[always!(
        "accept4" SYS_accept4,
        "geteuid" SYS_geteuid,
        "getpeername" SYS_getpeername,
        "getsockname" SYS_getsockname,
    )],
};

/// To take more from itself, as a thread does that serves a client and was started by one that
/// takes connections ([`super::enter`]).
pub(super) const NARROW: Group = Group {
    name: "narrow",
    calls: &[
        always!(
            "capget" SYS_capget,
            "capset" SYS_capset,
            "landlock_create_ruleset" SYS_landlock_create_ruleset,
            "landlock_restrict_self" SYS_landlock_restrict_self,
        ),
        &[only("seccomp", libc::SYS_seccomp, 0, INT, &[libc::SECCOMP_SET_MODE_FILTER as u64])],
    ],
};

/// To take requests from a descriptor that is open.
pub(super) const REQUESTS: Group = Group { name: "requests", calls: &[always!("read" SYS_read)] };

/// To begin a session with the FUSE library again (see `fuse`): a pair of sockets, one of which is
/// replaced by the descriptor of the mount.
pub(super) const SESSION: Group = Group {
    name: "session",
    calls: &[
        always!("dup3" SYS_dup3, "geteuid" SYS_geteuid),
        &[only("socketpair", libc::SYS_socketpair, 0, INT, &[libc::AF_UNIX as u64])],
    ],
};

/// To be given the memory and the signals of a virtual machine, and to make memory and signals for
/// it. What was given is checked, and no file system of who gave it is asked, but by its close.
pub(super) const GUEST: Group = Group {
    name: "guest",
    calls: &[always!(
        "recvmsg" SYS_recvmsg,
        "sendmsg" SYS_sendmsg,
        "fstat" SYS_fstat,
        "fstatfs" SYS_fstatfs,
        "statx" SYS_statx,
        "eventfd2" SYS_eventfd2,
        "memfd_create" SYS_memfd_create,
        "ftruncate" SYS_ftruncate,
        "mlockall" SYS_mlockall,
        "fcntl" SYS_fcntl,
    )],
};

/// To read files of /proc that are open.
pub(super) const LOOK: Group = Group { name: "look", calls: &[always!("pread64" SYS_pread64)] };

/// To give memory back that outlives the process: a hole in a file of kept memory. `madvise` does
/// it for other memory.
pub(super) const KEPT: Group =
    Group { name: "kept", calls: &[&[only("fallocate", libc::SYS_fallocate, 1, INT, &[HOLE])]] };

const HOLE: u64 = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u64;

/// All groups.
#[cfg(test)]
pub(super) const GROUPS: &[&Group] = &[
    &THREAD, &STORAGE, &THREADS, &SOCKET, &ACCEPT, &NARROW, &REQUESTS, &SESSION, &GUEST, &LOOK,
    &KEPT,
];
