//! A client that reads and writes pages and compares them, and connects again when it must.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use sync::atomic::{AtomicBool, Ordering};
use units::PAGE_SIZE;

use crate::interrupt;
use crate::soak::nbd_client::NbdClient;
use crate::soak::target::{Kind, Refusal, Request, Target};

/// The export.
const NAME: &str = "zram0";
/// Pages of a request that fills or compares.
const AT_ONCE: usize = 64;
/// The time between two tries to connect.
const AGAIN: Duration = Duration::from_micros(200);
/// Tries to connect before the daemon counts as gone.
const TRIES: u32 = 300_000;

/// A connection.
pub struct Client(NbdClient);

impl Client {
    /// Connects with the daemon at `socket`.
    ///
    /// # Errors
    /// It does not serve.
    pub fn connect(socket: &Path) -> Result<Client> {
        NbdClient::new(socket, NAME).map(Client)
    }

    /// The answer, or an error if the connection has ended.
    fn ask(&mut self, kind: Kind, page: u64, data: &mut [u8]) -> Result<Result<(), Refusal>> {
        let offset = page * PAGE_SIZE as u64;
        let mut batch = [Request { kind, offset, data, result: Ok(()) }];
        self.0.carry_out(&mut batch)?;
        let [Request { result, .. }] = batch;
        Ok(result)
    }

    fn carry_out(&mut self, kind: Kind, page: u64, data: &mut [u8]) -> Result<()> {
        accept(self.ask(kind, page, data)?, page)
    }
}

fn accept(answer: Result<(), Refusal>, page: u64) -> Result<()> {
    answer.or_else(|refusal| bail!("a request for page {page} is refused: {refusal:?}"))
}

/// What a client saw in a while.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Seen {
    /// Requests that were answered.
    pub requests: u64,
    /// The longest time between two answers, in seconds.
    pub longest: f64,
    /// How often it connected again.
    pub reconnects: u64,
}

/// Pages with versions.
pub struct Load {
    socket: PathBuf,
    client: Client,
    rng: fastrand::Rng,
    versions: Vec<u32>,
    reconnects: u64,
}

/// Half noise, half zeroes: another page for each version.
fn contents(page: u64, version: u32, data: &mut [u8]) {
    let (noise, zeroes) = data.split_at_mut(PAGE_SIZE / 2);
    let mut rng = fastrand::Rng::with_seed(page << 32 | u64::from(version));
    for word in noise.chunks_exact_mut(8) {
        word.copy_from_slice(&rng.u64(..).to_ne_bytes());
    }
    zeroes.fill(0);
}

impl Load {
    /// For a device of `bytes` bytes.
    ///
    /// # Errors
    /// The daemon does not serve.
    pub fn new(socket: &Path, bytes: u64) -> Result<Load> {
        let versions = vec![0; (bytes / PAGE_SIZE as u64) as usize];
        let (client, rng) = (Client::connect(socket)?, fastrand::Rng::with_seed(1));
        Ok(Load { socket: socket.to_owned(), client, rng, versions, reconnects: 0 })
    }

    /// Writes every page.
    ///
    /// # Errors
    /// A write fails, or the command was interrupted.
    pub fn fill(&mut self) -> Result<()> {
        let mut data = vec![0; AT_ONCE * PAGE_SIZE];
        for first in (0..self.versions.len()).step_by(AT_ONCE) {
            interrupt::check()?;
            let pages = AT_ONCE.min(self.versions.len() - first);
            for (n, page) in data.chunks_exact_mut(PAGE_SIZE).take(pages).enumerate() {
                contents((first + n) as u64, 0, page);
            }
            self.client.carry_out(Kind::Write, first as u64, &mut data[..pages * PAGE_SIZE])?;
        }
        Ok(())
    }

    /// Reads every page.
    ///
    /// # Errors
    /// A page is wrong.
    pub fn compare(&mut self) -> Result<()> {
        let (mut data, mut expected) = (vec![0; AT_ONCE * PAGE_SIZE], [0; PAGE_SIZE]);
        for first in (0..self.versions.len()).step_by(AT_ONCE) {
            interrupt::check()?;
            let pages = AT_ONCE.min(self.versions.len() - first);
            let data = &mut data[..pages * PAGE_SIZE];
            self.client.carry_out(Kind::Read, first as u64, data)?;
            for (n, found) in data.chunks_exact(PAGE_SIZE).enumerate() {
                contents((first + n) as u64, self.versions[first + n], &mut expected);
                ensure!(found == expected, "page {} is wrong in the end", first + n);
            }
        }
        Ok(())
    }

    /// Reads and writes until `until` returns, which runs beside it.
    ///
    /// # Errors
    /// A page is wrong, or the daemon is gone.
    pub fn run_until(&mut self, until: impl FnOnce() + Send) -> Result<Seen> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let is_over = &is_over;
            scope.spawn(move || {
                until();
                is_over.store(true, Ordering::Relaxed);
            });
            let mut seen = Seen::default();
            let (mut last, before) = (Instant::now(), self.reconnects);
            while !is_over.load(Ordering::Relaxed) {
                self.one()?;
                let now = Instant::now();
                seen.longest = seen.longest.max((now - last).as_secs_f64());
                (last, seen.requests) = (now, seen.requests + 1);
            }
            seen.reconnects = self.reconnects - before;
            Ok(seen)
        })
    }

    /// Writes a page, or reads one and compares it.
    fn one(&mut self) -> Result<()> {
        let page = self.rng.usize(..self.versions.len());
        let (mut data, mut expected) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
        if self.rng.bool() {
            contents(page as u64, self.versions[page] + 1, &mut data);
            self.patiently(Kind::Write, page, &mut data)?;
            self.versions[page] += 1;
            return Ok(());
        }
        self.patiently(Kind::Read, page, &mut data)?;
        contents(page as u64, self.versions[page], &mut expected);
        ensure!(data == expected, "page {page} is wrong");
        Ok(())
    }

    /// Carries out a request, again and again until there is an answer.
    fn patiently(&mut self, kind: Kind, page: usize, data: &mut [u8]) -> Result<()> {
        let mut tries = 0;
        loop {
            let error = match self.client.ask(kind, page as u64, data) {
                Ok(answer) => return accept(answer, page as u64),
                Err(error) => error,
            };
            loop {
                interrupt::check()?;
                tries += 1;
                ensure!(tries < TRIES, "the daemon does not come back: {error:#}");
                match Client::connect(&self.socket) {
                    Ok(client) => {
                        self.client = client;
                        self.reconnects += 1;
                        break;
                    }
                    Err(_) => thread::sleep(AGAIN),
                }
            }
        }
    }
}
