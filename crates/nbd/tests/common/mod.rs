//! A client made of literal bytes, and devices to point it at.
//!
//! The numbers of the protocol are written out here again on purpose: the tests must not take
//! them from the server.
#![allow(dead_code, reason = "each test program uses some of this")]

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use block::{Abilities, BlockDevice, Checked, Context, Geometry, IoError, Operation, Plain, Visit};
use nbd::{Exports, One, Options, Server, Stream};
use units::Cpu;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const ENOMEM: u32 = 12;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const EOVERFLOW: u32 = 75;
pub const ENOTSUP: u32 = 95;

pub const OPT_EXPORT_NAME: u32 = 1;
pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const OPT_INFO: u32 = 6;
pub const OPT_GO: u32 = 7;
pub const OPT_STRUCTURED: u32 = 8;
pub const OPT_LIST_META: u32 = 9;
pub const OPT_SET_META: u32 = 10;
pub const OPT_EXTENDED: u32 = 11;

pub const ACK: u32 = 1;
pub const REP_SERVER: u32 = 2;
pub const REP_INFO: u32 = 3;
pub const REP_META: u32 = 4;
pub const ERR_UNSUP: u32 = 0x8000_0001;
pub const ERR_POLICY: u32 = 0x8000_0002;
pub const ERR_INVALID: u32 = 0x8000_0003;
pub const ERR_UNKNOWN: u32 = 0x8000_0006;
pub const ERR_SHUTDOWN: u32 = 0x8000_0007;
pub const ERR_TOO_BIG: u32 = 0x8000_0009;

pub const PAGE: u64 = 4096;

pub fn plain(bytes: usize) -> Arc<dyn BlockDevice> {
    Arc::new(Checked::new(Plain::new(bytes)))
}

/// A reply to an option.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub option: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

/// A chunk of a structured reply.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    pub done: bool,
    pub kind: u16,
    pub cookie: u64,
    pub payload: Vec<u8>,
}

impl Chunk {
    /// The error and the message of an error chunk.
    pub fn error(&self) -> (u32, String) {
        assert_eq!(self.kind & 0x8000, 0x8000, "{self:?} is no error");
        let length = usize::from(u16::from_be_bytes(self.payload[4..6].try_into().unwrap()));
        let text = String::from_utf8(self.payload[6..6 + length].to_vec()).unwrap();
        (be32(&self.payload, 0), text)
    }
}

/// Whether the other side has closed.
pub fn closed(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    [b"IHAVEOPT", &option.to_be_bytes()[..], &length.to_be_bytes(), data].concat()
}

pub fn request_bytes(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13];
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// A string behind its length.
pub fn counted(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

pub fn info_data(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = counted(name);
    data.extend((kinds.len() as u16).to_be_bytes());
    data.extend(kinds.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

pub fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = counted(name);
    data.extend((queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| counted(query)));
    data
}

/// What is negotiated before transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    Simple,
    Structured,
    /// With `base:allocation`.
    Allocation,
}

/// The bytes by which a client gets to transmission on the export `disk`.
pub fn hello(style: Style) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    if style != Style::Simple {
        bytes.extend(option_bytes(OPT_STRUCTURED, &[]));
    }
    if style == Style::Allocation {
        bytes.extend(option_bytes(OPT_SET_META, &meta_data("disk", &["base:allocation"])));
    }
    bytes.extend(option_bytes(OPT_GO, &info_data("disk", &[])));
    bytes
}

pub struct Client {
    pub socket: UnixStream,
    pub server: Arc<Server>,
    /// It made the server, and ends it.
    owner: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.owner {
            self.server.shutdown();
            self.server.join();
        }
    }
}

/// A server whose threads end this process when they call what their role lacks.
pub fn new_server(exports: Arc<dyn Exports>, options: Options) -> std::io::Result<Server> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(no_backtraces_of_servers);
    host::sandbox::choose(host::Sandbox::Strict)?;
    Server::new(exports, options)
}

/// The report of a panic opens the program's file for a backtrace (`RUST_BACKTRACE`), which a
/// thread that serves may not. Devices of these tests panic on such threads.
fn no_backtraces_of_servers() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| match std::thread::current().name() {
        Some(name) if name.starts_with("nbd-") => eprintln!("{name}: {panic}"),
        _ => usual(panic),
    }));
}

impl Client {
    /// A client just connected, before the greeting.
    pub fn new(exports: Arc<dyn Exports>) -> Client {
        let options = Options { grace: Duration::from_secs(1), ..Options::default() };
        let server = Arc::new(new_server(exports, options).unwrap());
        let mut client = Client::of(server);
        client.owner = true;
        client
    }

    /// One more client of a server.
    pub fn of(server: Arc<Server>) -> Client {
        let (socket, theirs) = UnixStream::pair().unwrap();
        // Nothing takes so long: it is there so that a broken server fails a test.
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        server.spawn(Stream::from(theirs)).unwrap();
        Client { socket, server, owner: false }
    }

