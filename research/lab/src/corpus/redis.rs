//! Fills a Redis server: redis-benchmark writes the small values, we write real text as large ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use redis::Commands;

use crate::programs::Running;

/// Sizes of values that the benchmark writes, in turn.
const VALUE_SIZES: [&str; 4] = ["16", "100", "300", "900"];

/// Time that an answer may take.
const ANSWER: Duration = Duration::from_secs(30);
/// Texts that are added in a round.
const TEXTS: u64 = 1000;

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
    pub fn fill(&mut self) -> Result<()> {
        let size = VALUE_SIZES[self.rounds as usize % VALUE_SIZES.len()];
        self.rounds += 1;
        let mut command = Command::new(&self.benchmark);
        command.arg("-s").arg(&self.socket);
        command.args(["-q", "-n", "4000", "-r", "1000000", "-P", "16", "-c", "4", "-d", size]);
        command.args(["-t", "set,get,lpush,hset,zadd"]);
        Running::start(command.stdout(Stdio::null()), false)?.finish(Duration::from_secs(60))?;
        self.set_texts(TEXTS)
    }

    fn connect(&self) -> Result<redis::Connection> {
        let client = redis::Client::open(format!("unix://{}", self.socket.display()))?;
        let connection = client.get_connection().context("cannot reach the Redis server")?;
        connection.set_read_timeout(Some(ANSWER))?;
        Ok(connection)
    }

    /// Sets `count` keys to passages of text of 200 to 3000 bytes.
    fn set_texts(&mut self, count: u64) -> Result<()> {
        let mut connection = self.connect()?;
        for number in 0..count {
            let length = (200 + self.random.usize(..2800)).min(self.text.len());
            let from = self.random.usize(..=self.text.len() - length);
            let key = format!("document:{}:{number}", self.rounds);
            connection.set::<_, _, ()>(key, &self.text[from..from + length])?;
        }
        Ok(())
    }
}

/// Text of people and programs: the package manager's data, headers, licences. If there is
/// little of it, the source of a program.
fn some_text() -> Vec<u8> {
    let mut text = fs::read("/var/lib/dpkg/status").unwrap_or_default();
    for directory in ["/usr/include", "/usr/share/common-licenses"] {
        add_files(Path::new(directory), &mut text);
    }
    while text.len() < 1 << 20 {
        text.extend_from_slice(include_bytes!("recipes/Heap.java"));
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
