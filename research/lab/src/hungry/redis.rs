//! A Redis server with more data than memory. Each value follows from its key, so the lab can check
//! every value it reads back.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::task::{Task, Verdict};
use crate::interrupt;
use crate::pressure::{Measured, SwapGroup};
use crate::programs::{Running, last_words};

/// Time the server may take to listen: its own pages may come from swap.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time one answer may take.
const ANSWER: Duration = Duration::from_secs(120);
/// Requests sent at a time.
const BATCH: u64 = 64;
/// Approximate bytes that the server keeps for a value besides the value.
const OVERHEAD: u64 = 128;

/// Fills the server and reads everything back: once in order, once in another order.
///
/// # Errors
/// The server cannot start, or the group or the swap it needs is gone.
pub fn run(task: &Task<'_>, swap_group: &mut SwapGroup) -> Result<(Verdict, Measured)> {
    let socket = task.directory.join("redis.sock");
    let _ = fs::remove_file(&socket);
    let log = tempfile::tempfile().context("cannot make a temporary file")?;
    let mut command = Command::new(&task.program);
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
    command.arg("--unixsocket").arg(&socket).arg("--dir").arg(task.directory);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
    // A process group of its own: Ctrl-C reaches only us, and we take the swap away in order.
    command.process_group(0);
    swap_group.take(&mut command)?;
    swap_group.begin()?;
    let mut running = Running::start(&mut command, false)?;
    let stream = interrupt::wait_for("redis-server", PATIENCE, || {
        running.check()?;
        match UnixStream::connect(&socket) {
            Ok(stream) => Ok(Some(stream)),
            Err(_) => Ok(None),
        }
    })?;
    let verdict = match fill_and_verify(stream, task, swap_group) {
        Ok(verdict) => verdict,
        Err(error) => {
            // Either we were interrupted, or the server has ended.
            interrupt::check()?;
            match running.check() {
                Ok(()) => return Err(error),
                Err(ended) => Err(format!("{ended:#} ({error:#}): {}", last_words(log))),
            }
        }
    };
    let usage = swap_group.usage();
    let measured = swap_group.measure(Some(usage))?;
    Ok((verdict, measured))
}

/// The key with this number.
fn key(number: u64) -> String {
    format!("key:{number:08}")
}

/// The value of a key: half words, half noise, 200 to 4000 bytes.
fn value(number: u64, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let length = 200 + random.usize(..3800);
    let mut value = Vec::with_capacity(length + 32);
    while value.len() < length {
        if random.bool() {
            value.extend_from_slice(&random.u64(..).to_le_bytes());
        } else {
            value.extend_from_slice(b"memory, ");
        }
    }
    value.truncate(length);
    value
}

/// A connection to the server, which speaks RESP (redis.io/docs/reference/protocol-spec).
pub struct Connection {
    requests: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Connection {
    /// A connection on this socket.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(stream: UnixStream) -> Result<Connection> {
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        Ok(Connection { requests: stream.try_clone()?, answers: BufReader::new(stream) })
    }

    /// Sends requests.
    ///
    /// # Errors
    /// The server is gone.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.requests.write_all(bytes).map_err(|error| explained(&error))
    }

    /// A line of an answer.
    ///
    /// # Errors
    /// The server is gone, or does not answer.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| explained(&error))?;
        if line.is_empty() {
            bail!("the Redis server has closed the connection");
        }
        Ok(line.trim_end().to_owned())
    }

    /// A string in an answer. `None` if the key does not exist.
    ///
    /// # Errors
    /// The server is gone, or answers something else.
    pub fn bulk(&mut self) -> Result<Option<Vec<u8>>> {
        let head = self.line()?;
        let Some(length) = head.strip_prefix('$').and_then(|text| text.parse::<i64>().ok()) else {
            bail!("the Redis server answers {head:?}");
        };
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        let mut bytes = vec![0; length + 2];
        self.answers.read_exact(&mut bytes).map_err(|error| explained(&error))?;
        bytes.truncate(length);
        Ok(Some(bytes))
    }
}

