//! A server that is killed again and again, whose socket and contents are kept: clients that connect
//! again get the same export.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nbd::Listener;
use rustix::process::{Pid, Signal};
use sim::kept::Kept;
use testkit::{Need, Rng, TempDir, met};

const SIZE: usize = 16 << 20;
const BLOCK: usize = 64 << 10;

/// Runs a client with random writes and reads while servers are killed, and returns what it said.
fn client(kept: &Kept, seed: u64, kills: usize) -> String {
    let socket = kept.socket();
    let image = format!(
        "driver=nbd,server.type=unix,server.path={},export=disk,open-timeout=60,reconnect-delay=60",
        socket.display()
    );
    let mut client = Command::new("qemu-io")
        .args(["--image-opts", &image])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    let output = BufReader::new(client.stdout.take().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let commands = thread::spawn(move || {
        let mut rng = Rng::new(seed);
        let blocks = SIZE / BLOCK;
        let mut model = vec![0u8; blocks];
        while !stopped.load(Ordering::Relaxed) {
            let block = rng.below(blocks as u64) as usize;
            if rng.one_in(2) {
                model[block] = rng.below(255) as u8 + 1;
                let pattern = model[block];
                writeln!(input, "write -q -P {pattern} {} {BLOCK}", block * BLOCK).unwrap();
            }
            writeln!(input, "read -q -P {} {} {BLOCK}", model[block], block * BLOCK).unwrap();
        }
        for (block, pattern) in model.iter().enumerate() {
            writeln!(input, "read -q -P {pattern} {} {BLOCK}", block * BLOCK).unwrap();
        }
        writeln!(input, "length").unwrap();
    });
    let reader = thread::spawn(move || {
        let lines = output.lines().map(Result::unwrap);
        lines.map(|line| line.replace("qemu-io> ", "")).filter(|line| !line.is_empty()).collect()
    });
    let mut rng = Rng::new(!seed);
    for _ in 0..kills {
        thread::sleep(Duration::from_micros(rng.below(20_000)));
        kept.kill();
    }
    stop.store(true, Ordering::Relaxed);
    commands.join().unwrap();
    let said: Vec<String> = reader.join().unwrap();
    assert!(client.wait().unwrap().success());
    said.join("\n")
}

#[test]
fn a_client_that_connects_again_misses_nothing() {
    let name = "a_client_that_connects_again_misses_nothing";
    if !met(name, &[Need::program("qemu-io", "qemu-utils")]) {
        return;
    }
    let mut kept = Kept::start("serve_kept_nbd", SIZE as u64);
    let said = client(&kept, testkit::seed(name), 30);
    assert_eq!(said, "16 MiB");
    assert_eq!(kept.lives().len(), 31);
    kept.stop();
    assert!(!kept.socket().exists(), "its file is left");
}

/// Have all threads of a process stopped? A signal reaches them one after the other.
fn is_stopped(process: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap();
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

#[test]
fn a_client_may_connect_while_nobody_serves() {
    let mut kept = Kept::start("serve_kept_nbd", SIZE as u64);
    kept.signal(Signal::STOP);
    while !is_stopped(kept.lives()[0]) {
        thread::sleep(Duration::from_millis(1));
    }
    let mut early = UnixStream::connect(kept.socket()).unwrap();
    kept.kill();
    early.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut greeting = [0; 8];
    std::io::Read::read_exact(&mut early, &mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGIC");
    drop(early);
    kept.stop();
    assert!(!kept.socket().exists(), "its file is left");
}

#[test]
fn only_the_socket_of_the_path_is_taken() {
    let root = TempDir::new();
    let (here, there) = (root.join("here"), root.join("there"));
    let bound = UnixListener::bind(&here).unwrap();
    let copy = || OwnedFd::from(bound.try_clone().unwrap());
    let refused = |fd, path| Listener::unix_kept(fd, path, &[]).unwrap_err().to_string();
    let text = refused(copy(), &there);
    assert!(text.ends_with("cannot listen: the descriptor that was kept is not this socket"));
    assert!(text.starts_with(there.to_str().unwrap()), "{text}");
    let text = refused(UnixStream::pair().unwrap().0.into(), &here);
    assert!(text.contains("not this socket"), "{text}");
    let text = refused(fs::File::open("/dev/null").unwrap().into(), &here);
    assert!(text.contains("cannot listen"), "{text}");
    let listener = Listener::unix_kept(copy(), &here, &[]).unwrap();
    drop(listener);
    assert!(!here.exists(), "it has the file of its socket");
    let text = refused(copy(), &here);
    assert!(text.contains("No such file"), "{text}");
}
