//! A daemon under test, which is gone with everything it made when the test ends, also by a panic.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use testkit::TempDir;

/// Nothing here takes that long; a test that hangs says where.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The name of the page allocator's design, as users are told it.
pub const DESIGN: &str = "bitfield";

/// The program, free of the caller's settings.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rampack"));
    // Only single programs are short of memory in these tests, so a loop device will do.
    command.env("RAMPACK_SWAP_TRANSPORT", "loop");
    // A call that the list of a thread's role lacks ends the daemon, and so the test.
    command.env("RAMPACK_SANDBOX", "strict");
    // For a backtrace a thread that panics opens the program's file, which it may not.
    command.env_remove("RUST_BACKTRACE");
    command.env_remove("RAMPACK_ROOT").env_remove("RAMPACK_LOG").env_remove("XDG_RUNTIME_DIR");
    for name in ["NOTIFY_SOCKET", "SUDO_UID", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// What a command said and how it ended.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn said(output: &Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs the program to its end with the words of `line`.
pub fn rampack(line: &str) -> Said {
    said(&program().args(line.split_whitespace()).output().unwrap())
}

/// Checks that a command was refused with `code`, in a sentence with every one of `words`.
#[track_caller]
pub fn refused(said: &Said, code: i32, words: &[&str]) {
    assert_eq!(said.code, code, "{}\n{}", said.out, said.err);
    // The parser of the command line breaks lines.
    let text = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

/// Waits until `done`.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A directory whose mounts are taken down before it is removed.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { dir: TempDir::new() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// A fresh directory to mount on.
    pub fn mount_point(&self) -> PathBuf {
        let path = self.dir.join("mnt");
        fs::create_dir(&path).unwrap();
        path
    }

    pub fn mounts(&self) -> Vec<PathBuf> {
        let under = |mount: host::Mounted| mount.at.starts_with(self.path()).then_some(mount.at);
        host::mounts().unwrap().into_iter().filter_map(under).collect()
    }

    pub fn loops(&self) -> Vec<u32> {
        let of =
            |files: &str, name: String| fuse::find_by_backing(&self.root().join(files).join(name));
        let both = |n| [of("files", format!("zram{n}")), of("swap", format!("swap{n}"))];
        (0..8).flat_map(|n| both(n).concat()).collect()
    }

    /// Checks that nothing is mounted, attached or listening here any more.
    #[track_caller]
    pub fn is_clean(&self) {
        assert!(self.mounts().is_empty(), "{:?}", self.mounts());
        assert!(self.loops().is_empty(), "{:?}", self.loops());
        assert!(!self.root().exists(), "{:?}", listing(&self.root()));
    }
}

pub fn listing(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

impl Drop for Place {
    fn drop(&mut self) {
        // The daemon is dead by now: declared later, dropped earlier.
        if let Ok(root) = service::root::Root::choose(Some(&self.root())) {
            let _ = service::swap::leftovers::swap_off(&root, None, &[], |_| false);
        }
        let _ = fuse::leftovers::clear(&self.root());
        for target in self.mounts().iter().rev() {
            let _ = host::unmount(target, host::Unmount::Lazily);
        }
    }
}

/// Makes a file of `bytes` that only its owner may use.
pub fn private_file(path: &Path, bytes: u64) {
    let mut options = fs::File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).unwrap().set_len(bytes).unwrap();
}

/// A running daemon.
pub struct Daemon {
    child: Child,
    root: PathBuf,
    lines: Receiver<String>,
    /// What it said until it was ready.
    pub greeting: String,
}

impl Daemon {
    /// Starts the program with `line` in the root of `place`, and waits until it is ready.
    #[track_caller]
    pub fn start(place: &Place, line: &str) -> Daemon {
        Daemon::spawn(place, &mut Daemon::command_in(place, line))
    }

    /// The program with `line` in the root of `place`.
    pub fn command_in(place: &Place, line: &str) -> Command {
        let mut command = program();
        command.arg("--root").arg(place.root()).args(line.split_whitespace());
        command
    }

    #[track_caller]
    pub fn spawn(place: &Place, command: &mut Command) -> Daemon {
        // One stream for both, so that what is said keeps its order.
        let (ours, theirs) = UnixStream::pair().unwrap();
        let out = OwnedFd::from(theirs.try_clone().unwrap());
        command.stdout(Stdio::from(out)).stderr(Stdio::from(OwnedFd::from(theirs)));
        // In a group of its own, as a terminal would run it.
        let child = command.process_group(0).spawn().unwrap();
        // The command keeps its ends of the stream, which would never end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(ours).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut daemon = Daemon { child, root: place.root(), lines, greeting: String::new() };
        daemon.greeting = daemon.lines_until(&["end it", "serving in"]);
        daemon
    }

    /// Everything said up to a line with one of `words`.
    #[track_caller]
    pub fn lines_until(&self, words: &[&str]) -> String {
        let mut text = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("{words:?} was never said:\n{text}"));
            text.push_str(&line);
            text.push('\n');
            if words.iter().any(|word| line.contains(word)) {
                return text;
            }
        }
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = program();
        command.arg("--root").arg(&self.root).args(line.split_whitespace());
        command
    }

    /// Asks it something.
    pub fn ask(&self, line: &str) -> Said {
        let said = said(&self.command(line).output().unwrap());
        if said.code == 0 {
            crate::schema::check_status(line, &said.out);
        }
        said
    }

    /// Asks it something it must not refuse; what it answers.
    #[track_caller]
    pub fn does(&self, line: &str) -> String {
        let said = self.ask(line);
        assert_eq!(said.code, 0, "rampack {line}: {}", said.err);
        said.out
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes two numbers; the child is ours and not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// A line of its `/proc/PID/status`.
    #[track_caller]
    pub fn status(&self, name: &str) -> String {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in: {text}")).trim().to_string()
    }

    /// Waits for its end; how it ended.
    #[track_caller]
    pub fn ended(mut self) -> std::process::ExitStatus {
        wait_until("the daemon's end", || !self.is_alive());
        self.child.wait().unwrap()
    }

    pub fn nbd(&self) -> PathBuf {
        self.root.join("nbd.sock")
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ctrl-C, after which it must end well. It refuses while a program of another test has its
    /// mount still, so it is asked again.
    #[track_caller]
    pub fn stop(mut self) {
        let mut asked: Option<Instant> = None;
        wait_until("the daemon's end", || {
            if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(2)) {
                self.signal(libc::SIGINT);
                asked = Some(Instant::now());
            }
            !self.is_alive()
        });
        assert!(self.child.wait().unwrap().success(), "{}", self.rest());
    }

    /// What it said since it was last asked.
    pub fn rest(&self) -> String {
        self.lines.try_iter().collect::<Vec<_>>().join("\n")
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An NBD client that knows just enough.
pub struct NbdClient {
    stream: UnixStream,
    pub bytes: u64,
}

impl NbdClient {
    /// Connects to export `name`; the server's error number when it refuses.
    pub fn connect(socket: &Path, name: &str) -> Result<NbdClient, u32> {
        NbdClient::try_connect(socket, name).unwrap()
    }

    /// Does a daemon serve the device `name` at `socket` now? It is listed a moment before.
    pub fn is_served(socket: &Path, name: &str) -> bool {
        matches!(NbdClient::try_connect(socket, name), Ok(Ok(_)))
    }

    fn try_connect(socket: &Path, name: &str) -> io::Result<Result<NbdClient, u32>> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        stream.write_all(&3u32.to_be_bytes())?;
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(&[0, 0]);
        stream.write_all(b"IHAVEOPT\0\0\0\x07")?;
        stream.write_all(&(data.len() as u32).to_be_bytes())?;
        stream.write_all(&data)?;
        let mut bytes = 0;
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head)?;
            let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            let mut data = vec![0; number(16) as usize];
            stream.read_exact(&mut data)?;
            match number(12) {
                1 => return Ok(Ok(NbdClient { stream, bytes })),
                3 if data[..2] == [0, 0] => {
                    bytes = u64::from_be_bytes(data[2..10].try_into().unwrap());
                }
                3 => {}
                error => return Ok(Err(error)),
            }
        }
    }

    /// Sends a read, whose reply nobody takes.
    pub fn ask_for(&mut self, offset: u64, length: u32) {
        self.send(0, offset, length, &[]);
    }

    fn send(&mut self, kind: u16, offset: u64, length: u32, data: &[u8]) {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend_from_slice(&[0, 0]);
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&7u64.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&length.to_be_bytes());
        request.extend_from_slice(data);
        self.stream.write_all(&request).unwrap();
    }

    fn request(&mut self, kind: u16, offset: u64, length: u32, data: &[u8]) -> u32 {
        self.send(kind, offset, length, data);
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
        u32::from_be_bytes(reply[4..8].try_into().unwrap())
    }

    /// The error number of a write, 0 for none.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.request(1, offset, data.len() as u32, data)
    }

    /// The data, or the error number.
    pub fn try_read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        let error = self.request(0, offset, length as u32, &[]);
        if error != 0 {
            return Err(error);
        }
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data).unwrap();
        Ok(data)
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.try_read(offset, length).unwrap()
    }
}

/// A page that does not compress, different for each number.
pub fn noise(number: u64) -> Vec<u8> {
    let mut rng = testkit::Rng::new(number.wrapping_add(1));
    let mut page = vec![0; 4096];
    rng.fill(&mut page);
    page
}
