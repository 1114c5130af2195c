//! Block devices on the files of a mount, and the file systems that rampack makes on them.
//!
//! To attach a loop device, to change it or to ask for its users, and to mount what is on it, a
//! thread waits for the mount that has its file. If that mount outlives this process
//! ([`crate::state`]), the thread could wait for an answer of a process that is dead: it would keep
//! the process from its end, so nobody would start another one, which alone could answer. So a
//! daemon whose mount outlives it has such work done by a process of its own, a helper. A helper
//! outlives the daemon as well, and gets its answers from the next one. That one serves the mount
//! first, then waits for the helpers that are left ([`HelpersEnd`]), and then looks which loop
//! devices there are.
//!
//! Each helper has the write end of a pipe, whose read end the service manager keeps: when it tells
//! the end, there is no helper any more.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rampack::control::{ControlError, Errno};
use rampack::fuse::{KnownLoop, LoopDevice, LoopOptions};
use rampack::host;
use serde::{Deserialize, Serialize};

use crate::failure::{failed, frontend_error};
use crate::filesystem::{self, Kind};
use crate::sys::{self, Unmount};

/// The subcommand of the helper; an [`Action`] in JSON follows it.
pub const COMMAND: &str = "loop-helper";
/// This program, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// How long helpers of the daemon before may take, once it is served what they wait for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A loop device on a file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct BlockFile {
    number: u32,
    file: PathBuf,
    known_as: Option<PathBuf>,
    made_node: bool,
    node: PathBuf,
}

/// What is done with loop devices.
#[derive(Serialize, Deserialize, Debug)]
enum Action {
    Attach { file: PathBuf, flush: bool, largest_kib: Option<u32> },
    Adopt { files: Vec<PathBuf> },
    Users { of: BlockFile },
    Resize { device: BlockFile },
    Detach { device: BlockFile, force: bool },
    Claim { device: BlockFile },
    SwapOn { path: PathBuf, priority: Option<u16> },
    MakeFileSystem { kind: String, device: PathBuf },
    Mount { kind: String, device: PathBuf, target: PathBuf },
    Unmount { target: PathBuf, lazily: bool },
}

/// What an action results in.
#[derive(Serialize, Deserialize, Debug)]
enum Answer {
    Done,
    Device(BlockFile),
    Devices(Vec<Option<BlockFile>>),
    Users(Vec<String>),
    Failed { errno: i32, message: String },
}

impl BlockFile {
    fn of(device: LoopDevice) -> BlockFile {
        let known = device.into_known();
        let node = known.path();
        let KnownLoop { number, backing: file, known_as, made_node } = known;
        BlockFile { number, file, known_as, made_node, node }
    }

    fn device(self) -> LoopDevice {
        let BlockFile { number, file: backing, known_as, made_node, .. } = self;
        LoopDevice::of_known(KnownLoop { number, backing, known_as, made_node })
    }

    /// Its node, `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.node
    }
}

/// Makes loop devices and changes them. Any thread may call every method.
pub struct Loops {
    /// What helpers have, if this process must not wait for its own mount.
    alive: Option<PipeWriter>,
}

/// Tells that there is no helper any more.
pub struct HelpersEnd(PipeReader);

/// A loop device that no other program can begin to use, until this is dropped.
pub struct Claim {
    _here: Option<File>,
    helper: Option<Child>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(helper) = &mut self.helper else { return };
        // The end of its input.
        drop(helper.stdin.take());
        let _ = helper.wait();
    }
}

impl Loops {
    /// This process waits itself.
    #[must_use]
    pub fn here() -> Loops {
        Loops { alive: None }
    }

    /// Does this process wait itself?
    #[must_use]
    pub fn are_here(&self) -> bool {
        self.alive.is_none()
    }

