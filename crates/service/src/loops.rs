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

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use fuse::{self, Hold, KnownLoop, LoopDevice, LoopOptions};
use host::{self, Caller, Unmount, errno};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::{failed, frontend_error};
use crate::filesystem::{self, Kind};

/// The subcommand of the helper; an [`Action`] in JSON follows it.
pub const COMMAND: &str = "loop-helper";
/// This program, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// How long helpers of the daemon before may take, once it is served what they wait for.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a program such as udev, which looks at a change, may have a device open.
pub const LOOKING: Duration = Duration::from_secs(1);
/// The first pause between two tries; each is twice as long as the one before.
pub const PAUSE: Duration = Duration::from_millis(5);

/// A path as an action has it: text, whatever bytes it has.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(from = "String", into = "String")]
struct Name(PathBuf);

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name(machine::path_of(&text))
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        machine::text_of(&name.0)
    }
}

impl From<&Path> for Name {
    fn from(path: &Path) -> Name {
        Name(path.into())
    }
}

/// A loop device on a file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct BlockFile {
    number: u32,
    file: Name,
    known_as: Option<Name>,
    /// Of what was made: the device, and its node.
    made: (bool, bool),
    node: Name,
}

/// What is done with loop devices.
#[derive(Serialize, Deserialize, Debug)]
enum Action {
    Attach { file: Name, flush: bool, limits: [Option<u32>; 2], number: Option<u32> },
    Adopt { files: Vec<Name> },
    Users { of: BlockFile, now: bool },
    Resize { device: BlockFile },
    Detach { device: BlockFile, force: bool },
    SwapOn { path: Name, priority: Option<u16>, discards: bool },
    MakeFileSystem { kind: String, device: Name },
    Mount { kind: String, device: Name, target: Name },
    Unmount { target: Name, lazily: bool },
}

/// What an action results in, or the number and the text of its error.
type Answer<T> = Result<T, (i32, String)>;

/// The loop device that a daemon before attached to a file, if there is one; an error if that is
/// not known.
pub type Adopted = Result<Option<BlockFile>, ControlError>;

impl BlockFile {
    fn of(device: LoopDevice) -> BlockFile {
        let known = device.into_known();
        let node = Name(known.path());
        let KnownLoop { number, backing, known_as, made } = known;
        let (file, known_as) = (Name(backing), known_as.map(Name));
        BlockFile { number, file, known_as, made: (made.device, made.node), node }
    }

    fn device(self) -> LoopDevice {
        let BlockFile { number, file: Name(backing), known_as, made: (device, node), .. } = self;
        let (known_as, made) = (known_as.map(|name| name.0), fuse::Made { device, node });
        LoopDevice::of_known(KnownLoop { number, backing, known_as, made })
    }

    /// Its node, `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.node.0
    }

    /// The N of `/dev/loopN`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Makes loop devices and changes them. Any thread may call every method.
pub struct Loops {
    /// What helpers have, if this process must not wait for its own mount.
    alive: Option<PipeWriter>,
}

