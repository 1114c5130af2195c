use std::collections::BTreeSet;
use std::ffi::c_long;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::thread;

use super::calls::{GROUPS, When};
use super::*;

/// Calls the system with small numbers as arguments, which are no valid addresses.
fn call(number: c_long, arguments: [c_long; 3]) -> i32 {
    let [a, b, c] = arguments;
    // SAFETY: none of the calls of these tests has an effect with these arguments: addresses are
    // null or not mapped, and descriptors are not open.
    match unsafe { libc::syscall(number, a, b, c, 0, 0, 0) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

/// The calls that a program needs that takes over a thread, and no thread that serves.
const TABOO: &[(&str, c_long)] = &[
    ("openat", libc::SYS_openat),
    ("openat2", libc::SYS_openat2),
    ("unlinkat", libc::SYS_unlinkat),
    ("renameat2", libc::SYS_renameat2),
    ("mknodat", libc::SYS_mknodat),
    ("fchmodat", libc::SYS_fchmodat),
    ("fchownat", libc::SYS_fchownat),
    ("linkat", libc::SYS_linkat),
    ("symlinkat", libc::SYS_symlinkat),
    ("execve", libc::SYS_execve),
    ("execveat", libc::SYS_execveat),
    ("socket", libc::SYS_socket),
    ("connect", libc::SYS_connect),
    ("bind", libc::SYS_bind),
    ("sendmsg", libc::SYS_sendmsg),
    ("recvmsg", libc::SYS_recvmsg),
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("kill", libc::SYS_kill),
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("fsopen", libc::SYS_fsopen),
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    ("chroot", libc::SYS_chroot),
    ("setuid", libc::SYS_setuid),
    ("setresuid", libc::SYS_setresuid),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    ("munlockall", libc::SYS_munlockall),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("memfd_create", libc::SYS_memfd_create),
    ("init_module", libc::SYS_init_module),
    ("reboot", libc::SYS_reboot),
    ("keyctl", libc::SYS_keyctl),
    ("setpriority", libc::SYS_setpriority),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
];

/// Runs `test` on a thread with the role, in a process whose sandbox is `On`.
fn on_a_thread<R: Send>(role: Role, test: impl FnOnce() -> R + Send) -> R {
    choose(Sandbox::On).unwrap();
    thread::scope(|scope| {
        let run = || {
            enter(role).unwrap();
            test()
        };
        scope.spawn(run).join().unwrap()
    })
}

/// A front end passes memory and signals, and is given memory: what came is checked.
const PASSES: &[&str] = &["sendmsg", "recvmsg", "memfd_create"];

#[test]
fn no_role_has_a_call_that_takes_over_a_machine() {
    for role in Role::ALL {
        let refused: Vec<_> = on_a_thread(role, || {
            TABOO.iter().map(|(_, number)| call(*number, [0, 0, 0])).collect()
        });
        for ((name, _), errno) in TABOO.iter().zip(refused) {
            if role == Role::VhostFront && PASSES.contains(name) {
                continue;
            }
            assert_eq!(errno, libc::EPERM, "{name} by {role:?}");
        }
    }
}

/// Without a filter the same calls have other errors: the test above can fail.
#[test]
fn a_thread_without_a_role_may_try_the_same_calls() {
    let harmless = ["openat", "execve", "socket", "ptrace", "mknodat", "io_uring_setup", "connect"];
    for (name, number) in TABOO.iter().filter(|(name, _)| harmless.contains(name)) {
        let path = -1;
        assert_ne!(call(*number, [path, path, path]), libc::EPERM, "{name}");
    }
}

#[test]
fn what_a_call_may_do_depends_on_its_arguments() {
    const BAD: c_long = -1;
    let this = c_long::from(std::process::id());
    on_a_thread(Role::NbdClient, || {
        let execute = c_long::from(libc::PROT_EXEC | libc::PROT_READ);
        assert_eq!(call(libc::SYS_mmap, [0, 4096, execute]), libc::EPERM);
        assert_eq!(call(libc::SYS_mprotect, [0, 4096, execute]), libc::EPERM);
        assert_eq!(call(libc::SYS_mprotect, [0, 0, libc::PROT_READ.into()]), 0);
        // A process, as fork(2) asks for one.
        assert_eq!(call(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0]), libc::EPERM);
        assert_eq!(call(libc::SYS_clone3, [0, 0, 0]), libc::ENOSYS);
        let dumpable = libc::PR_SET_DUMPABLE.into();
        assert_eq!(call(libc::SYS_prctl, [dumpable, 1, 0]), libc::EPERM);
        // TIOCSTI puts text into the terminal's input.
        assert_eq!(call(libc::SYS_ioctl, [BAD, libc::TIOCSTI as c_long, 0]), libc::EPERM);
        assert_eq!(call(libc::SYS_ioctl, [BAD, 0x1277, 0]), libc::EBADF);
        assert_eq!(call(libc::SYS_fcntl, [BAD, libc::F_SETFL.into(), 0]), libc::EPERM);
        assert_eq!(call(libc::SYS_fcntl, [BAD, libc::F_GETFL.into(), 0]), libc::EBADF);
        assert_eq!(call(libc::SYS_tgkill, [this + 1, this + 1, 0]), libc::EPERM);
        // The upper half of the number must not matter, and 64 bits of a 32-bit number neither.
        assert_eq!(call(libc::SYS_ioctl, [BAD, (1 << 32) | 0x1277, 0]), libc::EBADF);
    });
}

/// Allocates, waits, writes to what is open, starts threads, panics and ends.
#[test]
fn a_thread_with_a_role_still_works() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    for role in Role::ALL {
        let bytes = on_a_thread(role, || {
            let large = std::hint::black_box(vec![1u8; 8 << 20]);
            thread::sleep(std::time::Duration::from_millis(1));
            writer.write_all(&large[..4]).unwrap();
            assert!(std::panic::catch_unwind(|| panic!("this is part of the test")).is_err());
            let started = thread::Builder::new().name("inner".into()).spawn(|| {
                fs::read("/proc/self/status")
                    .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            });
            let may = role.groups().iter().any(|group| group.name == "threads");
            assert_eq!(started.is_ok(), may, "{role:?}");
            if let Ok(started) = started {
                assert!(started.join().unwrap(), "{role:?}: an inner thread has the same filter");
            }
            large.len()
        });
        assert_eq!(bytes, 8 << 20);
        reader.read_exact(&mut [0; 4]).unwrap();
    }
}