    /// Helpers wait. Whoever keeps the second value learns of their end.
    ///
    /// # Errors
    /// The error of the system.
    pub fn of_helpers() -> Result<(Loops, HelpersEnd), ControlError> {
        let (end, alive) = io::pipe().map_err(|error| failed("cannot make a pipe", &error))?;
        Ok((Loops { alive: Some(alive) }, HelpersEnd(end)))
    }

    /// Attaches a loop device to `file`. It passes flushes on to the file if `flush` is true, and
    /// its requests have at most `largest_kib` KiB, if that is given.
    ///
    /// # Errors
    /// Those of [`LoopDevice::attach`].
    pub fn attach(
        &self,
        file: &Path,
        flush: bool,
        largest_kib: Option<u32>,
    ) -> Result<BlockFile, ControlError> {
        match self.perform(&Action::Attach { file: file.into(), flush, largest_kib })? {
            Answer::Device(device) => Ok(device),
            _ => Err(other_question()),
        }
    }

    /// The loop device that a daemon before attached to each of `files`; None where there is none.
    /// A device has the size of its file then, which the file may have got just before that daemon
    /// died.
    ///
    /// # Errors
    /// The error of the kernel, or of a helper that cannot be started.
    pub fn adopt(&self, files: Vec<PathBuf>) -> Result<Vec<Option<BlockFile>>, ControlError> {
        let count = files.len();
        match self.perform(&Action::Adopt { files })? {
            Answer::Devices(devices) if devices.len() == count => Ok(devices),
            _ => Err(other_question()),
        }
    }

    /// Has the kernel swap to the block device `path`, which this process may serve.
    ///
    /// # Errors
    /// The error of swapon(2).
    pub fn swap_on(&self, path: &Path, priority: Option<u16>) -> Result<(), ControlError> {
        self.perform(&Action::SwapOn { path: path.into(), priority }).map(drop)
    }

    /// Makes a file system on the block device `device`, which is empty.
    ///
    /// # Errors
    /// Those of [`Kind::make`].
    pub fn make_file_system(&self, kind: &Kind, device: &Path) -> Result<(), ControlError> {
        let (kind, device) = (kind.name.to_owned(), device.into());
        self.perform(&Action::MakeFileSystem { kind, device }).map(drop)
    }

    /// Mounts the file system on the block device `device` at `target`.
    ///
    /// # Errors
    /// Those of [`Kind::mount`].
    pub fn mount(&self, kind: &Kind, device: &Path, target: &Path) -> Result<(), ControlError> {
        let (kind, device, target) = (kind.name.to_owned(), device.into(), target.into());
        self.perform(&Action::Mount { kind, device, target }).map(drop)
    }

    /// Unmounts a file system on one of the block devices.
    ///
    /// # Errors
    /// Those of [`filesystem::unmount`].
    pub fn unmount(&self, target: &Path, how: Unmount) -> Result<(), ControlError> {
        let lazily = how == Unmount::Lazily;
        self.perform(&Action::Unmount { target: target.into(), lazily }).map(drop)
    }

    /// The users of a device.
    ///
    /// # Errors
    /// As [`Loops::adopt`].
    pub fn users(&self, of: &BlockFile) -> Result<Vec<String>, ControlError> {
        match self.perform(&Action::Users { of: of.clone() })? {
            Answer::Users(users) => Ok(users),
            _ => Err(other_question()),
        }
    }

    /// Sets the size of a device to the size of its file.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn resize(&self, device: &BlockFile) -> Result<(), ControlError> {
        self.perform(&Action::Resize { device: device.clone() }).map(drop)
    }

    /// Detaches a device: see [`LoopDevice::detach`], and with `force`
    /// [`LoopDevice::force_detach`].
    ///
    /// # Errors
    /// As there.
    pub fn detach(&self, device: &BlockFile, force: bool) -> Result<(), ControlError> {
        self.perform(&Action::Detach { device: device.clone(), force }).map(drop)
    }

    /// Opens a device exclusively, and drops what the system cached of its contents.
    ///
    /// # Errors
    /// `EBUSY` if it is in use.
    pub fn claim(&self, device: &BlockFile) -> Result<Claim, ControlError> {
        let Some(alive) = &self.alive else {
            return claim(device).map(|file| Claim { _here: Some(file), helper: None });
        };
        let mut helper = start(alive, &Action::Claim { device: device.clone() })?;
        let answer = answer_of(&mut helper);
        // Its drop lets go of the device.
        let claim = Claim { _here: None, helper: Some(helper) };
        checked(answer?).map(|_| claim)
    }

    fn perform(&self, action: &Action) -> Result<Answer, ControlError> {
        let Some(alive) = &self.alive else { return perform(action) };
        let mut helper = start(alive, action)?;
        let answer = answer_of(&mut helper);
        let _ = helper.wait();
        checked(answer?)
    }
}

