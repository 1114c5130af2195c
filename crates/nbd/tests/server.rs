//! Listeners, threads, and stopping.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use common::*;
use nbd::{ExportInfo, Exports, ListenError, Listener, One, OpenError, Options, Server, Stream};
use testkit::TempDir;
use units::Cpu;

fn server(device: Arc<dyn BlockDevice>) -> Server {
    let options = Options { grace: Duration::from_millis(100), ..Options::default() };
    Server::new(Arc::new(One::new("disk", "", device)), options).unwrap()
}

/// Negotiates and reads a byte over any stream.
fn use_it(mut stream: impl Read + Write) {
    stream.write_all(&hello(Style::Simple)).unwrap();
    stream.write_all(&request_bytes(0, READ, 1, 0, 1)).unwrap();
    let mut answer = [0; 18 + 20 + 12 + 20 + 16 + 1];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..8], *b"NBDMAGIC");
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
fn no_more_connections_than_allowed() {
    let options = Options { max_connections: 2, ..Options::default() };
    let server = Server::new(Arc::new(One::new("disk", "", plain(4096))), options).unwrap();
    let connect = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (server.spawn(Stream::from(theirs)).is_ok(), ours)
    };
    let (first, second, third) = (connect(), connect(), connect());
    assert_eq!([first.0, second.0, third.0], [true, true, false]);
    assert!(is_turned_away(third.1));
    use_it(first.1);
    drop(second.1);
    while server.connections() > 0 {
        std::thread::yield_now();
    }
    assert!(connect().0);
    server.shutdown();
    server.join();
    assert!(!connect().0, "a server that is shut down takes nobody");
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
    let server = Server::new(Arc::new(One::new("disk", "", plain(4096))), options).unwrap();
    let mut client = Client::of(Arc::new(server));
    client.greet(3);
    client.begin(Style::Simple);
    let mut silent = Client::of(client.server.clone());
    assert_eq!(silent.take(18), b"NBDMAGICIHAVEOPT\0\x03");
    let mut undecided = Client::of(client.server.clone());
    undecided.greet(3);
    undecided.option(OPT_LIST, &[]);
    assert_eq!([undecided.reply().kind, undecided.reply().kind], [REP_SERVER, ACK]);
    silent.expect_end();
    undecided.expect_end();
    // It was quiet for as long, but has an export.
    assert_eq!(client.read(0, 1).unwrap(), [0]);
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
    let server = Arc::new(Server::new(Arc::new(exports), options).unwrap());
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
