//! NBD clients that others wrote, on a compressed device: qemu and fio.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use block::{Abilities, BlockDevice, Checked, Context, Geometry, IoError, Operation, Visit};
use nbd::{Listener, One, Options, Server};
use rampack::{Disk, DiskOptions, Rampack};
use testkit::{Need, Rng, TempDir, met, run, try_run};
use units::Cpu;

const QEMU_IO: Need = Need::program("qemu-io", "qemu-utils");
const QEMU_IMG: Need = Need::program("qemu-img", "qemu-utils");
const FIO: Need = Need::program("fio", "fio");

const SIZE: usize = 64 << 20;
/// The fastest codec, and one that has streams with large states.
const ALGORITHMS: [&str; 2] = ["lz4", "zstd"];

fn disk(algorithm: &str) -> Disk {
    let options = DiskOptions::new(SIZE as u64).algorithm(algorithm.parse().unwrap());
    Rampack::new().unwrap().disk(options).unwrap()
}

/// A device served at a unix socket.
struct Served {
    server: Server,
    directory: TempDir,
}

impl Served {
    fn new(device: impl BlockDevice + 'static) -> Served {
        let directory = TempDir::new();
        let exports = Arc::new(One::new("zram0", "for clients", Arc::new(Checked::new(device))));
        let server = Server::new(exports, Options::default()).unwrap();
        server.listen(Listener::unix(&directory.join("s")).unwrap()).unwrap();
        Served { server, directory }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///zram0?socket={}", self.directory.join("s").display())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.shutdown();
        self.server.join();
    }
}

/// The device has pages, in less memory than they have bytes.
fn compressed(disk: &Disk) {
    let stats = disk.stats();
    let other = stats.pages - stats.same_filled;
    assert!(other > 0, "{stats:?}");
    assert!(stats.compressed_bytes < other * 4096, "{stats:?}");
    assert_eq!(stats.failed, 0);
}

#[test]
fn qemu_io() {
    if !met("qemu_io", &[QEMU_IO]) {
        return;
    }
    for algorithm in ALGORITHMS {
        let disk = disk(algorithm);
        let served = Served::new(disk.clone());
        // A page of two patterns is compressed; the others are same-filled.
        let output = run(Command::new("qemu-io")
            .args(["-f", "raw"])
            .args(["-c", "write -P 0xab 0 4k", "-c", "read -P 0xab 0 4k"])
            .args(["-c", "write -P 0x17 4095 70001", "-c", "read -P 0xab 0 4095"])
            .args(["-c", "read -P 0x17 4095 70001", "-c", "read -P 0 74096 432"])
            .args(["-c", "write -P 9 80k 100", "-c", "discard 0 64k", "-c", "read -P 0 0 64k"])
            .args(["-c", "write -f -P 3 1M 32M", "-c", "read -P 3 1M 32M"])
            .args(["-c", "write -z 1M 64k", "-c", "write -z -u 2M 64k"])
            .args(["-c", "read -P 0 1M 64k", "-c", "read -P 0 2M 64k"])
            .args(["-c", "read -P 3 3M 64k", "-c", "read -P 9 80k 100", "-c", "flush"])
            .arg(served.uri()));
        assert!(!output.stdout.contains("verification failed"), "{}", output.stdout);
        compressed(&disk);
        let mut beyond = Command::new("qemu-io");
        let beyond = try_run(beyond.args(["-f", "raw", "-c", "read 0 65M"]).arg(served.uri()));
        assert!(!beyond.status.success(), "reading past the end");
    }
}