    /// A client in negotiation with a server of `device` as `disk`.
    pub fn negotiating(device: Arc<dyn BlockDevice>) -> Client {
        let mut client = Client::new(Arc::new(One::new("disk", "a disk", device)));
        client.greet(3);
        client
    }

    /// A client in transmission.
    pub fn connected(device: Arc<dyn BlockDevice>, style: Style) -> Client {
        let mut client = Client::negotiating(device);
        client.begin(style);
        client
    }

    /// Takes the greeting and sends flags.
    pub fn greet(&mut self, flags: u32) {
        assert_eq!(self.take(18), b"NBDMAGICIHAVEOPT\0\x03");
        self.send(&flags.to_be_bytes());
    }

    pub fn begin(&mut self, style: Style) {
        self.send(&hello(style)[4..]);
        if style != Style::Simple {
            assert_eq!(self.reply().kind, ACK);
        }
        if style == Style::Allocation {
            assert_eq!(self.reply().kind, REP_META);
            assert_eq!(self.reply().kind, ACK);
        }
        assert_eq!(self.reply().kind, REP_INFO);
        assert_eq!(self.reply().kind, ACK);
    }

    /// A server that has heard enough may close before all is sent: what it said before it did is
    /// read next, so that is no failure here.
    pub fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.socket.write_all(bytes) {
            assert!(closed(&error), "sending to the server: {error}");
        }
    }

    pub fn take(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.socket.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    /// The server has closed the connection and sends no more.
    pub fn expect_end(&mut self) {
        let mut rest = vec![];
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "the server sent more"),
            Err(error) => assert!(closed(&error), "reading to the end: {error}"),
        }
    }

    pub fn option(&mut self, option: u32, data: &[u8]) {
        self.send(&option_bytes(option, data));
    }

    pub fn reply(&mut self) -> Reply {
        let header = self.take(20);
        assert_eq!(header[..8], [0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9]);
        let data = self.take(be32(&header, 16) as usize);
        Reply { option: be32(&header, 8), kind: be32(&header, 12), data }
    }

    /// Sends an option and takes the only reply.
    pub fn ask(&mut self, option: u32, data: &[u8]) -> Reply {
        self.option(option, data);
        let reply = self.reply();
        assert_eq!(reply.option, option);
        reply
    }

    pub fn request(&mut self, flags: u16, command: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&request_bytes(flags, command, cookie, offset, length));
    }

    /// The error of a simple reply.
    pub fn simple(&mut self, cookie: u64) -> u32 {
        let bytes = self.take(16);
        assert_eq!(bytes[..4], [0x67, 0x44, 0x66, 0x98]);
        assert_eq!(be64(&bytes, 8), cookie);
        be32(&bytes, 4)
    }

    pub fn chunk(&mut self) -> Chunk {
        let header = self.take(20);
        assert_eq!(header[..4], [0x66, 0x8e, 0x33, 0xef]);
        let flags = u16::from_be_bytes([header[4], header[5]]);
        assert!(flags < 2, "unknown flags {flags}");
        let kind = u16::from_be_bytes([header[6], header[7]]);
        let payload = self.take(be32(&header, 16) as usize);
        Chunk { done: flags == 1, kind, cookie: be64(&header, 8), payload }
    }

    /// A command that has a simple reply without data.
    pub fn command(&mut self, flags: u16, command: u16, offset: u64, length: u32) -> u32 {
        self.request(flags, command, 7, offset, length);
        self.simple(7)
    }

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        self.request(flags, WRITE, 9, offset, data.len() as u32);
        self.send(data);
        self.simple(9)
    }

    /// Reads without structured replies.
    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        self.request(0, READ, 8, offset, length);
        match self.simple(8) {
            0 => Ok(self.take(length as usize)),
            error => Err(error),
        }
    }

    /// Reads with structured replies, and checks that the chunks cover the range exactly.
    pub fn read_chunks(&mut self, flags: u16, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        self.request(flags, READ, 8, offset, length);
        let mut data = vec![0xee; length as usize];
        let mut covered = 0;
        loop {
            let chunk = self.chunk();
            assert_eq!(chunk.cookie, 8);
            match chunk.kind {
                0 => assert!(chunk.done && chunk.payload.is_empty()),
                1 => {
                    let at = (be64(&chunk.payload, 0) - offset) as usize;
                    let bytes = &chunk.payload[8..];
                    data[at..at + bytes.len()].copy_from_slice(bytes);
                    covered += bytes.len();
                }
                2 => {
                    let at = (be64(&chunk.payload, 0) - offset) as usize;
                    let size = be32(&chunk.payload, 8) as usize;
                    data[at..at + size].fill(0);
                    covered += size;
                }
                _ => return Err(chunk.error().0),
            }
            if chunk.done {
                assert_eq!(covered, length as usize, "the chunks do not cover the range");
                return Ok(data);
            }
        }
    }

    /// The extents of a range: lengths and flags.
    pub fn status(&mut self, flags: u16, offset: u64, length: u32) -> Result<Vec<(u32, u32)>, u32> {
        self.request(flags, BLOCK_STATUS, 6, offset, length);
        let chunk = self.chunk();
        assert!(chunk.done && chunk.cookie == 6);
        if chunk.kind != 5 {
            return Err(chunk.error().0);
        }
        assert_eq!(be32(&chunk.payload, 0), 1, "the context's number");
        let pairs = chunk.payload[4..].chunks_exact(8);
        Ok(pairs.map(|pair| (be32(pair, 0), be32(pair, 4))).collect())
    }
}

