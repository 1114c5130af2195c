//! Everything is read back as it was written, wherever it is.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use block::{AskRemote, BlockDevice, IoError, Job, Operation, RemoteStats, ZeroMode};
use control::ControlError;
use testkit::{Rng, TempDir, met};
use units::{Cpu, PAGE_SIZE};

use crate::servers::{REDIS, Redis, S3, files, wait_until};

pub const CHUNK: usize = 1 << 20;
/// The chunks of a device. The last one is shorter.
pub const CHUNKS: usize = 6;
const BYTES: usize = CHUNKS * CHUNK - 5 * PAGE_SIZE;
pub const CPU: Cpu = Cpu(0);

/// A backing file with stores, and what must be in it.
pub struct World {
    pub device: Arc<dyn BlockDevice>,
    ask: AskRemote,
    wanted: Vec<u8>,
    pub rng: Rng,
    _dir: TempDir,
}

/// The directory of a backing file, the device on it, and what tells what it has at its stores.
type Opened = (TempDir, Arc<dyn BlockDevice>, AskRemote);

pub fn open(text: &str) -> Result<Opened, ControlError> {
    let dir = TempDir::new();
    let path = dir.join("backing");
    fs::write(&path, vec![0; BYTES]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let below = backing::open(&path, backing::Options::default())?;
    let (device, ask) = remote::open(below, &text.parse()?)?;
    Ok((dir, device, ask))
}

impl World {
    pub fn new(test: &str, text: &str) -> World {
        let (dir, device, ask) = open(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let rng = Rng::new(testkit::seed(test));
        World { device, ask, wanted: vec![0; BYTES], rng, _dir: dir }
    }

    pub fn stats(&self) -> RemoteStats {
        (self.ask)()
    }

    /// Some pages, mostly of one chunk, and their range.
    fn range(&mut self) -> (usize, usize) {
        let pages = BYTES / PAGE_SIZE;
        let first = self.rng.below(pages as u64) as usize;
        let most = if self.rng.one_in(8) { 300 } else { 8 };
        let count = 1 + self.rng.below(most.min((pages - first) as u64)) as usize;
        (first * PAGE_SIZE, count * PAGE_SIZE)
    }

    pub fn write(&mut self, offset: usize, length: usize) -> Result<(), IoError> {
        let mut from = vec![0; length];
        if !self.rng.one_in(4) {
            self.rng.fill(&mut from);
        }
        let write = Operation::Write { offset: offset as u64, from: &from };
        self.device.submit(CPU, write)?;
        self.wanted[offset..offset + length].copy_from_slice(&from);
        Ok(())
    }

    /// Writes every chunk.
    pub fn fill(&mut self) {
        for start in (0..BYTES).step_by(CHUNK) {
            let mut from = vec![0; CHUNK.min(BYTES - start)];
            self.rng.fill(&mut from);
            let write = Operation::Write { offset: start as u64, from: &from };
            self.device.submit(CPU, write).unwrap();
            self.wanted[start..start + from.len()].copy_from_slice(&from);
        }
    }

    pub fn read(&self, offset: usize, length: usize) -> Result<(), IoError> {
        let mut into = vec![7; length];
        let read = Operation::Read { offset: offset as u64, into: &mut into };
        self.device.submit(CPU, read)?;
        assert!(into == self.wanted[offset..offset + length], "{offset} and {length} bytes");
        Ok(())
    }

    fn read_some_together(&mut self) {
        let ranges: Vec<(usize, usize)> = (0..4).map(|_| self.range()).collect();
        let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|range| vec![7; range.1]).collect();
        let jobs = ranges
            .iter()
            .zip(&mut buffers)
            .map(|((offset, _), into)| Job::new(Operation::Read { offset: *offset as u64, into }));
        let mut jobs: Vec<Job<'_>> = jobs.collect();
        self.device.submit_all(CPU, &mut jobs);
        assert!(jobs.iter().all(|job| job.result == Ok(())));
        for ((offset, length), read) in ranges.iter().zip(&buffers) {
            assert!(*read == self.wanted[*offset..offset + length]);
        }
    }

    fn step(&mut self) {
        let (offset, length) = self.range();
        let (at, bytes) = (offset as u64, length as u64);
        match self.rng.below(12) {
            0 | 1 => self.write(offset, length).unwrap(),
            2 => {
                self.device.submit(CPU, Operation::Discard { offset: at, length: bytes }).unwrap();
                self.wanted[offset..offset + length].fill(0);
            }
            3 => {
                let mode = *self.rng.pick(&[ZeroMode::MayPunch, ZeroMode::KeepAllocated]);
                let zeroes = Operation::WriteZeroes { offset: at, length: bytes, mode };
                self.device.submit(CPU, zeroes).unwrap();
                self.wanted[offset..offset + length].fill(0);
            }
            4 => {
                let start = offset / CHUNK * CHUNK;
                let length = CHUNK.min(BYTES - start);
                let discard = Operation::Discard { offset: start as u64, length: length as u64 };
                self.device.submit(CPU, discard).unwrap();
                self.wanted[start..start + length].fill(0);
            }
            5..8 => self.read_some_together(),
            8 => self.device.submit(CPU, Operation::Flush).unwrap(),
            _ => self.read(offset, length).unwrap(),
        }
    }

    /// Changes and reads while chunks come and go.
    pub fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for _ in 0..60 {
                self.step();
            }
            // The stores get what is cold.
            thread::sleep(Duration::from_millis(300));
        }
        self.read(0, BYTES).unwrap();
        let stats = self.stats();
        assert!(stats.uploaded_bytes > 0 && stats.downloaded_bytes > 0, "{stats:?}");
        assert_eq!((stats.failed_requests, stats.wrong_answers), (0, 0));
    }

    /// Waits until the stores alone have everything.
    #[track_caller]
    pub fn wait_until_away(&self) {
        wait_until("all is at the stores", || {
            let stats = self.stats();
            stats.local_bytes == 0 && stats.remote_bytes == (CHUNKS * CHUNK) as u64
        });
    }

    /// Reads a page of each chunk.
    pub fn read_each(&self) -> Vec<Result<(), IoError>> {
        (0..CHUNKS).map(|chunk| self.read(chunk * CHUNK + 7 * PAGE_SIZE, PAGE_SIZE)).collect()
    }
}