/// A file with text, noise, holes and pages of one byte, different for each seed.
fn image(path: &Path, test: &str) {
    let mut random = Rng::new(testkit::seed(test));
    let mut bytes = vec![0; SIZE];
    for block in bytes.chunks_mut(64 << 10) {
        match random.below(4) {
            0 => {}
            1 => block.fill(random.next_u64() as u8),
            2 => block.fill_with(|| b"etaoin s"[random.below(8) as usize]),
            _ => random.fill(block),
        }
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn qemu_img_there_and_back() {
    if !met("qemu_img_there_and_back", &[QEMU_IMG]) {
        return;
    }
    for algorithm in ALGORITHMS {
        let disk = disk(algorithm);
        let served = Served::new(disk.clone());
        let (from, to) = (served.directory.join("from"), served.directory.join("to"));
        image(&from, "qemu_img_there_and_back");
        let uri = served.uri();
        let convert = |from: &str, to: &str, options: &[&str]| {
            let formats = ["convert", "-f", "raw", "-O", "raw"];
            run(Command::new("qemu-img").args(formats).args(options).args([from, to]));
        };
        let (from_path, to_path) = (from.to_str().unwrap(), to.to_str().unwrap());
        convert(from_path, &uri, &["-n", "-W", "-m", "16"]);
        run(Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "raw", from_path, &uri]));
        convert(&uri, to_path, &[]);
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
        let mut map = Command::new("qemu-img");
        let map = run(map.args(["map", "-f", "raw", "--output=json", &uri])).stdout;
        assert!(map.contains("\"zero\": true") && map.contains("\"data\": true"), "{map}");
        compressed(&disk);
    }
}

/// fio writes at random with checksums and reads back what it wrote. Half of each page is noise.
fn fio_verify(served: &Served, options: &[&str]) -> testkit::Output {
    try_run(
        Command::new("fio")
            .args(["--name=verify", "--ioengine=nbd", "--verify=crc32c", "--size=16M"])
            .args(["--verify_fatal=1", "--do_verify=1"])
            .args(["--refill_buffers", "--buffer_compress_percentage=50"])
            .arg("--buffer_compress_chunk=4k")
            .arg(format!("--uri={}", served.uri()))
            .arg(format!("--aux-path={}", served.directory.path().display()))
            .args(options)
            .current_dir(served.directory.path()),
    )
}

#[test]
fn fio_verifies() {
    if !met("fio_verifies", &[FIO]) {
        return;
    }
    for (number, options) in [
        &["--rw=randwrite", "--bs=4k", "--iodepth=16"][..],
        &["--rw=randrw", "--bsrange=512-64k", "--bs_unaligned", "--iodepth=4"],
        &["--rw=randwrite", "--bs=4k", "--iodepth=16", "--numjobs=2", "--offset_increment=16M"],
        &["--rw=randtrimwrite", "--bs=4k", "--iodepth=1"],
        &["--rw=write", "--bs=1M", "--verify_interval=4k", "--iodepth=8"],
    ]
    .iter()
    .enumerate()
    {
        let disk = disk(ALGORITHMS[number % ALGORITHMS.len()]);
        let served = Served::new(disk.clone());
        let output = fio_verify(&served, options);
        assert!(output.status.success(), "{options:?}\n{}\n{}", output.stdout, output.stderr);
        compressed(&disk);
    }
}

/// Forgets one write in a thousand.
struct Forgetful {
    disk: Disk,
    writes: Mutex<u32>,
}

impl BlockDevice for Forgetful {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.disk.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if matches!(operation, Operation::Write { .. }) {
            let mut writes = self.writes.lock().unwrap();
            *writes += 1;
            if *writes == 1000 {
                *writes = 0;
                return Ok(());
            }
        }
        self.disk.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.disk.extents(cpu, offset, length, visit)
    }
}

#[test]
fn fio_finds_a_device_out_that_forgets() {
    if !met("fio_finds_a_device_out_that_forgets", &[FIO]) {
        return;
    }
    let served = Served::new(Forgetful { disk: disk("lz4"), writes: Mutex::new(0) });
    let output = fio_verify(&served, &["--rw=randwrite", "--bs=4k", "--iodepth=16"]);
    assert!(!output.status.success(), "{}", output.stdout);
}