/// Tells that there is no helper any more.
pub struct HelpersEnd(PipeReader);

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

    /// Attaches a loop device to `file`.
    ///
    /// # Errors
    /// Those of [`LoopDevice::attach`].
    pub fn attach(&self, file: &Path, options: LoopOptions) -> Result<BlockFile, ControlError> {
        let LoopOptions { flush, largest_kib, depth, number, .. } = options;
        let limits = [largest_kib, depth];
        self.perform(&Action::Attach { file: file.into(), flush, limits, number })
    }

    /// The loop device that a daemon before attached to each of `files`; None where there is none,
    /// and an error where that is not known. A device has the size of its file then, which the file
    /// may have got just before that daemon died.
    ///
    /// # Errors
    /// That of a helper that cannot be started.
    pub fn adopt(&self, files: Vec<PathBuf>) -> Result<Vec<Adopted>, ControlError> {
        let adopt = Action::Adopt { files: files.into_iter().map(Name).collect() };
        let found: Vec<Answer<Option<BlockFile>>> = self.perform(&adopt)?;
        let error = |(errno, message)| ControlError::new(Errno(errno), message);
        Ok(found.into_iter().map(|it| it.map_err(error)).collect())
    }

    /// Has the kernel swap to the block device `path`, which this process may serve: see
    /// [`host::swap_on`]. Returns the thread that made the call.
    ///
    /// # Errors
    /// The error of swapon(2).
    pub fn swap_on(
        &self,
        path: &Path,
        priority: Option<u16>,
        discards: bool,
    ) -> Result<Caller, ControlError> {
        let caller = self.perform(&Action::SwapOn { path: path.into(), priority, discards });
        caller.map(|(process, thread)| Caller { process, thread })
    }

    /// Makes a file system on the block device `device`, which is empty.
    ///
    /// # Errors
    /// Those of [`Kind::make`].
    pub fn make_file_system(&self, kind: &Kind, device: &Path) -> Result<(), ControlError> {
        let (kind, device) = (kind.name.to_owned(), device.into());
        self.perform(&Action::MakeFileSystem { kind, device })
    }

    /// Mounts the file system on the block device `device` at `target`.
    ///
    /// # Errors
    /// Those of [`Kind::mount`].
    pub fn mount(&self, kind: &Kind, device: &Path, target: &Path) -> Result<(), ControlError> {
        let (kind, device, target) = (kind.name.to_owned(), device.into(), target.into());
        self.perform(&Action::Mount { kind, device, target })
    }

    /// Unmounts a file system on one of the block devices.
    ///
    /// # Errors
    /// Those of [`filesystem::unmount`].
    pub fn unmount(&self, target: &Path, how: Unmount) -> Result<(), ControlError> {
        let lazily = how == Unmount::Lazily;
        self.perform(&Action::Unmount { target: target.into(), lazily })
    }

    /// What stands on a device, by name; empty if nothing does. A program that only reads or writes
    /// it does not count.
    ///
    /// # Errors
    /// As [`Loops::adopt`].
    pub fn users(&self, of: &BlockFile) -> Result<Vec<String>, ControlError> {
        self.perform(&Action::Users { of: of.clone(), now: true })
    }

    /// The users of a device that others have, for a message: see [`LoopDevice::users`].
    ///
    /// # Errors
    /// As [`Loops::adopt`].
    pub fn names(&self, of: &BlockFile) -> Result<Vec<String>, ControlError> {
        self.perform(&Action::Users { of: of.clone(), now: false })
    }

    /// Sets the size of a device to the size of its file.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn resize(&self, device: &BlockFile) -> Result<(), ControlError> {
        self.perform(&Action::Resize { device: device.clone() })
    }

    /// Detaches a device, unless others have it: see [`LoopDevice::try_detach`]. With `force` see
    /// [`LoopDevice::force_detach`].
    ///
    /// # Errors
    /// As there.
    pub fn detach(&self, device: &BlockFile, force: bool) -> Result<Option<Hold>, ControlError> {
        let detach = Action::Detach { device: device.clone(), force };
        let held: Option<bool> = self.perform(&detach)?;
        Ok(held.map(|is_open| if is_open { Hold::Open } else { Hold::Claimed }))
    }

    /// As [`Loops::detach`] without force. A program such as udev, which looks at a change, may
    /// have it open for a while.
    ///
    /// # Errors
    /// `EBUSY`; the message names the users, and nothing has changed then.
    pub fn detach_patiently(&self, device: &BlockFile) -> Result<(), ControlError> {
        let end = Instant::now() + LOOKING;
        let mut pause = PAUSE;
        loop {
            match self.detach(device, false)? {
                None => return Ok(()),
                Some(Hold::Open) if Instant::now() < end => thread::sleep(pause),
                Some(_) => {
                    let (path, users) = (device.path().display(), self.names(device)?);
                    let message = format!("{path} is in use: {}", users.join(", "));
                    return Err(ControlError::new(Errno::EBUSY, message));
                }
            }
            pause *= 2;
        }
    }

    fn perform<T: DeserializeOwned>(&self, action: &Action) -> Result<T, ControlError> {
        let answer = match &self.alive {
            None => perform(action)?,
            Some(alive) => {
                let mut helper = start(alive, action)?;
                let answer = answer_of(&mut helper);
                let _ = helper.wait();
                answer?.map_err(|(errno, message)| ControlError::new(Errno(errno), message))?
            }
        };
        serde_json::from_value(answer).map_err(|_| {
            let message = "the helper for a loop device answered another question";
            ControlError::new(Errno::EIO, message)
        })
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
            ControlError::new(Errno(errno::ETIMEDOUT), message)
        })
    }
}

