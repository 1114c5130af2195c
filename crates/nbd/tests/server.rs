//! Listeners, threads, and stopping.

mod common;
#[path = "server/places.rs"]
mod places;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use common::*;
use nbd::{ExportInfo, Exports, ListenError, Listener, One, OpenError, Options, Server, Stream};
use testkit::TempDir;
use units::Cpu;

fn server(device: Arc<dyn BlockDevice>) -> Server {
    let options = Options { grace: Duration::from_secs(1), ..Options::default() };
    common::new_server(Arc::new(One::new("disk", "", device)), options).unwrap()
}

/// Negotiates and reads a byte over any stream.
fn use_it(mut stream: impl Read + Write) {
    stream.write_all(&hello(Style::Simple)).unwrap();
    stream.write_all(&request_bytes(0, READ, 1, 0, 1)).unwrap();
    let mut answer = [0; 18 + 20 + 12 + 20 + 16 + 1];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..8], *b"NBDMAGIC");
}

/// Reads to the end of a connection that the server closes.
fn expect_end(mut stream: impl Read) {
    match stream.read_to_end(&mut vec![]) {
        Ok(_) => {}
        Err(error) => assert!(closed(&error), "{error}"),
    }
}

/// True when the server closed the connection without a word.
fn is_turned_away(mut stream: impl Read) -> bool {
    stream.read(&mut [0]).is_ok_and(|read| read == 0)
}

