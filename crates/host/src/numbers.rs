//! Numbers of the system that other crates name. The C library is a dependency of this crate alone.

/// Numbers of errors, as [`std::io::Error::raw_os_error`] tells them (errno(3)).
pub mod errno {
    pub use libc::{
        EACCES, EADDRINUSE, EAGAIN, EBUSY, ECANCELED, ECONNABORTED, ECONNRESET, EDEADLK, EDQUOT,
        EEXIST, EFAULT, EFBIG, EINTR, EINVAL, EIO, ELOOP, EMFILE, ENAMETOOLONG, ENFILE, ENOBUFS,
        ENODEV, ENOENT, ENOMEM, ENOSPC, ENOSYS, ENOTCONN, ENOTDIR, ENOTEMPTY, ENXIO, EOPNOTSUPP,
        EPERM, EPROTO, EROFS, ESTALE, ETIME, ETIMEDOUT,
    };
}

/// Flags of open(2), lseek(2) and fallocate(2), and kinds of files (inode(7)).
pub mod flags {
    pub use libc::{
        FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, O_ACCMODE, O_CLOEXEC,
        O_DIRECT, O_DSYNC, O_EXCL, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_TMPFILE, S_IFREG,
        SEEK_DATA, SEEK_HOLE,
    };
}

/// Numbers of signals (signal(7)).
pub mod signal {
    pub use libc::{
        SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGKILL, SIGPIPE, SIGPROF, SIGPWR, SIGQUIT,
        SIGSEGV, SIGSTKFLT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGVTALRM,
        SIGXCPU, SIGXFSZ,
    };
}
