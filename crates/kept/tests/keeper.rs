//! A keeper and daemons that die.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kept::{Backoff, Ended, Keeper};
use testkit::{CountingHeap, TempDir};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

const PATIENCE: Duration = Duration::from_secs(60);

const FAST: Backoff =
    Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(4), tries: 5 };

fn program() -> PathBuf {
    let mut path = std::env::current_exe().expect("the path of this test");
    path.pop();
    path.pop();
    path.push("examples/kept_child");
    assert!(path.exists(), "{}: build it with 'cargo build --examples'", path.display());
    path
}

/// A keeper of the daemon that follows `script`.
fn keeper(root: &Path, script: &str, above: Option<OsString>) -> Keeper {
    let arguments =
        vec!["kept_child".into(), root.join("log").into_os_string(), OsString::from(script)];
    Keeper::new(&program(), arguments, FAST, above).unwrap()
}

fn lives(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("log")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn what_a_dead_daemon_gave_comes_back_by_name() {
    let root = TempDir::new();
    let mut keeper = keeper(root.path(), "die,die,die,end", None);
    assert_eq!(keeper.run().unwrap(), Ended::Exited(0));
    let expected = [
        "",
        "life-0=life-0",
        "life-0=life-0 life-1=life-1",
        "life-0=life-0 life-1=life-1 life-2=life-2",
    ];
    assert_eq!(lives(root.path()), expected);
}

#[test]
fn a_name_may_have_several_descriptors_and_is_forgotten_as_a_whole() {
    let root = TempDir::new();
    let mut keeper = keeper(root.path(), "twice,die,forget,end", None);
    assert_eq!(keeper.run().unwrap(), Ended::Exited(0));
    let both = "same=same same=same";
    let expected =
        ["".into(), both.to_owned(), format!("{both} life-1=life-1"), "life-1=life-1".into()];
    assert_eq!(lives(root.path()), expected);
}

#[test]
fn a_daemon_that_replaces_itself_has_its_descriptors_and_its_number() {
    let root = TempDir::new();
    let mut keeper = keeper(root.path(), "replace,die,end", None);
    assert_eq!(keeper.run().unwrap(), Ended::Exited(0));
    let process = fs::read_to_string(root.path().join("replaced")).unwrap();
    let lives = lives(root.path());
    assert_eq!(lives[1], format!("life-0=life-0 replaced={process} replaced"));
    // What only the process had ended with it; what it gave to the keeper did not.
    assert_eq!(lives[2], "life-0=life-0 life-1=life-1");
}

#[test]
fn there_is_room_for_so_many() {
    let root = TempDir::new();
    let mut keeper = keeper(root.path(), "many,end", None);
    assert_eq!(keeper.run().unwrap(), Ended::Exited(0));
    let expected: Vec<String> = (0..256).map(|n| format!("n{n}=n{n}")).collect();
    assert_eq!(lives(root.path())[1], expected.join(" "));
}

#[test]
fn only_the_daemon_is_heard() {
    let root = TempDir::new();
    let mut keeper = keeper(root.path(), "stranger,end", None);
    assert_eq!(keeper.run().unwrap(), Ended::Exited(0));
    assert_eq!(lives(root.path())[1], "own=own");
}

#[test]
fn what_the_keeper_was_given_is_kept_as_well() {
    let root = TempDir::new();
    let mut keeper = keeper(root.path(), "die,end", None);
    fs::write(root.join("given"), "given").unwrap();
    let given = || File::open(root.join("given")).unwrap().into();
    keeper.keep("socket", given()).unwrap();
    assert!(keeper.keep("a:b", given()).is_err());
    assert_eq!(keeper.run().unwrap(), Ended::Exited(0));
    assert_eq!(lives(root.path()), ["socket=given", "socket=given life-0=life-0"]);
}

#[test]
fn what_the_keeper_was_given_takes_room_of_the_daemon() {
    let root = TempDir::new();
    let mut keeper = keeper(root.path(), "fill,end", None);
    fs::write(root.join("given"), "given").unwrap();
    keeper.keep("socket", File::open(root.join("given")).unwrap().into()).unwrap();
    assert_eq!(keeper.run().unwrap(), Ended::Exited(0));
    let lives = lives(root.path());
    assert!(lives[1].starts_with("socket=given n1=n1 ") && lives[1].ends_with(" last=last"));
    assert_eq!(lives[1].split(' ').count(), 256);
}

#[test]
fn a_daemon_that_ends_on_purpose_is_not_started_again() {
    for (script, ended) in [("end", 0), ("refuse", 2), ("stop", 4), ("die,stop", 4)] {
        let root = TempDir::new();
        let how = keeper(root.path(), script, None).run().unwrap();
        assert_eq!(how, Ended::Exited(ended), "{script}");
        assert_eq!(lives(root.path()).len(), script.split(',').count(), "{script}");
    }
}

#[test]
fn a_daemon_that_only_dies_is_given_up_unless_something_is_kept() {
    // It was ready once, keeps nothing any more, and is then refused again and again.
    let root = TempDir::new();
    let mut first = keeper(root.path(), "twice,forget,refuse,refuse,refuse,refuse,refuse", None);
    assert_eq!(first.run().unwrap(), Ended::Exited(2));
    assert_eq!(lives(root.path()).len(), 5);
    // With something kept it goes on.
    let root = TempDir::new();
    let script = format!("die,{}end", "refuse,".repeat(12));
    assert_eq!(keeper(root.path(), &script, None).run().unwrap(), Ended::Exited(0));
    assert_eq!(lives(root.path()).len(), 14);
}

#[test]
fn a_program_that_is_not_there_is_told() {
    let missing = Path::new("/nonexistent/rampack");
    let mut keeper = Keeper::new(missing, vec!["rampack".into()], FAST, None).unwrap();
    assert_eq!(keeper.run().unwrap(), Ended::Exited(127));
}

#[test]
fn the_heap_is_not_called() {
    let root = TempDir::new();
    let script = format!("twice,many,{}forget,stranger,end", "refuse,".repeat(8));
    let mut keeper = keeper(root.path(), &script, None);
    let mut how = None;
    let calls = CountingHeap::calls_of(|| how = keeper.run().ok());
    assert_eq!((how, calls), (Some(Ended::Exited(0)), 0));
    assert_eq!(lives(root.path()).len(), script.split(',').count());
}

#[test]
fn the_service_manager_above_hears_the_rest() {
    let root = TempDir::new();
    let path = root.join("above");
    let above = UnixDatagram::bind(&path).unwrap();
    above.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut keeper = keeper(root.path(), "die,stop", Some(path.into_os_string()));
    assert_eq!(keeper.run().unwrap(), Ended::Exited(4));
    for expected in ["READY=1\nSTATUS=up", "READY=1", "STOPPING=1"] {
        let mut text = [0; 64];
        let length = above.recv(&mut text).unwrap();
        assert_eq!(std::str::from_utf8(&text[..length]).unwrap(), expected);
    }
}

/// A keeper in a process of its own, whose daemon waits. Dropping it kills both.
struct Kept {
    root: TempDir,
    child: Child,
}

impl Kept {
    fn start(script: &str) -> Kept {
        // Whoever runs the tests may ignore a signal, as nohup does.
        Kept::with(&["--default-signal"], script)
    }

    /// `words` are for env(1): which signals it ignores, and variables.
    fn with(words: &[&str], script: &str) -> Kept {
        let root = TempDir::new();
        let mut command = Command::new("env");
        command.args(words).arg(program());
        command.arg("keep").arg(root.join("log")).arg(script).stderr(Stdio::null());
        Kept { child: command.spawn().unwrap(), root }
    }

    /// Waits for a daemon that is ready; its process number.
    fn daemon(&self) -> i32 {
        let path = self.root.join("waits");
        let end = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&path).unwrap_or_default();
            if let Ok(number) = text.parse() {
                fs::remove_file(&path).unwrap();
                return number;
            }
            assert!(Instant::now() < end, "the daemon does not start");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn keeper(&self) -> i32 {
        self.child.id() as i32
    }

    /// Has the daemon die and be told to end: the keeper sees both at once.
    fn dies_and_is_told_to_end(&self) {
        let daemon = self.daemon();
        for (process, signal) in [
            (self.keeper(), libc::SIGSTOP),
            (daemon, libc::SIGKILL),
            (self.keeper(), libc::SIGTERM),
            (self.keeper(), libc::SIGCONT),
        ] {
            kill(process, signal);
        }
    }

    /// Waits for the keeper's end; its exit code, and what its daemons were handed over.
    fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let end = Instant::now() + PATIENCE;
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(Instant::now() < end, "it does not end");
            thread::sleep(Duration::from_millis(1));
        };
        (code, lives(self.root.path()))
    }

    #[track_caller]
    fn ends(self, code: i32, daemons: usize) {
        let (ended, lives) = self.ended();
        assert_eq!((ended, lives.len()), (Some(code), daemons));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill(process: i32, signal: i32) {
    // SAFETY: two numbers; the process is ours and is waited for later.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

#[test]
fn a_terminal_that_is_gone_ends_neither() {
    let kept = Kept::start("wait,wait,end");
    let first = kept.daemon();
    for process in [kept.keeper(), first, kept.keeper()] {
        kill(process, libc::SIGHUP);
    }
    // Also between two lives.
    kill(first, libc::SIGKILL);
    kill(kept.keeper(), libc::SIGHUP);
    let second = kept.daemon();
    assert_ne!(first, second);
    kill(second, libc::SIGKILL);
    kept.ends(0, 3);
}

#[test]
fn a_signal_that_was_ignored_stays_so() {
    let kept = Kept::with(&["--ignore-signal=INT,QUIT"], "wait,end");
    let daemon = kept.daemon();
    for process in [kept.keeper(), daemon] {
        kill(process, libc::SIGINT);
        kill(process, libc::SIGQUIT);
    }
    kill(daemon, libc::SIGKILL);
    kept.ends(0, 2);
}

#[test]
fn nobody_else_can_reach_the_keeper() {
    let root = TempDir::new();
    let _keeper = keeper(root.path(), "end", None);
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let own = format!("rampack-keep-{}", std::process::id());
    assert!(!sockets.contains(&own), "its socket has a name");
}

#[test]
fn signals_are_passed_on_and_end_both() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let kept = Kept::start("wait");
        let daemon = kept.daemon();
        kill(kept.keeper(), signal);
        kept.ends(128 + signal, 1);
        assert!(!Path::new(&format!("/proc/{daemon}")).exists());
    }
}