fn start(alive: &PipeWriter, action: &Action) -> Result<Child, ControlError> {
    let doing = |error: io::Error| failed("cannot start a helper for a loop device", &error);
    let text = serde_json::to_string(action).map_err(|error| doing(error.into()))?;
    let mut command = Command::new(PROGRAM);
    command.arg(COMMAND).arg(text).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(alive.try_clone().map_err(doing)?);
    // Ctrl-C goes to the daemon.
    command.process_group(0).spawn().map_err(doing)
}

/// The first line that a helper says.
fn answer_of(helper: &mut Child) -> Result<Answer<Value>, ControlError> {
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

/// The helper `rampack loop-helper ACTION`. It prints its answer on standard output.
///
/// # Errors
/// `EINVAL` for what is no action.
pub(crate) fn help(action: &str) -> Result<(), ControlError> {
    let action: Action = serde_json::from_str(action)
        .map_err(|error| ControlError::invalid(format!("what {COMMAND} is to do: {error}")))?;
    let answer: Answer<Value> = perform(&action).map_err(in_answer);
    // The daemon may be dead: what was done stays done.
    if let Ok(text) = serde_json::to_string(&answer) {
        let _ = writeln!(io::stdout(), "{text}");
    }
    Ok(())
}

/// An error as an answer has it.
fn in_answer(error: ControlError) -> (i32, String) {
    (error.errno.0, error.message)
}

fn perform(action: &Action) -> Result<Value, ControlError> {
    let error = |error| frontend_error(&error);
    let result = match action {
        Action::Attach { file, flush, limits: [largest_kib, depth], number } => {
            let (flush, number, largest_kib, depth) = (*flush, *number, *largest_kib, *depth);
            let options = LoopOptions { flush, largest_kib, depth, number, ..Default::default() };
            let device = LoopDevice::attach(&file.0, options).map_err(error)?;
            json!(BlockFile::of(device))
        }
        Action::Adopt { files } => {
            let adopt = |file: &Name| -> Result<_, fuse::Error> {
                let Some(device) = LoopDevice::adopt(&file.0)? else { return Ok(None) };
                let resized = device.refresh_size();
                let adopted = BlockFile::of(device);
                resized.map(|()| Some(adopted))
            };
            let adopt = |file| adopt(file).map_err(|it| in_answer(error(it)));
            json!(files.iter().map(adopt).collect::<Vec<Answer<Option<BlockFile>>>>())
        }
        Action::Users { of, now } => {
            let device = of.clone().device();
            let users = if *now { device.in_use() } else { device.users() };
            let users: Vec<String> = users.iter().map(ToString::to_string).collect();
            drop(device.into_known());
            json!(users)
        }
        Action::Resize { device } => {
            let device = device.clone().device();
            let resized = device.refresh_size();
            drop(device.into_known());
            json!(resized.map_err(error)?)
        }
        Action::Detach { device, force } => {
            let mut device = device.clone().device();
            let detached = match force {
                true => device.force_detach().map(|_| None),
                false => device.try_detach(),
            };
            drop(device.into_known());
            json!(detached.map_err(error)?.map(|hold| hold == Hold::Open))
        }
        Action::SwapOn { path, priority, discards } => {
            let what = || format!("cannot swap on {}", path.0.display());
            let on = host::swap_on(&path.0, *priority, *discards);
            on.map_err(|error| failed(what(), &error))?;
            let Caller { process, thread } = Caller::this();
            json!((process, thread))
        }
        Action::MakeFileSystem { kind, device } => {
            json!(filesystem::kind(kind)?.make(&device.0)?)
        }
        Action::Mount { kind, device, target } => {
            json!(filesystem::kind(kind)?.mount(&device.0, &target.0)?)
        }
        Action::Unmount { target, lazily } => {
            let how = if *lazily { Unmount::Lazily } else { Unmount::WhenUnused };
            json!(filesystem::unmount(&target.0, how)?)
        }
    };
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn an_action_reaches_the_helper_as_it_is() {
        // The name of a root may be of any bytes.
        let file = Name(PathBuf::from(OsStr::from_bytes(b"/run/r\xff\n/files/zram0")));
        let (known_as, node) = (Some(file.clone()), Path::new("/dev/loop7").into());
        let device = BlockFile { number: 7, file, known_as, made: (false, true), node };
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
