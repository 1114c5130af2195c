//! The threads that read the requests of a mount.
//!
//! A thread of the FUSE library ends for good with the first error of a read that the library does
//! not know, and with the first request that it cannot parse. The mount stays, and its requests
//! would find one reader less, or none. So each thread here runs a session of the library with
//! one reader ([`handover::session`]), and begins another one when that has ended and the mount is
//! still there.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuser::{Filesystem, Session, SessionACL};
use host::Role;

use crate::handover;

/// The shortest pause after an error, and the longest while one session after the other fails.
const PAUSE: Duration = Duration::from_millis(10);
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// The stack of a thread that waits for its reader, in bytes.
const STACK: usize = 128 << 10;

/// What the threads of a mount have in common.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// The threads have this name and a number.
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// Whose requests are answered; as the mount was made.
    pub(crate) acl: SessionACL,
}

/// The threads of a mount.
pub(crate) struct Threads(Vec<JoinHandle<()>>);

impl Threads {
    /// Starts a thread for each descriptor of the mount. They end with the mount.
    ///
    /// # Errors
    /// When a thread cannot be started, or may not serve ([`host::enter`]). Threads that were
    /// started end with the mount.
    pub(crate) fn start<F>(filesystem: &F, channels: Vec<File>, kind: Kind) -> io::Result<Threads>
    where
        F: Filesystem + Clone + Send + Sync + 'static,
    {
        let (ready, is_ready) = mpsc::channel();
        let mut threads = Vec::new();
        for (number, channel) in channels.into_iter().enumerate() {
            let (filesystem, ready) = (filesystem.clone(), ready.clone());
            let run = move || {
                let entered = host::enter(kind.role);
                let may_serve = entered.is_ok();
                // Nobody receives it if another thread could not be started.
                let _ = ready.send(entered);
                drop(ready);
                if may_serve {
                    serve(&filesystem, &channel, kind);
                }
            };
            let name = format!("{}-{number}", kind.name);
            threads.push(thread::Builder::new().name(name).stack_size(STACK).spawn(run)?);
        }
        drop(ready);
        is_ready.into_iter().collect::<io::Result<()>>()?;
        Ok(Threads(threads))
    }

    /// Have all ended?
    pub(crate) fn are_over(&self) -> bool {
        self.0.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all, until `end` at most. Returns whether they have ended.
    pub(crate) fn join(self, end: Instant) -> bool {
        while !self.are_over() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        let are_over = self.are_over();
        for thread in self.0.into_iter().filter(|_| are_over) {
            // The panic hook has reported a panic.
            let _ = thread.join();
        }
        are_over
    }
}

/// Serves `channel` until the mount is gone.
fn serve<F>(filesystem: &F, channel: &File, kind: Kind)
where
    F: Filesystem + Clone + Send + Sync + 'static,
{
    let mut pause = PAUSE;
    loop {
        let begun = Instant::now();
        // It succeeds when the mount is gone.
        let session = handover::session(filesystem.clone(), channel.as_fd(), kind.acl);
        let Err(error) = session.and_then(Session::run) else { return };
        tracing::warn!("a reader of FUSE requests begins anew after an error: {error}");
        pause = if begun.elapsed() > LONG_PAUSE { PAUSE } else { (pause * 2).min(LONG_PAUSE) };
        thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// It answers nothing but what the library answers by itself.
    #[derive(Clone)]
    struct Nothing;
    impl Filesystem for Nothing {}

    const STATFS: u32 = 17;
    const DESTROY: u32 = 38;

    fn request(what: u32, unique: u32) -> [u8; 40] {
        let mut request = [0; 40];
        for (at, number) in [(0, 40), (4, what), (8, unique)] {
            request[at..at + 4].copy_from_slice(&u32::to_ne_bytes(number));
        }
        request
    }

    /// A socket in place of /dev/fuse, and the kernel's end of it.
    fn device() -> (File, UnixDatagram) {
        let (kernel, library) = UnixDatagram::pair().unwrap();
        kernel.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (File::from(OwnedFd::from(library)), kernel)
    }

    /// Asks, and returns the number of the request that is answered.
    fn answered(kernel: &UnixDatagram, unique: u32) -> io::Result<u32> {
        kernel.send(&request(STATFS, unique))?;
        let mut answer = [0; 256];
        let length = kernel.recv(&mut answer)?;
        assert!(length >= 16, "{length}");
        Ok(u32::from_ne_bytes(answer[8..12].try_into().unwrap()))
    }

    #[test]
    fn a_reader_goes_on_after_an_error_that_ends_the_librarys() {
        let (device, kernel) = device();
        let kind = Kind { name: "test", role: Role::FuseDisk, acl: SessionACL::All };
        let threads = Threads::start(&Nothing, vec![device], kind).unwrap();
        for unique in 1..4 {
            // Too short for a request: the library takes it for the end.
            kernel.send(&[1; 10]).unwrap();
            assert_eq!(answered(&kernel, unique).unwrap(), unique);
        }
        assert!(!threads.are_over());
        kernel.send(&request(DESTROY, 9)).unwrap();
        assert!(threads.join(Instant::now() + Duration::from_secs(20)));
    }

    /// What the test above is about: the library's own reader does not go on.
    #[test]
    fn a_session_of_the_library_ends_with_such_an_error() {
        let (device, kernel) = device();
        let session = handover::session(Nothing, device.as_fd(), SessionACL::All).unwrap();
        kernel.send(&[1; 10]).unwrap();
        assert!(session.run().is_err());
        kernel.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(answered(&kernel, 1).is_err());
    }
}
