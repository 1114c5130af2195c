//! Clients that others wrote.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use block::{Abilities, BlockDevice, Checked, Geometry, IoError, Operation, Plain, Visit};
use nbd::{Listener, One, Options, Server};
use testkit::{Need, Rng, TempDir, met, run, try_run};
use units::Cpu;

const NBDINFO: Need = Need::program("nbdinfo", "libnbd-bin");
const NBDCOPY: Need = Need::program("nbdcopy", "libnbd-bin");
const QEMU_IO: Need = Need::program("qemu-io", "qemu-utils");
const QEMU_IMG: Need = Need::program("qemu-img", "qemu-utils");
const FIO: Need = Need::program("fio", "fio");

const SIZE: usize = 64 << 20;

/// A device served at a unix socket.
struct Served {
    server: Server,
    directory: TempDir,
}

impl Served {
    fn new(device: Arc<dyn BlockDevice>) -> Served {
        let directory = TempDir::new();
        let exports = Arc::new(One::new("zram0", "for clients", device));
        let server = Server::new(exports, Options::default()).unwrap();
        server.listen(Listener::unix(&directory.join("s")).unwrap()).unwrap();
        Served { server, directory }
    }

    fn plain() -> Served {
        Served::new(Arc::new(Checked::new(Plain::new(SIZE))))
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

/// A file with data, holes and pages of one byte, different for each seed.
fn image(path: &Path, test: &str) {
    let mut random = Rng::new(testkit::seed(test));
    let mut bytes = vec![0; SIZE];
    for block in bytes.chunks_mut(64 << 10) {
        match random.below(3) {
            0 => {}
            1 => block.fill(random.next_u64() as u8),
            _ => random.fill(block),
        }
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn nbdinfo() {
    if !met("nbdinfo", &[NBDINFO]) {
        return;
    }
    let served = Served::plain();
    let uri = served.uri();
    let text = run(Command::new("nbdinfo").args(["--json", &uri])).stdout;
    for expected in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"export-name\": \"zram0\"",
        "\"description\": \"for clients\"",
        "\"base:allocation\"",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"can_fast_zero\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"is_read_only\": false",
        "\"block_size_minimum\": 1",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
        "\"export-size\": 67108864",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    let root = uri.replace("/zram0", "/");
    let list = run(Command::new("nbdinfo").args(["--list", &root])).stdout;
    assert!(list.contains("export=\"zram0\""), "{list}");
    assert_eq!(run(Command::new("nbdinfo").args(["--size", &root])).stdout.trim(), "67108864");
    let map = run(Command::new("nbdinfo").args(["--map", &uri])).stdout;
    let words: Vec<&str> = map.split_whitespace().collect();
    assert_eq!(words, ["0", "67108864", "3", "hole,zero"]);
    let wrong = uri.replace("/zram0", "/zram7");
    assert!(!try_run(Command::new("nbdinfo").arg(&wrong)).status.success());
}

#[test]
fn nbdcopy_there_and_back() {
    if !met("nbdcopy_there_and_back", &[NBDCOPY]) {
        return;
    }
    let served = Served::plain();
    let (from, to) = (served.directory.join("from"), served.directory.join("to"));
    image(&from, "nbdcopy_there_and_back");
    for options in [
        &["--connections=4", "--requests=64"][..],
        &["--connections=1", "--allocated"],
        &["--synchronous", "--destination-is-zero"],
        &["--no-extents", "--request-size=33554432", "--threads=1"],
        &["--sparse=0", "--flush"],
    ] {
        run(Command::new("nbdcopy").args(options).arg(&from).arg(served.uri()));
        let _ = fs::remove_file(&to);
        run(Command::new("nbdcopy").args(options).arg(served.uri()).arg(&to));
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap(), "{options:?}");
        // Overwritten with zeroes, so that the next round starts from holes.
        run(Command::new("nbdcopy").arg("--destination-is-zero").arg(served.uri()).arg("null:"));
    }
}

#[test]
fn qemu_io() {
    if !met("qemu_io", &[QEMU_IO]) {
        return;
    }
    let served = Served::plain();
    let output = run(Command::new("qemu-io")
        .args(["-f", "raw"])
        .args([
            "-c",
            "write -P 0xab 0 4k",
            "-c",
            "read -P 0xab 0 4k",
            "-c",
            "write -P 0x17 4095 70001",
            "-c",
            "read -P 0xab 0 4095",
            "-c",
            "read -P 0x17 4095 70001",
            "-c",
            "discard 0 64k",
            "-c",
            "read -P 0 0 64k",
            "-c",
            "write -f -P 3 1M 32M",
            "-c",
            "read -P 3 1M 32M",
            "-c",
            "write -z 1M 64k",
            "-c",
            "write -z -u 2M 64k",
            "-c",
            "read -P 0 1M 64k",
            "-c",
            "read -P 0 2M 64k",
            "-c",
            "read -P 3 3M 64k",
            "-c",
            "flush",
        ])
        .arg(served.uri()));
    assert!(!output.stdout.contains("verification failed"), "{}", output.stdout);
    let beyond =
        Command::new("qemu-io").args(["-f", "raw", "-c", "read 0 65M"]).arg(served.uri()).output();
    let beyond = beyond.unwrap();
    assert!(!beyond.status.success(), "reading past the end");
}

#[test]
fn qemu_img_there_and_back() {
    if !met("qemu_img_there_and_back", &[QEMU_IMG]) {
        return;
    }
    let served = Served::plain();
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
    let map =
        run(Command::new("qemu-img").args(["map", "-f", "raw", "--output=json", &uri])).stdout;
    assert!(map.contains("\"zero\": true") && map.contains("\"data\": true"), "{map}");
}

/// fio writes at random with checksums and reads back what it wrote.
fn fio_verify(served: &Served, options: &[&str]) -> testkit::Output {
    try_run(
        Command::new("fio")
            .args(["--name=verify", "--ioengine=nbd", "--verify=crc32c", "--size=16M"])
            .args(["--verify_fatal=1", "--do_verify=1"])
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
    for options in [
        &["--rw=randwrite", "--bs=4k", "--iodepth=16"][..],
        &["--rw=randrw", "--bsrange=512-64k", "--bs_unaligned", "--iodepth=4"],
        &["--rw=randwrite", "--bs=4k", "--iodepth=16", "--numjobs=2", "--offset_increment=16M"],
        &["--rw=randtrimwrite", "--bs=4k", "--iodepth=1"],
        &["--rw=write", "--bs=1M", "--iodepth=8"],
    ] {
        let served = Served::plain();
        let output = fio_verify(&served, options);
        assert!(output.status.success(), "{options:?}\n{}\n{}", output.stdout, output.stderr);
    }
}

/// Forgets one write in a thousand.
struct Forgetful {
    inner: Plain,
    writes: Mutex<u32>,
}

impl BlockDevice for Forgetful {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }
    fn submit(&self, cpu: Cpu, operation: Operation<'_>) -> Result<(), IoError> {
        if matches!(operation, Operation::Write { .. }) {
            let mut writes = self.writes.lock().unwrap();
            *writes += 1;
            if *writes == 1000 {
                *writes = 0;
                return Ok(());
            }
        }
        self.inner.submit(cpu, operation)
    }
    fn extents(&self, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.inner.extents(offset, length, visit)
    }
}

#[test]
fn fio_finds_a_device_out_that_forgets() {
    if !met("fio_finds_a_device_out_that_forgets", &[FIO]) {
        return;
    }
    let inner = Plain::new(SIZE);
    let served = Served::new(Arc::new(Forgetful { inner, writes: Mutex::new(0) }));
    let output = fio_verify(&served, &["--rw=randwrite", "--bs=4k", "--iodepth=16"]);
    assert!(!output.status.success(), "{}", output.stdout);
}

/// The example, which `cargo test` builds beside its tests.
fn example() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples/serve_plain");
    assert!(path.exists(), "run `cargo build -p rampack-nbd --example serve_plain` first");
    path
}

#[test]
fn nbdinfo_starts_us_by_socket_activation() {
    if !met("nbdinfo_starts_us_by_socket_activation", &[NBDINFO]) {
        return;
    }
    let example = example();
    let command = ["--size", "--", "[", example.to_str().unwrap(), "--activated", "3M", "]"];
    assert_eq!(run(Command::new("nbdinfo").args(command)).stdout.trim(), "3145728");
}

#[test]
fn a_client_starts_us_on_standard_input_and_output() {
    let mut input = common::hello(common::Style::Simple);
    input.extend(common::request_bytes(0, common::READ, 1, 0, 2));
    input.extend(common::request_bytes(0, common::DISC, 2, 0, 0));
    let answers = nbd::drive(&input, Arc::new(Plain::new(3 << 20))).len();
    let start = |stdin: OwnedFd, stdout: OwnedFd| {
        let mut command = Command::new(example());
        command.args(["--stdio", "3M"]).stdin(stdin).stdout(stdout).spawn().unwrap()
    };

    // As inetd does it: one socket for both.
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut child = start(theirs.try_clone().unwrap().into(), theirs.into());
    ours.write_all(&input).unwrap();
    let mut output = vec![];
    ours.read_to_end(&mut output).unwrap();
    assert_eq!(output.len(), answers);
    assert!(child.wait().unwrap().success());

    // As a shell does it: two pipes.
    let (stdin, mut to_child) = std::io::pipe().unwrap();
    let (mut from_child, stdout) = std::io::pipe().unwrap();
    let mut child = start(stdin.into(), stdout.into());
    to_child.write_all(&input).unwrap();
    output.clear();
    from_child.read_to_end(&mut output).unwrap();
    assert_eq!(output.len(), answers);
    assert!(child.wait().unwrap().success());
}