impl HelpersEnd {
    /// What a service manager keeps.
    #[must_use]
    pub fn descriptor(&self) -> &PipeReader {
        &self.0
    }

    /// Waits until no helper of the daemon before is left, with what a service manager kept.
    ///
    /// # Errors
    /// `ETIMEDOUT` after a while.
    pub fn wait(kept: OwnedFd) -> Result<(), ControlError> {
        let (end, has_ended) = channel();
        let mut pipe = File::from(kept);
        // Nobody writes to it: a read ends with the last helper.
        let read = move || {
            let _ = pipe.read_to_end(&mut Vec::new());
            let _ = end.send(());
        };
        let thread = thread::Builder::new().name("helpers-end".into()).spawn(read);
        thread.map_err(|error| failed("cannot start a thread", &error))?;
        has_ended.recv_timeout(PATIENCE).map_err(|_| {
            let message = "a process that the daemon before started, to change a loop device, does \
                           not end";
            ControlError::new(Errno(libc::ETIMEDOUT), message)
        })
    }
}

fn start(alive: &PipeWriter, action: &Action) -> Result<Child, ControlError> {
    let doing = |error: io::Error| failed("cannot start a helper for a loop device", &error);
    let text = serde_json::to_string(action).map_err(|error| doing(error.into()))?;
    let mut command = Command::new(PROGRAM);
    command.arg(COMMAND).arg(text).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(alive.try_clone().map_err(doing)?);
    // Ctrl-C goes to the daemon.
    command.process_group(0).spawn().map_err(doing)
}

/// The first line that a helper says.
fn answer_of(helper: &mut Child) -> Result<Answer, ControlError> {
    let mut line = String::new();
    let read = helper
        .stdout
        .take()
        .map(|said| io::BufRead::read_line(&mut io::BufReader::new(said), &mut line));
    match (read, serde_json::from_str(&line)) {
        (Some(Ok(_)), Ok(answer)) => Ok(answer),
        _ => Err(ControlError::new(Errno::EIO, "the helper for a loop device ended early")),
    }
}

fn other_question() -> ControlError {
    ControlError::new(Errno::EIO, "the helper for a loop device answered another question")
}

fn checked(answer: Answer) -> Result<Answer, ControlError> {
    match answer {
        Answer::Failed { errno, message } => Err(ControlError::new(Errno(errno), message)),
        answer => Ok(answer),
    }
}

