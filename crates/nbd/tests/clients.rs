//! The clients of libnbd. Those of qemu and fio stand in `crates/rampack/tests`, on a compressed
//! device.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use block::{BlockDevice, Checked, Plain};
use nbd::{Listener, One, Options, Server};
use testkit::{Need, Rng, TempDir, met, run, try_run};

const NBDINFO: Need = Need::program("nbdinfo", "libnbd-bin");
const NBDCOPY: Need = Need::program("nbdcopy", "libnbd-bin");

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
        let server = common::new_server(exports, Options::default()).unwrap();
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
