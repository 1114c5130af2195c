//! The daemon's side: gives descriptors to the service manager, and takes them back.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::parent_id;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use host::{FIRST_PASSED, For};

use crate::message::is_name;
use crate::rehearsal::{given, is_rehearsal};

/// The longest name of a descriptor, in bytes.
pub const NAME_MAX: usize = 64;
/// Begins an address that is the number of a descriptor.
const INHERITED: &str = "fd:";
/// A limit above any real number of descriptors.
const MOST: RawFd = 4096;

/// The service manager, as a place for descriptors. They stay there when this process dies.
#[derive(Debug)]
pub struct Store {
    /// None in a rehearsal: it is told nothing.
    socket: Option<UnixDatagram>,
    /// The keeper, if it is one: it started this process.
    keeper: Option<u32>,
    /// Copies of what the service manager has, for a program that replaces this one in place.
    kept: Mutex<Vec<(String, OwnedFd)>>,
}

impl Store {
    /// The service manager that `NOTIFY_SOCKET` names; None without one, or if it keeps no
    /// descriptors for this process: `FDSTORE` is how many it keeps (sd_pid_notify_with_fds(3);
    /// systemd 254 and newer set it).
    ///
    /// # Errors
    /// The error of the system if the socket cannot be reached.
    pub fn of_environment() -> io::Result<Option<Store>> {
        let most = env::var("FDSTORE").ok().and_then(|most| most.parse::<u32>().ok());
        if is_rehearsal() {
            return Ok(Some(Store { socket: None, keeper: None, kept: Mutex::default() }));
        }
        match env::var_os("NOTIFY_SOCKET") {
            Some(address) if most.is_some_and(|most| most > 0) => Store::at(&address).map(Some),
            _ => Ok(None),
        }
    }

    /// The service manager at the socket `address`: a path, an abstract name behind `@`, or the
    /// number of a connected socket behind `fd:`, which a [`crate::Keeper`] hands over.
    ///
    /// # Errors
    /// The error of the system if the socket cannot be reached.
    pub fn at(address: &OsStr) -> io::Result<Store> {
        let socket = connect(address)?;
        let keeper = inherited_number(address).map(|_| host::peer_of(&socket)).transpose()?;
        let keeper = keeper.map(|maker| maker.pid.unwrap_or(0));
        Ok(Store { socket: Some(socket), keeper, kept: Mutex::default() })
    }

    /// Is the service manager still there? It is known at once of a [`crate::Keeper`]; that another
    /// one is gone, [`Store::settle`] tells. Waits for nothing.
    #[must_use]
    pub fn is_there(&self) -> bool {
        // A process gets another parent when its parent ends.
        self.keeper.is_none_or(|keeper| keeper == parent_id())
    }

    fn send(&self, text: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.socket.as_ref().map_or(Ok(()), |socket| host::send_message(socket, text, fd))
    }

    /// Gives a copy of `fd` to the service manager, under `name`. It is kept under that name beside
    /// others of the same name. [`Store::settle`] waits until it is there.
    ///
    /// # Errors
    /// `InvalidInput` for a name that cannot be; the error of sendmsg(2).
    pub fn keep(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        check(name)?;
        // Without FDPOLL=0 systemd closes a descriptor that has a hangup or an error to tell.
        let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        self.send(text.as_bytes(), Some(fd))?;
        self.note(name, fd)
    }

