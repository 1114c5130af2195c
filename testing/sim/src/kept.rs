//! Servers that are killed again and again, whose disk is kept: the test has [`Kept`], the example
//! program that it starts has a [`Life`].

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use block::{
    Abilities, BlockDevice, Checked, Context, Extent, ExtentKind, Geometry, IoError, Operation,
    Visit,
};
use kept::{Backoff, Ended, Keeper, Store};
use rustix::process::{Pid, Signal, kill_process};
use testkit::TempDir;
use units::{Cpu, PAGE_SIZE};

/// A keeper in this process, with servers that die.
pub struct Kept {
    root: TempDir,
    keeper: Option<JoinHandle<Ended>>,
}

impl Kept {
    /// Starts `example`, with a disk of `bytes` bytes.
    ///
    /// # Panics
    /// When it does not serve.
    #[must_use]
    pub fn start(example: &str, bytes: u64) -> Kept {
        let root = TempDir::new();
        let mut program = std::env::current_exe().expect("the path of this test");
        program.pop();
        program.pop();
        program.push("examples");
        program.push(example);
        assert!(program.exists(), "{}: build it with 'cargo build --examples'", program.display());
        let socket = root.join("s").into_os_string();
        let arguments = vec![example.into(), socket, OsString::from(bytes.to_string())];
        let pause = Duration::from_millis(1);
        let keeper = thread::spawn(move || {
            let backoff = Backoff { first: pause, longest: pause, tries: 3 };
            let mut keeper = Keeper::new(&program, arguments, backoff, None).expect("a keeper");
            keeper.run().expect("it keeps")
        });
        let kept = Kept { root, keeper: Some(keeper) };
        kept.wait_for_life(0);
        kept
    }

    /// Where the server listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.root.join("s")
    }

    /// The processes that have served, the last one of which serves now.
    #[must_use]
    pub fn lives(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.root.join("s.lives")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
    }

    fn wait_for_life(&self, number: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.lives().len() <= number {
            let has_ended = self.keeper.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!has_ended && Instant::now() < end, "no other process serves");
            sleep(Duration::from_millis(1));
        }
    }

    /// Sends the server a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        // The process is a child of this one, whose keeper has not seen its end: it serves until it
        // is killed here.
        let sent = self.lives().last().map(|life| kill_process(*life, signal));
        assert_eq!(sent, Some(Ok(())));
    }

    /// Kills the server, and waits for the next one.
    ///
    /// # Panics
    /// When none comes.
    pub fn kill(&self) {
        let before = self.lives().len();
        self.signal(Signal::KILL);
        self.wait_for_life(before);
    }

    /// Has the server end by itself.
    ///
    /// # Panics
    /// When it fails.
    pub fn stop(&mut self) {
        assert_eq!(self.end(), Some(Ended::Exited(0)));
    }

    fn end(&mut self) -> Option<Ended> {
        let _ = fs::write(self.root.join("s.stop"), "");
        self.keeper.take()?.join().ok()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end();
    }
}

/// A process that serves a disk whose contents outlive it, under a keeper: `PROGRAM SOCKET SIZE`.
pub struct Life {
    /// Where it is to listen.
    pub socket: PathBuf,
    handed_over: Vec<(String, OwnedFd)>,
    store: Store,
}

impl Life {
    /// Begins, with its disk.
    ///
    /// # Errors
    /// For wrong arguments, without a keeper, and those of the system.
    pub fn begin() -> Result<(Life, Arc<dyn BlockDevice>), Box<dyn Error>> {
        let handed_over = kept::handed_over()?;
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [path, size] = &arguments[..] else { return Err("which SOCKET, which SIZE?".into()) };
        let store = Store::of_environment()?.ok_or("no service manager keeps descriptors")?;
        let mut life = Life { socket: path.into(), handed_over, store };
        let bytes = units::parse_size(size)?;
        let file: File = match life.take("disk") {
            Some(file) => file.into(),
            None => {
                let file = host::Memfds::new().file(bytes)?;
                life.keep("disk", file.as_fd())?;
                file
            }
        };
        Ok((life, Arc::new(Checked::new(Disk { file, bytes }))))
    }

    /// The descriptor that a process before kept by this name.
    pub fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let place = self.handed_over.iter().position(|(other, _)| other == name);
        place.map(|place| self.handed_over.swap_remove(place).1)
    }

    /// Keeps a descriptor for processes to come.
    ///
    /// # Errors
    /// Of the keeper.
    pub fn keep(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.store.keep(name, fd)?;
        self.store.settle(Duration::from_secs(30))
    }

    /// Tells that it listens, and returns when it is to end.
    ///
    /// # Errors
    /// When the keeper is gone, and those of the system.
    pub fn live(&self) -> Result<(), Box<dyn Error>> {
        self.store.tell("READY=1", Duration::from_secs(30))?;
        let log = self.socket.with_added_extension("lives");
        writeln!(
            OpenOptions::new().append(true).create(true).open(log)?,
            "{}",
            std::process::id()
        )?;
        let (keeper, stop) = (parent_id(), self.socket.with_added_extension("stop"));
        while !stop.exists() {
            if parent_id() != keeper {
                return Err("the keeper is gone".into());
            }
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// A RAM disk in a file in memory.
struct Disk {
    file: File,
    bytes: u64,
}

impl Disk {
    fn carry_out(&self, operation: Operation<'_>) -> io::Result<()> {
        let (offset, length) = operation.range();
        match operation {
            Operation::Read { into, .. } => self.file.read_exact_at(into, offset),
            // In two halves, so that a kill may come between them.
            Operation::Write { from, .. } => {
                let (first, second) = from.split_at(from.len() / 2);
                self.file.write_all_at(first, offset)?;
                sleep(Duration::from_micros(300));
                self.file.write_all_at(second, offset + first.len() as u64)
            }
            Operation::Discard { .. } | Operation::WriteZeroes { .. } => {
                self.file.write_all_at(&vec![0; length as usize], offset)
            }
            Operation::Flush => Ok(()),
        }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        let preferred_block = PAGE_SIZE as u32;
        Geometry { bytes: self.bytes, minimum_block: 1, preferred_block }
    }

    fn abilities(&self) -> Abilities {
        Abilities { flush: true, ..Abilities::default() }
    }

    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        self.carry_out(operation).map_err(|_| IoError::Failed)
    }

    fn extents(&self, _: Cpu, _: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let _ = visit(Extent { length, kind: ExtentKind::Data });
        Ok(())
    }
}
