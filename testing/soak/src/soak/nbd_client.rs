//! A client of NBD that sends all requests of a batch before it takes the first reply. The numbers
//! are from the protocol document (`doc/proto.md` of the NBD project).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::target::{Kind, Refusal, Request, Target};

const CLIENT_FLAGS: u32 = 3;
const OPT_GO: u32 = 7;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REP_ACK: u32 = 1;
/// Replies from here on are errors.
const REFUSED: u32 = 1 << 31;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const TRIM: u16 = 4;

/// A connection with an export.
pub struct NbdClient {
    socket: UnixStream,
    cookie: u64,
    /// The requests of a batch, as bytes.
    requests: Vec<u8>,
}

impl NbdClient {
    /// Connects with the server at `socket` and chooses the export `name`.
    ///
    /// # Errors
    /// The server does not answer as it should.
    pub fn new(socket: &Path, name: &str) -> Result<NbdClient> {
        let socket = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        let mut client = NbdClient { socket, cookie: 0, requests: Vec::new() };
        let greeting: [u8; 18] = client.take()?;
        ensure!(greeting.starts_with(b"NBDMAGICIHAVEOPT"), "no greeting of an NBD server");
        let mut bytes = CLIENT_FLAGS.to_be_bytes().to_vec();
        bytes.extend(b"IHAVEOPT");
        bytes.extend(OPT_GO.to_be_bytes());
        bytes.extend((name.len() as u32 + 6).to_be_bytes());
        bytes.extend((name.len() as u32).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend([0, 0]);
        client.socket.write_all(&bytes).context("an option")?;
        loop {
            ensure!(u64::from_be_bytes(client.take()?) == OPTION_REPLY, "no reply to an option");
            let _option: [u8; 4] = client.take()?;
            let kind = u32::from_be_bytes(client.take()?);
            let length = u32::from_be_bytes(client.take()?);
            let mut data = vec![0; length as usize];
            client.socket.read_exact(&mut data)?;
            match kind {
                REP_ACK => return Ok(client),
                REFUSED.. => bail!("the export {name:?} is refused: {kind:#x}"),
                _ => {}
            }
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes).context("the connection has ended")?;
        Ok(bytes)
    }

    /// Adds a request to those that are sent next.
    fn add(&mut self, request: &Request<'_>, cookie: u64) {
        let command = match request.kind {
            Kind::Read => READ,
            Kind::Write => WRITE,
            Kind::Discard => TRIM,
        };
        self.requests.extend(REQUEST.to_be_bytes());
        self.requests.extend([0, 0]);
        self.requests.extend(command.to_be_bytes());
        self.requests.extend(cookie.to_be_bytes());
        self.requests.extend(request.offset.to_be_bytes());
        self.requests.extend((request.data.len() as u32).to_be_bytes());
        if request.kind == Kind::Write {
            self.requests.extend_from_slice(request.data);
        }
    }
}

impl Target for NbdClient {
    /// The batch must not be so long that the server waits for this client to take replies while
    /// the client sends: either its data or its replies fit a socket.
    fn carry_out(&mut self, batch: &mut [Request<'_>]) -> Result<()> {
        let first = self.cookie;
        self.cookie += batch.len() as u64;
        self.requests.clear();
        for (request, cookie) in batch.iter().zip(first..) {
            self.add(request, cookie);
        }
        self.socket.write_all(&self.requests).context("requests")?;
        let mut answered = 0u64;
        for _ in 0..batch.len() {
            let reply: [u8; 16] = self.take()?;
            let [magic, error, high, low] = [0, 4, 8, 12].map(|at| {
                u32::from_be_bytes([reply[at], reply[at + 1], reply[at + 2], reply[at + 3]])
            });
            let cookie = u64::from(high) << 32 | u64::from(low);
            ensure!(magic == REPLY, "a reply begins with {magic:#x}");
            let number = cookie.wrapping_sub(first) as usize;
            let request = batch.get_mut(number).context("a reply that nobody asked for")?;
            ensure!(answered & 1 << number == 0, "a request is answered twice");
            answered |= 1 << number;
            request.result = match error {
                0 => Ok(()),
                errno => Err(Refusal::Errno(errno as i32)),
            };
            if error == 0 && request.kind == Kind::Read {
                self.socket.read_exact(request.data).context("the data of a reply")?;
            }
        }
        Ok(())
    }
}