    /// Notes that the service manager has `fd` already, under `name`: it handed it over.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn note(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        let copy = fd.try_clone_to_owned()?;
        self.lock().push((name.to_owned(), copy));
        Ok(())
    }

    /// Copies of the descriptors that the service manager has of this process, with their names.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn kept(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.lock().iter().map(|(name, fd)| Ok((name.clone(), fd.try_clone()?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, OwnedFd)>> {
        // The list is whole even if a thread panicked under this lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the service manager close what it keeps under `name`.
    ///
    /// # Errors
    /// As [`Store::keep`].
    pub fn forget(&self, name: &str) -> io::Result<()> {
        check(name)?;
        let text = format!("FDSTOREREMOVE=1\nFDNAME={name}");
        self.lock().retain(|(kept, _)| kept != name);
        self.send(text.as_bytes(), None)
    }

    /// Tells the service manager `state`, such as `READY=1` (sd_notify(3)). If its socket is full,
    /// this waits until it reads, for `time` at most.
    ///
    /// # Errors
    /// `TimedOut` after `time`; the error of sendmsg(2).
    pub fn tell(&self, state: &str, time: Duration) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let end = Instant::now() + time;
        while !host::send_now(socket, state.as_bytes())? {
            if !host::wait_until(socket.as_fd(), For::Writing, end)? {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Waits until the service manager has carried out everything that it was told before. Without
    /// it, a message of a process that dies at once may be lost: systemd asks whose it was.
    ///
    /// # Errors
    /// `TimedOut` after `time`; the error of sendmsg(2).
    pub fn settle(&self, time: Duration) -> io::Result<()> {
        let (end, other) = io::pipe()?;
        self.send(b"BARRIER=1", Some(other.as_fd()))?;
        drop(other);
        match host::wait_until(end.as_fd(), For::Reading, Instant::now() + time)? {
            true => Ok(()),
            false => Err(ErrorKind::TimedOut.into()),
        }
    }
}

/// The number in the address of a socket that this process was started with.
pub(crate) fn inherited_number(address: &OsStr) -> Option<RawFd> {
    address.to_str()?.strip_prefix(INHERITED)?.parse().ok()
}

/// The address of a socket that a process is started with.
pub(crate) fn inherited_address(number: RawFd) -> String {
    format!("{INHERITED}{number}")
}

/// A socket whose messages go to `address`, as in `NOTIFY_SOCKET`.
pub(crate) fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    if let Some(number) = inherited_number(address) {
        return host::copy_of_inherited(number).map(UnixDatagram::from);
    }
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

fn check(name: &str) -> io::Result<()> {
    if is_name(name, NAME_MAX) {
        return Ok(());
    }
    let text = format!(
        "{name:?} cannot name a descriptor: 1 to {NAME_MAX} visible ASCII characters except ':'"
    );
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

/// Takes the descriptors that `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES` hand over to this
/// process, with their names (sd_listen_fds_with_names(3)): sockets, and what an earlier process
/// gave to a [`Store`]; in a rehearsal, copies of them ([`crate::rehearse`]). The list is empty
/// when the process was started in another way. Programs that this process starts do not get them,
/// nor the socket of a [`crate::Keeper`]. Call it once, before the process opens other descriptors.
///
/// # Errors
/// An error that shows the variable when it does not name open descriptors.
pub fn handed_over() -> io::Result<Vec<(String, OwnedFd)>> {
    if let Some(given) = given() {
        return given;
    }
    let [pid, fds, names] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].map(env::var_os);
    let names = passed(pid, fds, names, std::process::id())
        .map_err(|text| io::Error::new(ErrorKind::InvalidInput, text))?;
    if let Some(socket) = env::var_os("NOTIFY_SOCKET").as_deref().and_then(inherited_number) {
        host::close_on_exec(socket).map_err(|error| {
            let text = format!("descriptor {socket} of NOTIFY_SOCKET is not open: {error}");
            io::Error::new(error.kind(), text)
        })?;
    }
    let take = |(fd, name): (RawFd, String)| {
        let fd = host::inherited(fd).map_err(|error| {
            let text = format!("descriptor {fd} ({name}) of LISTEN_FDS is not open: {error}");
            io::Error::new(error.kind(), text)
        })?;
        Ok((name, fd))
    };
    (FIRST_PASSED..).zip(names).map(take).collect()
}

/// The names of the descriptors passed to process `own`, the first of which is [`FIRST_PASSED`].
pub(crate) fn passed(
    pid: Option<OsString>,
    fds: Option<OsString>,
    names: Option<OsString>,
    own: u32,
) -> Result<Vec<String>, String> {
    let (Some(pid), Some(fds)) = (pid, fds) else { return Ok(Vec::new()) };
    // A child inherits the variables: `LISTEN_PID` names the process they are for.
    if pid.to_str().and_then(|pid| pid.parse().ok()) != Some(own) {
        return Ok(Vec::new());
    }
    let count = fds.to_str().and_then(|fds| fds.parse::<RawFd>().ok());
    let Some(count) = count.filter(|count| (0..=MOST).contains(count)) else {
        return Err(format!("LISTEN_FDS is {fds:?}; it must be a number from 0 to {MOST}"));
    };
    let count = count as usize;
    let Some(names) = names else { return Ok(vec!["unknown".to_owned(); count]) };
    let text = names.to_string_lossy();
    let list: Vec<String> = match count {
        0 => Vec::new(),
        _ => text.split(':').map(str::to_owned).collect(),
    };
    if list.len() != count {
        return Err(format!("LISTEN_FDNAMES is {names:?}; it must be {count} names"));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use testkit::TempDir;

    use super::*;

    #[test]
    fn descriptors_are_those_of_this_process() {
        let of = |pid: &str, fds: &str, names: Option<&str>| {
            passed(Some(pid.into()), Some(fds.into()), names.map(Into::into), 7)
        };
        assert_eq!(of("7", "2", Some("a:b")).unwrap(), ["a", "b"]);
        assert_eq!(of("7", "2", None).unwrap(), ["unknown", "unknown"]);
        assert_eq!(of("7", "0", Some("")).unwrap(), [""; 0]);
        assert_eq!(of("8", "2", Some("a:b")).unwrap(), [""; 0]);
        assert_eq!(of("", "2", None).unwrap(), [""; 0]);
        assert_eq!(passed(None, Some("2".into()), None, 7).unwrap(), [""; 0]);
        for fds in ["-1", "x", "", "4097"] {
            let text = of("7", fds, None).unwrap_err();
            let expected = format!("LISTEN_FDS is {fds:?}; it must be a number from 0 to 4096");
            assert_eq!(text, expected);
        }
        let text = of("7", "3", Some("a:b")).unwrap_err();
        assert_eq!(text, "LISTEN_FDNAMES is \"a:b\"; it must be 3 names");
    }

    #[test]
    fn messages_reach_sockets_with_a_path_and_without_one() {
        let dir = TempDir::new();
        let path = dir.join("notify");
        let name = format!("rampack-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}").into()),
        ];
        for (socket, address) in sockets {
            Store::at(&address).unwrap().tell("READY=1", Duration::ZERO).unwrap();
            let mut text = [0; 64];
            let length = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..length], b"READY=1", "{address:?}");
        }
        assert!(Store::at(OsStr::new("/nonexistent/notify")).is_err());
        assert!(Store::at(OsStr::new("")).is_err());
    }

    #[test]
    fn a_keeper_is_the_parent_of_the_process() {
        // The other end is one of this process.
        let (socket, _other) = UnixDatagram::pair().unwrap();
        let address = inherited_address(socket.as_raw_fd());
        let mut store = Store::at(OsStr::new(&address)).unwrap();
        assert_eq!(store.keeper, Some(std::process::id()));
        assert!(!store.is_there());
        store.keeper = Some(parent_id());
        assert!(store.is_there());
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        let (socket, _other) = UnixDatagram::pair().unwrap();
        let store = Store { socket: Some(socket), keeper: None, kept: Mutex::default() };
        for name in ["", "a:b", &"x".repeat(65)] {
            let error = store.forget(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("1 to 64 visible"), "{error}");
        }
        store.forget("a").unwrap();
    }

    #[test]
    fn what_the_service_manager_has_is_known() {
        let (socket, _other) = UnixDatagram::pair().unwrap();
        let store = Store { socket: Some(socket), keeper: None, kept: Mutex::default() };
        let (end, _) = io::pipe().unwrap();
        store.note("a", end.as_fd()).unwrap();
        store.keep("b", end.as_fd()).unwrap();
        store.keep("b", end.as_fd()).unwrap();
        let names = |store: &Store| {
            store.kept().unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&store), ["a", "b", "b"]);
        assert!(store.keep("a:b", end.as_fd()).is_err());
        store.forget("b").unwrap();
        assert_eq!(names(&store), ["a"]);
    }
}
