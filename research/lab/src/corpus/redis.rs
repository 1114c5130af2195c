//! Fills a Redis server: redis-benchmark writes the small values, we write real text as large ones.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::hungry::{Connection, request};
use crate::programs::Running;

/// Sizes of values that the benchmark writes, in turn.
const VALUE_SIZES: [&str; 4] = ["16", "100", "300", "900"];

/// Texts that are added in a round.
const TEXTS: u64 = 1000;
/// Texts that are read in a round of work.
const LOOKS: u32 = 20;

/// Adds more and more data to a server.
pub struct Filler {
    benchmark: PathBuf,
    socket: PathBuf,
    text: Vec<u8>,
    random: fastrand::Rng,
    rounds: u64,
}

impl Filler {
    /// A filler for the server at `socket`, with the program `redis-benchmark`.
    pub fn new(benchmark: PathBuf, socket: PathBuf) -> Filler {
        Filler {
            benchmark,
            socket,
            text: some_text(),
            random: fastrand::Rng::with_seed(3),
            rounds: 0,
        }
    }

    /// One round: a run of the benchmark, and as many keys of text. It adds a few MB.
    ///
    /// # Errors
    /// The benchmark fails, or the server does not answer.
    pub fn fill(&mut self) -> Result<()> {
        let size = VALUE_SIZES[self.rounds as usize % VALUE_SIZES.len()];
        self.rounds += 1;
        let mut command = Command::new(&self.benchmark);
        command.arg("-s").arg(&self.socket);
        command.args(["-q", "-n", "4000", "-r", "1000000", "-P", "16", "-c", "4", "-d", size]);
        command.args(["-t", "set,get,lpush,hset,zadd"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running::start(&mut command, false)?;
        let status =
            crate::interrupt::wait_for("redis-benchmark", Duration::from_secs(60), || {
                Ok(running.child().try_wait()?)
            })?;
        if !status.success() {
            bail!("redis-benchmark: {status}");
        }
        self.set_texts(TEXTS)
    }

    /// One round of work with the texts that are there: it reads some, mostly the same few, and
    /// replaces a little.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn work(&mut self) -> Result<()> {
        let stream = UnixStream::connect(&self.socket).context("cannot reach the Redis server")?;
        let mut connection = Connection::new(stream)?;
        let texts = self.rounds.max(1) * TEXTS;
        for _ in 0..LOOKS {
            let rank = (texts as f64).powf(self.random.f64()) as u64 - 1;
            // Texts of neighbouring ranks do not lie together.
            let text = rank * 7919 % texts;
            let key = format!("document:{}:{}", text / TEXTS + 1, text % TEXTS);
            connection.send(&request(&[b"GET", key.as_bytes()]))?;
            let value = connection.bulk()?.context("a text is gone from the Redis server")?;
            if self.random.u32(..32) == 0 {
                connection.send(&request(&[b"SET", key.as_bytes(), &value]))?;
                connection.line()?;
            }
        }
        Ok(())
    }

    /// Sets `count` keys to passages of text of 200 to 3000 bytes.
    fn set_texts(&mut self, count: u64) -> Result<()> {
        let stream = UnixStream::connect(&self.socket).context("cannot reach the Redis server")?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut answers = BufReader::new(stream.try_clone()?).lines();
        let mut commands = &stream;
        for number in 0..count {
            let length = (200 + self.random.usize(..2800)).min(self.text.len());
            let from = self.random.usize(..=self.text.len() - length);
            let key = format!("document:{}:{number}", self.rounds);
            let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${length}\r\n", key.len());
            let value = &self.text[from..from + length];
            commands.write_all(&[head.as_bytes(), value, b"\r\n"].concat())?;
            let answer = answers.next().context("the Redis server is gone")??;
            if answer != "+OK" {
                bail!("the Redis server answers {answer:?}");
            }
        }
        Ok(())
    }
}

/// Text of people and programs: the package manager's data, headers, licences. If none is here, the
/// source of a big made-up program.
fn some_text() -> Vec<u8> {
    let mut text = fs::read("/var/lib/dpkg/status").unwrap_or_default();
    for directory in ["/usr/include", "/usr/share/common-licenses"] {
        add_files(Path::new(directory), &mut text);
    }
    if text.len() < 4096 {
        text.extend_from_slice(super::source::c(200).as_bytes());
    }
    text
}

/// Appends the text files of a directory, by name, up to some MB.
fn add_files(directory: &Path, text: &mut Vec<u8>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.is_file()) {
        if text.len() > 4 << 20 {
            return;
        }
        let Ok(bytes) = fs::read(path) else { continue };
        if std::str::from_utf8(&bytes).is_ok() {
            text.extend_from_slice(&bytes);
        }
    }
}