/// A device that is odd in chosen ways, and remembers what it was asked.
pub struct Odd {
    pub inner: Plain,
    pub geometry: Geometry,
    pub abilities: Abilities,
    /// Fails an operation with an error.
    pub fail: fn(&Operation<'_>) -> Option<IoError>,
    pub log: Mutex<Vec<String>>,
}

impl Odd {
    pub fn new(bytes: usize) -> Odd {
        let inner = Plain::new(bytes);
        let (geometry, abilities) = (inner.geometry(), inner.abilities());
        Odd { inner, geometry, abilities, fail: |_| None, log: Mutex::default() }
    }

    pub fn taken_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

impl BlockDevice for Odd {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        let name = match &operation {
            Operation::Read { .. } => "read",
            Operation::Write { .. } => "write",
            Operation::Discard { .. } => "discard",
            Operation::WriteZeroes { .. } => "zero",
            Operation::Flush => "flush",
        };
        self.log.lock().unwrap().push(format!("{name} {offset}+{length}"));
        match (self.fail)(&operation) {
            Some(error) => Err(error),
            None => self.inner.perform(context, operation),
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.log.lock().unwrap().push(format!("extents {offset}+{length}"));
        self.inner.extents(cpu, offset, length, visit)
    }
}

/// A device with pages that must be waited for until they are let go, and of any size up to that
/// it was made with.
pub struct Gated {
    inner: Plain,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    bytes: u64,
    slow: BTreeSet<u64>,
    /// Operations that wait now, and those that ever did.
    waiting: usize,
    begun: usize,
    panics: bool,
}

impl Gated {
    pub fn new(bytes: usize, slow: impl IntoIterator<Item = u64>) -> Arc<Gated> {
        let slow = slow.into_iter().collect();
        let state = GateState { bytes: bytes as u64, slow, ..GateState::default() };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Arc::new(Gated { inner: Plain::new(bytes), state, changed })
    }

    /// The device behind the gates.
    pub fn plain(&self) -> &Plain {
        &self.inner
    }

    fn change<R>(&self, change: impl FnOnce(&mut GateState) -> R) -> R {
        let result = change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
        result
    }

    pub fn hold(&self, page: u64) {
        self.change(|state| state.slow.insert(page));
    }

    pub fn release(&self, page: u64) {
        assert!(self.change(|state| state.slow.remove(&page)), "page {page} was not held");
    }

    pub fn release_all(&self) {
        self.change(|state| state.slow.clear());
    }

    /// Those that wait, and come to wait, panic when they are let go.
    pub fn panic(&self) {
        self.change(|state| state.panics = true);
    }

    pub fn resize(&self, bytes: u64) {
        self.change(|state| state.bytes = bytes);
    }

    /// Operations that had to wait so far.
    pub fn begun(&self) -> usize {
        self.change(|state| state.begun)
    }

    /// Waits until so many operations are waiting.
    pub fn until_waiting(&self, count: usize) {
        let state = self.state.lock().unwrap();
        let backoff = Duration::from_secs(60);
        let waited = self.changed.wait_timeout_while(state, backoff, |state| state.waiting < count);
        let (state, timed_out) = waited.unwrap();
        if timed_out.timed_out() {
            drop(state);
            self.release_all();
            panic!("{count} operations never came to wait");
        }
    }
}

fn pages_of(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / PAGE..(offset + length).div_ceil(PAGE)
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.change(|state| state.bytes), ..self.inner.geometry() }
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        let mut state = self.state.lock().unwrap();
        let is_slow =
            |state: &GateState| pages_of(offset, length).any(|page| state.slow.contains(&page));
        if is_slow(&state) {
            context.may_wait()?;
            state.waiting += 1;
            state.begun += 1;
            self.changed.notify_all();
            // So that a test that failed comes to its end.
            let backoff = Duration::from_secs(120);
            let waited = self.changed.wait_timeout_while(state, backoff, |state| is_slow(state));
            let timed_out;
            (state, timed_out) = waited.unwrap();
            assert!(!timed_out.timed_out(), "nobody let it go");
            state.waiting -= 1;
            let panics = state.panics;
            drop(state);
            assert!(!panics, "this is part of the test");
        } else {
            drop(state);
        }
        self.inner.perform(context, operation)
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.inner.extents(cpu, offset, length, visit)
    }
}