/// The helper `rampack loop-helper ACTION`. It prints its answer on standard output.
///
/// # Errors
/// `EINVAL` for what is no action.
pub fn help(action: &str) -> Result<(), ControlError> {
    let action: Action = serde_json::from_str(action)
        .map_err(|error| ControlError::invalid(format!("what {COMMAND} is to do: {error}")))?;
    let (claimed, answer) = match &action {
        Action::Claim { device } => match claim(device) {
            Ok(file) => (Some(file), Ok(Answer::Done)),
            Err(error) => (None, Err(error)),
        },
        action => (None, perform(action)),
    };
    let answer = answer
        .unwrap_or_else(|error| Answer::Failed { errno: error.errno.0, message: error.message });
    // The daemon may be dead: what was done stays done.
    if let Ok(text) = serde_json::to_string(&answer) {
        let _ = writeln!(io::stdout(), "{text}");
    }
    if claimed.is_some() {
        // Until the daemon has done what it claimed the device for, or is dead.
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    Ok(())
}

fn perform(action: &Action) -> Result<Answer, ControlError> {
    let error = |error| frontend_error(&error);
    Ok(match action {
        Action::Attach { file, flush, largest_kib } => {
            let (flush, largest_kib) = (*flush, *largest_kib);
            let options = LoopOptions { flush, largest_kib, ..LoopOptions::default() };
            let device = LoopDevice::attach(file, options).map_err(error)?;
            Answer::Device(BlockFile::of(device))
        }
        Action::Adopt { files } => {
            let devices = files.iter().map(|file| {
                let Some(device) = LoopDevice::adopt(file) else { return Ok(None) };
                let resized = device.refresh_size();
                let adopted = BlockFile::of(device);
                resized.map(|()| Some(adopted))
            });
            Answer::Devices(devices.collect::<Result<_, _>>().map_err(error)?)
        }
        Action::Users { of } => {
            let device = of.clone().device();
            let users = device.in_use().iter().map(ToString::to_string).collect();
            drop(device.into_known());
            Answer::Users(users)
        }
        Action::Resize { device } => {
            let device = device.clone().device();
            let resized = device.refresh_size();
            drop(device.into_known());
            resized.map_err(error)?;
            Answer::Done
        }
        Action::Detach { device, force } => {
            let mut device = device.clone().device();
            let detached = match force {
                true => device.force_detach().map(drop),
                false => device.detach(),
            };
            drop(device.into_known());
            detached.map_err(error)?;
            Answer::Done
        }
        Action::Claim { device } => {
            claim(device)?;
            Answer::Done
        }
        Action::SwapOn { path, priority } => {
            let what = || format!("cannot swap on {}", path.display());
            host::swap_on(path, *priority).map_err(|error| failed(what(), &error))?;
            Answer::Done
        }
        Action::MakeFileSystem { kind, device } => {
            filesystem::kind(kind)?.make(device)?;
            Answer::Done
        }
        Action::Mount { kind, device, target } => {
            filesystem::kind(kind)?.mount(device, target)?;
            Answer::Done
        }
        Action::Unmount { target, lazily } => {
            let how = if *lazily { Unmount::Lazily } else { Unmount::WhenUnused };
            filesystem::unmount(target, how)?;
            Answer::Done
        }
    })
}

fn claim(device: &BlockFile) -> Result<File, ControlError> {
    let path = device.path();
    let claim = || -> io::Result<File> {
        let claimed = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path)?;
        sys::flush_buffers(&claimed)?;
        Ok(claimed)
    };
    claim().map_err(|e| failed(format!("cannot take {}", path.display()), &e))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_action_reaches_the_helper_as_it_is() {
        let device = BlockFile {
            number: 7,
            file: "/run/r/files/zram0".into(),
            known_as: Some("/run/r/files/zram0".into()),
            made_node: true,
            node: "/dev/loop7".into(),
        };
        let text = serde_json::to_string(&Action::Resize { device: device.clone() }).unwrap();
        let Action::Resize { device: read } = serde_json::from_str(&text).unwrap() else {
            panic!("{text}");
        };
        assert_eq!(read, device);
        assert_eq!(BlockFile::of(device.clone().device()), device);
        assert_eq!(help("{").unwrap_err().errno, Errno::EINVAL);
    }

    #[test]
    fn helpers_have_ended_when_none_has_the_pipe() {
        let (loops, end) = Loops::of_helpers().unwrap();
        let helper = loops.alive.as_ref().unwrap().try_clone().unwrap();
        drop(loops);
        let begun = Instant::now();
        let waiting = thread::spawn(move || HelpersEnd::wait(end.0.into()));
        thread::sleep(Duration::from_millis(30));
        assert!(!waiting.is_finished());
        drop(helper);
        waiting.join().unwrap().unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }
}
