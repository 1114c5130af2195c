//! A server that is killed again and again, whose socket and contents are kept: clients that connect
//! again get the same export.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kept::{Backoff, Ended, Keeper};
use nbd::Listener;
use testkit::{Need, Rng, TempDir, met};

const SIZE: usize = 16 << 20;
const BLOCK: usize = 64 << 10;

/// A keeper in this process, with servers that die.
struct Kept {
    root: TempDir,
    keeper: Option<JoinHandle<Ended>>,
}

impl Kept {
    fn start() -> Kept {
        let root = TempDir::new();
        let mut program = std::env::current_exe().expect("the path of this test");
        program.pop();
        program.pop();
        program.push("examples/serve_kept_nbd");
        assert!(program.exists(), "{}: build it with 'cargo build --examples'", program.display());
        let socket = root.join("s").into_os_string();
        let arguments = vec!["serve_kept_nbd".into(), socket, OsString::from(SIZE.to_string())];
        let pause = Duration::from_millis(1);
        let keeper = thread::spawn(move || {
            let backoff = Backoff { first: pause, longest: pause, tries: 3 };
            Keeper::new(&program, arguments, backoff, None).unwrap().run().unwrap()
        });
        let kept = Kept { root, keeper: Some(keeper) };
        kept.wait_for_life(0);
        kept
    }

    fn socket(&self) -> PathBuf {
        self.root.join("s")
    }

    fn lives(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.root.join("s.lives")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn wait_for_life(&self, number: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.lives().len() <= number {
            let has_ended = self.keeper.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!has_ended && Instant::now() < end, "no other process serves");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(&self) {
        let lives = self.lives();
        // SAFETY: two numbers; the process is a child of this one, whose keeper has not seen its
        // end, because it serves until it is killed here.
        assert_eq!(unsafe { libc::kill(*lives.last().unwrap(), libc::SIGKILL) }, 0);
        self.wait_for_life(lives.len());
    }

    fn stop(mut self) {
        fs::write(self.root.join("s.stop"), "").unwrap();
        assert_eq!(self.keeper.take().unwrap().join().unwrap(), Ended::Exited(0));
        assert!(!self.socket().exists(), "its file is left");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::write(self.root.join("s.stop"), "");
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

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
    let kept = Kept::start();
    let said = client(&kept, testkit::seed(name), 30);
    assert_eq!(said, "16 MiB");
    assert_eq!(kept.lives().len(), 31);
    kept.stop();
}

/// Have all threads of a process stopped? A signal reaches them one after the other.
fn is_stopped(process: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

#[test]
fn a_client_may_connect_while_nobody_serves() {
    let kept = Kept::start();
    let lives = kept.lives();
    // SAFETY: as in `kill`.
    assert_eq!(unsafe { libc::kill(lives[0], libc::SIGSTOP) }, 0);
    while !is_stopped(lives[0]) {
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