fn explained(error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow::anyhow!("the Redis server does not answer within {} s", ANSWER.as_secs())
        }
        _ => anyhow::anyhow!("the Redis server is gone: {error}"),
    }
}

/// Encodes a command in RESP.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn fill_and_verify(
    stream: UnixStream,
    task: &Task<'_>,
    swap_group: &mut SwapGroup,
) -> Result<Verdict> {
    let mut connection = Connection::new(stream)?;
    let (mut keys, mut bytes) = (0u64, 0u64);
    while bytes < task.bytes {
        swap_group.look()?;
        if swap_group.is_late() {
            return Ok(Err(format!("time was over after {keys} keys were set")));
        }
        let mut batch = Vec::new();
        for number in keys..keys + BATCH {
            let value = value(number, task.seed);
            bytes += value.len() as u64 + OVERHEAD;
            batch.extend(request(&[b"SET", key(number).as_bytes(), &value]));
        }
        connection.send(&batch)?;
        for _ in 0..BATCH {
            let answer = connection.line()?;
            if answer != "+OK" {
                return Ok(Err(format!("the Redis server answers {answer:?}")));
            }
        }
        keys += BATCH;
    }
    let mut order: Vec<u64> = (0..keys).collect();
    for pass in 0..2 {
        if pass == 1 {
            fastrand::Rng::with_seed(task.seed).shuffle(&mut order);
        }
        if let Err(message) = verify(&mut connection, &order, task, swap_group)? {
            return Ok(Err(message));
        }
    }
    let mb = bytes as f64 / 1e6;
    Ok(Ok(format!("{keys} values ({mb:.0} MB), each compared twice with what its key says")))
}

/// Reads and checks all keys in this order.
fn verify(
    connection: &mut Connection,
    order: &[u64],
    task: &Task<'_>,
    swap_group: &mut SwapGroup,
) -> Result<Result<(), String>> {
    for numbers in order.chunks(BATCH as usize) {
        swap_group.look()?;
        if swap_group.is_late() {
            return Ok(Err("time was over before all was read back".to_owned()));
        }
        let requests = numbers.iter().map(|&number| request(&[b"GET", key(number).as_bytes()]));
        connection.send(&requests.collect::<Vec<_>>().concat())?;
        for &number in numbers {
            match connection.bulk()? {
                Some(found) if found == value(number, task.seed) => {}
                Some(found) => {
                    let length = found.len();
                    return Ok(Err(format!("{} holds {length} wrong bytes", key(number))));
                }
                None => return Ok(Err(format!("{} is not there", key(number)))),
            }
        }
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_from_keys() {
        assert_eq!(value(7, 1), value(7, 1));
        assert_ne!(value(7, 1), value(8, 1));
        assert_ne!(value(7, 1), value(7, 2));
        for number in 0..200 {
            assert!((200..4000).contains(&value(number, 3).len()));
        }
        assert!(key(9) < key(10));
    }

    #[test]
    fn requests_and_answers() {
        let bytes = request(&[b"GET", b"key"]);
        assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
        let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
        theirs.write_all(b"+OK\r\n$2\r\n\r\n\r\n$-1\r\n-ERR\r\n").expect("a message");
        let mut connection = Connection::new(ours).expect("a connection");
        assert_eq!(connection.line().expect("a line"), "+OK");
        assert_eq!(connection.bulk().expect("bytes"), Some(b"\r\n".to_vec()));
        assert_eq!(connection.bulk().expect("nothing"), None);
        let message = connection.bulk().expect_err("an error").to_string();
        assert!(message.contains("-ERR"), "{message}");
        drop(theirs);
        let message = connection.line().expect_err("closed").to_string();
        assert!(message.contains("closed"), "{message}");
    }
}