/// Every thread with a role may be left to give memory back, by a zone that many threads share.
/// Memory that outlives the process is given back by a call of its own.
#[test]
fn threads_that_handle_memory_give_kept_memory_back() {
    for role in Role::ALL {
        if matches!(role, Role::FuseTree | Role::SwapLog | Role::OomKiller) {
            // They hand everything over, or take nothing.
            continue;
        }
        let (page, memfds) = (crate::page_bytes() as usize, crate::Memfds::new());
        let region = memfds.region("sandbox", 2 * page).unwrap();
        region.commit(0, 2 * page).unwrap();
        region.populate(0, 2 * page);
        let blocks = || memfds.regions()[0].file.metadata().unwrap().blocks();
        let before = blocks();
        on_a_thread(role, || region.release(0, page));
        assert!(blocks() < before, "{role:?}: {before} blocks stayed");
    }
}

#[test]
fn what_is_open_stays_open_and_nothing_else_can_be_opened() {
    let path = std::env::temp_dir().join(format!("rampack-sandbox-{}", std::process::id()));
    fs::write(&path, b"contents").unwrap();
    let mut file = File::open(&path).unwrap();
    let text = on_a_thread(Role::FuseDisk, || {
        assert_eq!(File::open(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            TcpListener::bind("127.0.0.1:0").unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        let mut text = String::new();
        // `read` and not `read_to_string`, which asks for the size of the file first.
        let mut bytes = [0; 64];
        let length = file.read(&mut bytes).unwrap();
        text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        text
    });
    fs::remove_file(&path).unwrap();
    assert_eq!(text, "contents");
}

/// Landlock alone, where the kernel has it: the filter of calls would hide it.
#[test]
fn landlock_opens_nothing_and_leaves_what_is_open() {
    let path = std::env::temp_dir().join(format!("rampack-landlock-{}", std::process::id()));
    fs::write(&path, b"contents").unwrap();
    let file = File::open(&path).unwrap();
    let (had, opened, read) = thread::scope(|scope| {
        let run = || {
            let had = files::open_none().unwrap();
            let read = io::read_to_string(&file).unwrap();
            (had, File::open(&path).is_ok(), read)
        };
        scope.spawn(run).join().unwrap()
    });
    fs::remove_file(&path).unwrap();
    let is_there = call(libc::SYS_landlock_create_ruleset, [0, 0, 1]) == 0;
    assert_eq!(had != NoFiles::NoLandlock, is_there);
    assert_eq!(opened, !is_there);
    assert_eq!(read, "contents");
    assert!(file.as_raw_fd() >= 0);
}

/// The state of a thread as the kernel has it: the filter holds for this thread alone.
#[test]
fn a_role_is_a_threads_own() {
    let field = |name: &str| {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_string();
        line.trim().to_string()
    };
    let before = field("Seccomp_filters:");
    let mut mine = File::open("/proc/self/status").unwrap();
    on_a_thread(Role::SwapMemory, || {
        let mut byte = [0; 1];
        assert!(File::open("/proc/self/status").is_err());
        assert_eq!(mine.read(&mut byte).unwrap_err().raw_os_error(), Some(libc::EPERM));
    });
    assert_eq!(field("Seccomp_filters:"), before);
    assert!(mine.read(&mut [0; 1]).is_ok());
}

/// A refused call in a strict sandbox ends the process, and says what it was. The test runs itself
/// again, in a process that may be lost.
#[test]
fn a_strict_sandbox_tells_the_thread_and_the_call() {
    const AGAIN: &str = "RAMPACK_TEST_STRICT";
    if std::env::var_os(AGAIN).is_some() {
        choose(Sandbox::Strict).unwrap();
        let run = || {
            enter(Role::SwapWorker).unwrap();
            let _ = File::open("/dev/null");
        };
        let _ = thread::Builder::new().name("a-worker".into()).spawn(run).unwrap().join();
        std::process::exit(0);
    }
    let test = "sandbox::tests::a_strict_sandbox_tells_the_thread_and_the_call";
    let program = std::env::current_exe().unwrap();
    let run = Command::new(program).args([test, "--exact", "--nocapture"]).env(AGAIN, "1").output();
    let run = run.unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(!run.status.success(), "{said}");
    let line = format!("the sandbox of thread a-worker refuses system call {}", libc::SYS_openat);
    assert!(said.contains(&line), "{said}");
}

/// A waiter that cannot be started leaves no task behind, also where several callers fail at once.
#[test]
fn tasks_are_done_where_no_thread_can_be_started() {
    let waiters = crate::Waiters::new("never", 4);
    let done = std::sync::Mutex::new(0);
    on_a_thread(Role::Clock, || {
        for _ in 0..3 {
            let (sender, receiver) = std::sync::mpsc::channel();
            let task = Box::new(move || sender.send(()).unwrap());
            let refused = waiters.take(task).expect_err("no thread can be started");
            refused();
            receiver.recv().unwrap();
            *done.lock().unwrap() += 1;
        }
    });
    assert_eq!((*done.lock().unwrap(), waiters.threads()), (3, 0));
    assert!(waiters.close(None), "no thread is counted that does not exist");
}

/// The cells of a row of a table in docs/operating/safety.md.
fn cells(line: &str) -> Option<Vec<String>> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(row.split(" | ").map(|cell| cell.trim().to_string()).collect())
}

fn words(cell: &str) -> BTreeSet<String> {
    cell.split([',', ' '])
        .map(|word| word.trim_matches('`'))
        .filter(|word| !word.is_empty())
        .map(str::to_string)
        .collect()
}

#[test]
fn the_document_lists_the_roles_and_their_calls() {
    let text = include_str!("../../../../docs/operating/safety.md");
    let rows: Vec<_> = text.lines().filter_map(cells).collect();
    let row = |name: &str| {
        let mut found = rows.iter().filter(|row| row[0] == format!("`{name}`"));
        found.next().unwrap_or_else(|| panic!("docs/operating/safety.md has no row of {name}"))
    };
    for group in GROUPS {
        let calls = group.calls.iter().copied().flatten();
        let names: BTreeSet<_> = calls.map(|call| call.name.to_string()).collect();
        let mut listed = words(&row(group.name)[1]);
        if cfg!(not(target_arch = "x86_64")) {
            listed.retain(|name| name != "poll" && name != "time");
        }
        assert_eq!(listed, names, "group {}", group.name);
    }
    for role in Role::ALL {
        let groups = role.groups().iter().map(|group| group.name.to_string()).collect();
        let listed = words(&row(role.name())[2]);
        let listed: BTreeSet<_> = listed.into_iter().filter(|word| word != "–").collect();
        let expected: BTreeSet<String> = groups;
        assert_eq!(listed, expected, "{role:?}");
    }
}

#[test]
fn roles_are_numbered_in_their_order() {
    assert!(Role::ALL.iter().enumerate().all(|(number, role)| number == *role as usize));
}

#[test]
fn a_call_has_one_condition_in_each_role() {
    for role in Role::ALL {
        let mut seen = BTreeSet::new();
        for call in role.calls() {
            let is_new = seen.insert(call.number);
            assert!(is_new || matches!(call.when, When::Always), "{} of {role:?}", call.name);
        }
    }
}