#[test]
fn a_signal_to_a_daemon_that_is_dead_is_for_the_next_one() {
    let kept = Kept::start("wait,wait,wait,end");
    kept.dies_and_is_told_to_end();
    kept.ends(128 + libc::SIGTERM, 2);
}

#[test]
fn a_signal_between_two_daemons_is_for_the_next_one() {
    let kept = Kept::with(&["--default-signal", "KEPT_PAUSE=300"], "wait,wait,end");
    kill(kept.daemon(), libc::SIGKILL);
    let children = format!("/proc/{0}/task/{0}/children", kept.keeper());
    while !fs::read_to_string(&children).unwrap().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    kill(kept.keeper(), libc::SIGTERM);
    kept.ends(128 + libc::SIGTERM, 2);
}

#[test]
fn a_daemon_that_does_not_listen_yet_dies_of_a_signal_and_loses_nothing() {
    let kept = Kept::start("wait,deaf,wait,end");
    kill(kept.daemon(), libc::SIGKILL);
    kept.ends(128 + libc::SIGTERM, 3);
}

#[test]
fn a_program_that_replaced_itself_is_told_to_end_again() {
    let kept = Kept::start("busy,wait,end");
    kept.ends(128 + libc::SIGTERM, 2);
}

#[test]
fn a_daemon_that_is_never_ready_after_a_signal_is_given_up() {
    let kept = Kept::start(&format!("wait,{}end", "refuse,".repeat(12)));
    kept.dies_and_is_told_to_end();
    kept.ends(2, 5);
}

#[test]
fn a_daemon_that_is_killed_again_and_again_comes_back_each_time() {
    let kept = Kept::start(&format!("{}end", "wait,".repeat(10)));
    let mut last = 0;
    for _ in 0..10 {
        let daemon = kept.daemon();
        assert_ne!(daemon, last);
        last = daemon;
        kill(daemon, libc::SIGKILL);
    }
    let (code, lives) = kept.ended();
    assert_eq!(code, Some(0));
    // Each life kept one more file under the same name.
    assert_eq!(lives.last().unwrap(), &["kept=kept"; 10].join(" "));
}