#[test]
fn a_unix_socket_is_for_its_owner_and_goes_away() {
    let directory = TempDir::new();
    let path = directory.join("nbd.sock");
    let server = server(plain(4096));
    server.listen(Listener::unix(&path).unwrap()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    use_it(UnixStream::connect(&path).unwrap());
    server.shutdown();
    server.join();
    assert!(!path.exists());
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_path_in_use_is_an_error_and_the_server_there_lives_on() {
    let directory = TempDir::new();
    let path = directory.join("nbd.sock");
    let first = server(plain(4096));
    first.listen(Listener::unix(&path).unwrap()).unwrap();
    let error = Listener::unix(&path).unwrap_err();
    assert!(matches!(error, ListenError::InUse(_)));
    let text = error.to_string();
    assert!(text.contains("nbd.sock") && text.contains("another server"), "{text}");
    use_it(UnixStream::connect(&path).unwrap());
    first.shutdown();
    first.join();
}

#[test]
fn what_a_killed_server_left_is_replaced() {
    let directory = TempDir::new();
    let path = directory.join("nbd.sock");
    // Closing a socket leaves its file, as kill -9 does.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = server(plain(4096));
    server.listen(Listener::unix(&path).unwrap()).unwrap();
    use_it(UnixStream::connect(&path).unwrap());
    server.shutdown();
    server.join();
}

#[test]
fn a_listener_leaves_the_file_of_its_successor() {
    let directory = TempDir::new();
    let path = directory.join("nbd.sock");
    let first = Listener::unix(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let second = Listener::unix(&path).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}

#[test]
fn paths_that_cannot_be() {
    let directory = TempDir::new();
    let file = directory.join("file");
    fs::write(&file, "precious").unwrap();
    let error = Listener::unix(&file).unwrap_err();
    assert!(matches!(error, ListenError::NotASocket(_)), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");

    let error = Listener::unix(&directory.join("x".repeat(200))).unwrap_err();
    assert!(matches!(error, ListenError::TooLong(_)));
    assert!(error.to_string().contains("107"), "{error}");

    let error = Listener::unix(&directory.join("missing/nbd.sock")).unwrap_err();
    assert!(error.to_string().contains("missing/nbd.sock: cannot listen: "), "{error}");
    let error = Listener::unix(&PathBuf::from("a\0b")).unwrap_err();
    assert!(matches!(error, ListenError::Path(..)));
}

#[test]
fn a_lock_on_the_directory_keeps_nobody_out() {
    let directory = TempDir::new();
    let path = directory.join("nbd.sock");
    let held = fs::File::open(directory.path()).unwrap();
    held.lock().unwrap();
    let listener = Listener::unix(&path).unwrap();
    let names = || fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(names(), 1, "only the socket");
    drop(listener);
    assert_eq!(names(), 0);
    // A lock file that a killed server left.
    fs::write(directory.join("nbd.sock.lock"), "").unwrap();
    let listener = Listener::unix(&path).unwrap();
    assert_eq!(names(), 1);
    drop(listener);
}

#[test]
fn a_lock_file_of_another_user_keeps_nobody_out() {
    let name = "a_lock_file_of_another_user_keeps_nobody_out";
    if !testkit::met(name, &[testkit::Need::Root]) {
        return;
    }
    let directory = TempDir::new();
    let lock = directory.join("nbd.sock.lock");
    let held = fs::File::create(&lock).unwrap();
    std::os::unix::fs::chown(&lock, Some(65534), None).unwrap();
    held.lock().unwrap();
    drop(Listener::unix(&directory.join("nbd.sock")).unwrap());
    assert!(lock.exists(), "it is not ours");
}

/// Connects as another user: the system call changes the user of the calling thread only.
fn connect_as(user: u32, path: PathBuf) -> std::io::Result<UnixStream> {
    let connecting = std::thread::spawn(move || {
        // SAFETY: the call takes numbers, and this thread does nothing else afterwards.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        assert_eq!(done, 0);
        let stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(stream)
    });
    connecting.join().unwrap()
}

#[test]
fn a_unix_socket_may_be_for_named_users() {
    if !testkit::met("a_unix_socket_may_be_for_named_users", &[testkit::Need::Root]) {
        return;
    }
    let directory = TempDir::new();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (private, shared) = (directory.join("private"), directory.join("shared"));
    let server = server(plain(4096));
    server.listen(Listener::unix(&private).unwrap()).unwrap();
    server.listen(Listener::unix_for(&shared, &[65534, 12]).unwrap()).unwrap();
    assert!(connect_as(65534, private.clone()).is_err());
    use_it(connect_as(65534, shared.clone()).unwrap());
    use_it(connect_as(12, shared.clone()).unwrap());
    assert!(is_turned_away(connect_as(13, shared.clone()).unwrap()));
    use_it(UnixStream::connect(&shared).unwrap());
    use_it(UnixStream::connect(&private).unwrap());
    server.shutdown();
    server.join();
}

#[test]
fn the_longest_path_works() {
    let directory = TempDir::new();
    let left = 107 - directory.join("").as_os_str().len();
    let path = directory.join("y".repeat(left));
    assert_eq!(path.as_os_str().len(), 107);
    let listener = Listener::unix(&path).unwrap();
    UnixStream::connect(&path).unwrap();
    drop(listener);
}

#[test]
fn servers_that_start_at_once_do_not_take_the_path_from_each_other() {
    let directory = TempDir::new();
    let path = directory.join("nbd.sock");
    drop(UnixListener::bind(&path).unwrap());
    for _ in 0..20 {
        let listeners: Vec<_> = std::thread::scope(|scope| {
            let starting = [(); 4].map(|()| scope.spawn(|| Listener::unix(&path)));
            starting.map(|thread| thread.join().unwrap()).into_iter().collect()
        });
        assert_eq!(listeners.iter().filter(|listener| listener.is_ok()).count(), 1);
        UnixStream::connect(&path).unwrap();
    }
}

#[test]
fn tcp() {
    let listener = Listener::tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.tcp_address().unwrap();
    let error = Listener::tcp(address).unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let server = server(plain(4096));
    server.listen(listener).unwrap();
    let idle = TcpStream::connect(address).unwrap();
    use_it(TcpStream::connect(address).unwrap());
    server.shutdown();
    server.join();
    drop(idle);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_socket_that_listens_already() {
    let directory = TempDir::new();
    let path = directory.join("nbd.sock");
    let listener = Listener::listening(OwnedFd::from(UnixListener::bind(&path).unwrap()));
    assert!(listener.tcp_address().is_none());
    let server = server(plain(4096));
    server.listen(listener).unwrap();
    use_it(UnixStream::connect(&path).unwrap());
    server.shutdown();
    server.join();
    assert!(path.exists(), "it belongs to whoever made it");
}

#[test]
fn pipes() {
    let server = Arc::new(server(plain(4096)));
    let (input, mut to_server) = std::io::pipe().unwrap();
    let (mut from_server, output) = std::io::pipe().unwrap();
    let stream = Stream::pair(input.into(), output.into());
    let serving = {
        let server = server.clone();
        std::thread::spawn(move || server.serve(stream))
    };
    to_server.write_all(&hello(Style::Simple)).unwrap();
    to_server.write_all(&request_bytes(0, READ, 1, 0, 1)).unwrap();
    let mut answer = [0; 18 + 20 + 12 + 20 + 16 + 1];
    from_server.read_exact(&mut answer).unwrap();
    // It waits on a pipe now, and is woken all the same.
    server.shutdown();
    server.join();
    serving.join().unwrap().unwrap();
    assert_eq!(from_server.read(&mut answer).unwrap(), 0);
}

#[test]
fn a_kept_socket_is_open_to_those_of_now() {
    let directory = TempDir::new();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.join("nbd.sock");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let bound = UnixListener::bind(&path).unwrap();
    let kept = || OwnedFd::from(bound.try_clone().unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let stranger = testkit::met("a_kept_socket_is_open_to_those_of_now", &[testkit::Need::Root])
        .then(|| connect_as(13, path.clone()).unwrap());
    let taken = Listener::unix_kept(kept(), &path, &[]).unwrap();
    assert_eq!(mode(), 0o600, "it was 0666");
    let server = server(plain(4096));
    server.listen(taken).unwrap();
    if let Some(stranger) = stranger {
        assert!(is_turned_away(stranger), "it came when everybody could");
        // Whoever opens the file again, only these may come.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(is_turned_away(connect_as(13, path.clone()).unwrap()));
    }
    use_it(UnixStream::connect(&path).unwrap());
    let copy = directory.join("copy");
    fs::rename(&path, &copy).unwrap();
    server.shutdown();
    server.join();
    fs::rename(&copy, &path).unwrap();
    // The next one is for another user as well.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let taken = Listener::unix_kept(kept(), &path, &[13]).unwrap();
    assert_eq!(mode(), 0o666, "it was 0600");
    drop(taken);
}

#[test]
fn a_kept_socket_changes_no_other_file() {
    let directory = TempDir::new();
    let (path, other) = (directory.join("nbd.sock"), directory.join("other"));
    let bound = UnixListener::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&other, "precious").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    let error = Listener::unix_kept(bound.into(), &path, &[13]).unwrap_err();
    assert!(matches!(error, ListenError::NotASocket(_)), "{error}");
    assert_eq!(fs::metadata(&other).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn who_has_left_is_waited_for() {
    let device = Gated::new(4096, [0]);
    let exports = Arc::new(One::new("disk", "", device.clone()));
    let server = Arc::new(common::new_server(exports, Options::default()).unwrap());
    let mut client = Client::of(server.clone());
    client.greet(3);
    client.begin(Style::Simple);
    assert_eq!(server.settle(None, Duration::ZERO), 1, "it is there");
    client.request(0, READ, 1, 0, 1);
    device.until_waiting(1);
    drop(client);
    std::thread::scope(|scope| {
        scope.spawn(|| device.release_all());
        assert_eq!(server.settle(Some("disk"), Duration::from_secs(60)), 0);
    });
    assert_eq!(Arc::strong_count(&device), 2, "only the export has it");
    server.shutdown();
    server.join();
}

/// A device whose reads wait until they are let go.
struct Slow {
    inner: Plain,
    entered: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if matches!(operation, Operation::Read { .. }) {
            self.entered.send(()).unwrap();
            self.go.lock().unwrap().recv().unwrap();
        }
        self.inner.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.inner.extents(cpu, offset, length, visit)
    }
}

#[test]
fn running_requests_are_finished() {
    let ((entered, entering), (go, wait)) = (channel(), channel());
    let slow = Slow { inner: Plain::new(4096), entered, go: Mutex::new(wait) };
    let mut client = Client::connected(Arc::new(slow), Style::Simple);
    client.request(0, READ, 1, 0, 2);
    entering.recv().unwrap();
    client.server.shutdown();
    go.send(()).unwrap();
    assert_eq!(client.simple(1), 0);
    assert_eq!(client.take(2), [0, 0]);
    client.expect_end();
    client.server.join();
}

#[test]
fn clients_that_do_not_listen_are_cut_off() {
    let mut client = Client::connected(plain(1 << 20), Style::Simple);
    // More replies than the socket holds, and nobody takes them.
    for _ in 0..16 {
        client.request(0, READ, 1, 0, 1 << 20);
    }
    let mut first = [0; 1];
    client.socket.read_exact(&mut first).unwrap();
    client.server.shutdown();
    client.server.join();
    assert_eq!(client.server.connections(), 0);
}

#[test]
fn a_client_that_says_nothing_is_dropped() {
    assert_eq!(Options::default().handshake, Duration::from_secs(30));
    let options = Options { handshake: Duration::from_secs(2), ..Options::default() };
    let exports = One::new("disk", &"d".repeat(4000), plain(4096));
    let server = common::new_server(Arc::new(exports), options).unwrap();
    let mut client = Client::of(Arc::new(server));
    client.greet(3);
    client.begin(Style::Simple);
    let mut silent = Client::of(client.server.clone());
    assert_eq!(silent.take(18), b"NBDMAGICIHAVEOPT\0\x03");
    let mut undecided = Client::of(client.server.clone());
    undecided.greet(3);
    undecided.option(OPT_LIST, &[]);
    assert_eq!([undecided.reply().kind, undecided.reply().kind], [REP_SERVER, ACK]);
    // It asks and asks, and takes no answer: here the limit is one for sending.
    let mut deaf = Client::of(client.server.clone());
    deaf.greet(3);
    deaf.send(&option_bytes(OPT_INFO, &info_data("disk", &[2])).repeat(1000));
    silent.expect_end();
    undecided.expect_end();
    let end = Instant::now() + Duration::from_secs(60);
    while client.server.connections() > 1 {
        assert!(Instant::now() < end, "the deaf one has its place for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    // It was quiet for as long, but has an export.
    assert_eq!(client.read(0, 1).unwrap(), [0]);
    client.server.shutdown();
    client.server.join();
}

/// Exports that tell when they are asked, and then wait to be let go.
struct Asked(One, Sender<()>, Mutex<Receiver<()>>);

impl Exports for Asked {
    fn list(&self) -> Vec<ExportInfo> {
        self.0.list()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError> {
        self.1.send(()).unwrap();
        self.2.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
        self.0.open(name)
    }
}

#[test]
fn a_client_that_has_always_more_to_say_is_dropped() {
    let ((asked, is_asked), (go, goes)) = (channel(), channel());
    let exports = Asked(One::new("disk", "", plain(4096)), asked, Mutex::new(goes));
    let handshake = Duration::from_secs(4);
    let options = Options { handshake, ..Options::default() };
    let server = common::new_server(Arc::new(exports), options).unwrap();
    let mut client = Client::of(Arc::new(server));
    client.greet(3);
    client.option(OPT_INFO, &info_data("disk", &[]));
    is_asked.recv_timeout(Duration::from_secs(60)).unwrap();
    // More has arrived when the time is over.
    client.option(99, &[]);
    std::thread::sleep(handshake);
    go.send(()).unwrap();
    assert_eq!([client.reply().kind, client.reply().kind], [REP_INFO, ACK]);
    client.expect_end();
    client.server.shutdown();
    client.server.join();
}

/// Exports of the names of their devices.
struct Several(Vec<(&'static str, Arc<Gated>)>);

impl Exports for Several {
    fn list(&self) -> Vec<ExportInfo> {
        let info = |name: &str| ExportInfo { name: name.into(), description: String::new() };
        self.0.iter().map(|(name, _)| info(name)).collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, device)| device.clone() as _).ok_or(OpenError::Unknown)
    }
}

#[test]
fn an_export_is_taken_from_its_clients() {
    let (one, two) = (Gated::new(4096, [0]), Gated::new(4096, []));
    let exports = Several(vec![("one", one.clone()), ("two", two)]);
    let options = Options { grace: Duration::from_millis(100), ..Options::default() };
    let server = Arc::new(common::new_server(Arc::new(exports), options).unwrap());
    let connect = |name: &str| {
        let mut client = Client::of(server.clone());
        client.greet(3);
        assert_eq!(client.ask(OPT_GO, &info_data(name, &[])).kind, REP_INFO);
        assert_eq!(client.reply().kind, ACK);
        client
    };
    let (mut first, mut other) = (connect("one"), connect("two"));
    // The empty name is the first export's.
    let mut second = connect("");
    assert_eq!(server.disconnect("three"), 0);
    first.request(0, READ, 1, 0, 1);
    one.until_waiting(1);
    let left = server.disconnect("one");
    assert!((1..=2).contains(&left), "{left} are left; one waits for the device");
    first.expect_end();
    second.expect_end();
    one.release_all();
    while server.disconnect("one") > 0 {
        std::thread::yield_now();
    }
    assert_eq!(other.read(0, 1).unwrap(), [0]);
    assert_eq!(server.connections(), 1);
    assert_eq!(Arc::strong_count(&one), 2, "nobody has it but its export");
    assert_eq!(connect("one").read(0, 1).unwrap(), [0], "it may be had again");
    drop(other);
    server.shutdown();
    server.join();
}