#[test]
fn a_directory_has_what_is_cold() {
    let store = TempDir::new();
    let text = format!("fs://{} cold=0", store.path().display());
    let mut world = World::new("a_directory_has_what_is_cold", &text);
    world.run(12);
    world.fill();
    world.wait_until_away();
    // Nothing of it is here any more.
    let backing = world._dir.join("backing");
    wait_until("the file is empty", || fs::metadata(&backing).unwrap().blocks() == 0);
    wait_until("old objects are deleted", || files(store.path()).len() == CHUNKS);
    drop(world);
    assert!(files(store.path()).is_empty(), "the end deletes all objects");
}

#[test]
fn some_of_it_may_stay_here() {
    let store = TempDir::new();
    let text = format!("fs://{} cold=0 keep=2M", store.path().display());
    let mut world = World::new("some_of_it_may_stay_here", &text);
    world.fill();
    wait_until("the rest is away", || world.stats().local_bytes == 2 << 20);
    thread::sleep(Duration::from_millis(600));
    assert_eq!(world.stats().local_bytes, 2 << 20);
    world.read(0, BYTES).unwrap();
}

#[test]
fn redis_has_what_is_cold() {
    let name = "redis_has_what_is_cold";
    if !met(name, &[REDIS]) {
        return;
    }
    let redis = Redis::start(&[]);
    let mut world = World::new(name, &format!("{} cold=0", redis.uri()));
    world.run(6);
}

#[test]
fn an_s3_server_has_what_is_cold() {
    let server = S3::start();
    let mut world =
        World::new("an_s3_server_has_what_is_cold", &format!("{} cold=0", server.uri()));
    world.run(6);
    assert!(!server.objects().is_empty());
    drop(world);
    assert!(server.objects().is_empty(), "the end deletes all objects");
}

#[test]
fn what_is_used_stays_here() {
    let store = TempDir::new();
    let text = format!("fs://{} cold=3600", store.path().display());
    let mut world = World::new("what_is_used_stays_here", &text);
    world.fill();
    thread::sleep(Duration::from_millis(600));
    assert_eq!((world.stats().remote_bytes, files(store.path()).len()), (0, 0));
}
