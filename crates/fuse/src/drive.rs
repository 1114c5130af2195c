//! Files that are served without a mount, for fuzzing and tests. A pair of sockets stands in for
//! the kernel: a message on it is a request or an answer, as on /dev/fuse.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::BlockDevice;
use fuser::{BackgroundSession, SessionACL};
use units::Cpu;

use crate::frontend::Frontend;
use crate::handover;
use crate::later::Later;
use crate::table::Table;
use crate::worker::{Buffers, LARGEST};

/// Bytes of a request without operands.
const HEADER: usize = 40;
const GETATTR: u32 = 3;
const INIT: u32 = 26;
const DESTROY: u32 = 38;
const ROOT: u64 = 1;
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that serves one file, `disk`. Dropping it ends its threads.
pub struct Driven {
    socket: UnixDatagram,
    buffer: Vec<u8>,
    /// The number of our last request.
    last: u64,
    table: Arc<Table>,
    later: Arc<Later>,
    session: Option<BackgroundSession>,
}

impl Driven {
    /// Serves `device` with one thread, and two for requests that would have to wait.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(device: Arc<dyn BlockDevice>) -> io::Result<Driven> {
        let table = Arc::new(Table::new(1));
        table.add("disk", device).map_err(|error| io::Error::other(error.to_string()))?;
        let later = Arc::new(Later::new(2));
        let frontend = Frontend {
            table: table.clone(),
            later: later.clone(),
            buffers: Arc::new(Buffers::new(1)),
            cpu: || Cpu(0),
            since: SystemTime::UNIX_EPOCH,
            owner: (0, 0),
            ring: None,
        };
        let (socket, server) = UnixDatagram::pair()?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let session = handover::session(frontend, server.as_fd(), SessionACL::All)?.spawn()?;
        let (buffer, last, session) = (vec![0; LARGEST], u64::MAX, Some(session));
        Ok(Driven { socket, buffer, last, table, later, session })
    }

    /// Sends requests of the kernel, each after the one before it is done or put off. The result
    /// has the answers, in the order in which they come. Each operation in `answered` has one. A
    /// request begins with its length, which must be right, and its number is below 2^32. INIT and
    /// DESTROY are left out: they are the beginning and the end of a connection.
    ///
    /// # Errors
    /// The error of the system; a request is too long; an answer does not come within a minute.
    pub fn ask(&mut self, requests: &[Vec<u8>], answered: &[u32]) -> io::Result<Vec<Vec<u8>>> {
        let (mut answers, mut due) = (Vec::new(), 0);
        for bytes in requests {
            let operation = bytes.get(4..8).and_then(|bytes| bytes.try_into().ok());
            let operation = operation.map(u32::from_ne_bytes).ok_or(ErrorKind::InvalidInput)?;
            if [INIT, DESTROY].contains(&operation) {
                continue;
            }
            due += usize::from(answered.contains(&operation));
            again(|| self.socket.send(bytes))?;
            // Some requests have no answer: the answer to the next one tells that they are done.
            self.last -= 1;
            let last = request(GETATTR, self.last, &[0; 16]);
            again(|| self.socket.send(&last))?;
            self.answers_until(self.last, &mut answers)?;
        }
        let is_due =
            |answer: &Vec<u8>| requests.iter().any(|it| is_answer_to(answer, it, answered));
        while answers.iter().filter(|answer| is_due(answer)).count() < due {
            let length = again(|| self.socket.recv(&mut self.buffer))?;
            answers.push(self.buffer[..length].to_vec());
        }
        Ok(answers)
    }

    /// Takes answers until the one with this number, which is left out.
    fn answers_until(&mut self, number: u64, answers: &mut Vec<Vec<u8>>) -> io::Result<()> {
        loop {
            let length = again(|| self.socket.recv(&mut self.buffer))?;
            let answer = &self.buffer[..length];
            if answer.get(8..16) == Some(&number.to_ne_bytes()) {
                return Ok(());
            }
            answers.push(answer.to_vec());
        }
    }
}

/// Calls the system until no signal interrupts it, as that of a fuzzer's clock does.
fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        self.later.close(PATIENCE);
        self.last -= 1;
        if self.socket.send(&request(DESTROY, self.last, &[])).is_ok() {
            let _ = session.join();
        }
        self.table.close();
        self.table.clear();
    }
}

/// Is it the answer to this request, whose operation must have one?
fn is_answer_to(answer: &[u8], request: &[u8], answered: &[u32]) -> bool {
    let must = answered.iter().any(|it| request.get(4..8) == Some(&it.to_ne_bytes()));
    must && answer.get(8..16) == request.get(8..16)
}

/// A request about the directory, with these operands.
fn request(operation: u32, number: u64, operands: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + operands.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(operation.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend(ROOT.to_ne_bytes());
    bytes.resize(HEADER, 0);
    bytes.extend(operands);
    bytes
}
