//! What is to be said of a machine: a pure function of what was [`Observed`].

use std::io::ErrorKind;

use host::NoFiles;
use rustix::thread::CapabilitySet;
use serde::Serialize;
use units::{PAGE_SIZE, human};

use super::mend::{as_root, install, load, run_with, to_kernel, write};
use super::observed::{NBD_CLIENT, Observed};
use super::settings;
use crate::failure::failed;
use crate::swap::in_front;
use crate::swap::served::WITHOUT_UBLK;

/// How much something matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is as it should be.
    Ok,
    /// All that this user can have works; it could be better.
    Note,
    /// Something that rampack offers this user does not work, or may fail.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What was looked at; it stays the same over versions.
    pub name: String,
    /// How much it matters.
    pub level: Level,
    /// What it means for the user, in a sentence.
    pub text: String,
    /// The command that mends it, if one does.
    pub command: Option<String>,
}

impl Finding {
    fn new(name: &str, level: Level, text: impl Into<String>) -> Finding {
        Finding { name: name.to_owned(), level, text: text.into(), command: None }
    }

    fn ok(name: &str, text: impl Into<String>) -> Finding {
        Finding::new(name, Level::Ok, text)
    }

    fn mended(self, command: String) -> Finding {
        Finding { command: Some(command), ..self }
    }
}

const PAGES: &str = "pages";
const FUSE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const FUSE2FS: &str = "fuse2fs";
const MKFS: &str = "mkfs.ext4";
const LOOP: &str = "loop";
const UBLK: &str = "ublk";
const GROUP: &str = "control group";
const ROOM: &str = "room";

type Has = fn(&Observed) -> bool;

/// A way to use rampack.
#[derive(PartialEq, Eq, Debug, Serialize)]
pub struct Ability {
    /// What it is.
    pub name: &'static str,
    /// The command for it.
    pub command: &'static str,
    /// The names of the findings that say why it does not work, or `root`; empty if it works.
    pub missing: Vec<&'static str>,
}

/// What can be done here.
#[must_use]
pub fn abilities(observed: &Observed) -> Vec<Ability> {
    const ROOT: (&str, Has) = ("root", Observed::is_privileged);
    const ADMIN: (&str, Has) = ("CAP_SYS_ADMIN", |it| has(it, CapabilitySet::SYS_ADMIN));
    const BLOCK: [(&str, Has); 4] =
        [ROOT, (FUSE, |it| it.fuse.is_ok()), (LOOP, |it| it.loops.is_ok()), ADMIN];
    const EXT4: (&str, Has) = (MKFS, |it| it.programs.contains_key(MKFS));
    let ability = |name, command, needs: &[(&'static str, Has)]| {
        let room: (&'static str, Has) = (ROOM, |it| it.room.is_ok());
        let sandbox: (&'static str, Has) = ("sandbox", |it| it.sandbox.is_ok());
        let needs = [room, sandbox].into_iter().chain(needs.iter().copied());
        let missing: Vec<_> =
            needs.filter(|(_, is_there)| !is_there(observed)).map(|(need, _)| need).collect();
        // Without root, nothing else would help.
        let missing = if missing.contains(&"root") { vec!["root"] } else { missing };
        Ability { name, command, missing }
    };
    let directory = match observed.is_privileged() {
        true => [&BLOCK[1..], &[EXT4]].concat(),
        false => vec![
            BLOCK[1],
            (HELPER, |it| it.programs.contains_key(HELPER) && (it.is_root || it.helper_has_rights)),
            (FUSE2FS, |it| it.programs.contains_key(FUSE2FS)),
            EXT4,
        ],
    };
    let swap: [(&str, Has); 3] = [
        (UBLK, |it| it.ublk.is_ok()),
        (GROUP, |it| it.limits.is_empty()),
        (PAGES, |it| it.page == PAGE_SIZE as u64),
    ];
    vec![
        ability("a disk over NBD", "rampack up --transport nbd", &[]),
        ability("a compressed directory", "rampack up --mount DIR", &directory),
        ability("a block device", "rampack up", &BLOCK),
        ability("compressed swap space", "rampack swap on", &[&BLOCK[..], &swap].concat()),
    ]
}

/// Everything that was looked at, in the order in which it is shown.
#[must_use]
pub fn findings(observed: &Observed) -> Vec<Finding> {
    type Line = fn(&Observed) -> Finding;
    const LINES: [Line; 17] = [
        container,
        proc_files,
        pages,
        room,
        group,
        fuse,
        helper,
        fuse2fs,
        mkfs,
        user_namespaces,
        loops,
        by_ublk,
        frees,
        nbd,
        sandbox,
        locked,
        zswap,
    ];
    let lines = LINES.iter().map(|line| line(observed));
    let last = [huge_pages(observed)];
    lines
        .chain(privileges(observed))
        .chain(kernel(observed))
        .chain(killers(observed))
        .chain(set(observed))
        .chain(last)
        .collect()
}

fn container(it: &Observed) -> Finding {
    match &it.container {
        None => Finding::ok("container", "none that can be recognized"),
        Some(kind) => Finding::ok(
            "container",
            format!("{kind}: the kernel, its modules and its settings are those of the host"),
        ),
    }
}

fn proc_files(it: &Observed) -> Finding {
    if it.has_proc {
        return Finding::ok("/proc", "is mounted");
    }
    let text = "is not mounted: limits, mounts and users of devices cannot be seen, and what \
                follows is in part a guess";
    Finding::new("/proc", Level::Problem, text).mended(as_root(it, "mount -t proc proc /proc"))
}

fn room(it: &Observed) -> Finding {
    let Err(error) = &it.room else { return Finding::ok(ROOM, "there is room for a daemon") };
    let found = Finding::new(ROOM, Level::Problem, &error.message);
    match error.message.contains("ulimit") {
        true => found.mended("ulimit -d unlimited; ulimit -v unlimited".into()),
        false => found,
    }
}

fn group(it: &Observed) -> Finding {
    let Some(least) = it.limits.iter().min_by_key(|limit| limit.bytes) else {
        return Finding::ok(GROUP, "no limit on memory");
    };
    // In a container the limit is meant, and swap space is made on the host.
    let is_meant = it.container.is_some() || !it.is_privileged();
    let level = if is_meant { Level::Note } else { Level::Problem };
    let text = format!(
        "{least}: what disks hold counts against it, and `swap on` refuses to serve here, because \
         at the limit the daemon would wait for itself"
    );
    if it.container.is_some() && !it.can_lift {
        let command = run_with(it, "--memory 0");
        return Finding { command, ..Finding::new(GROUP, level, text) };
    }
    let file = least.file.display().to_string();
    let none = if file.ends_with("memory.limit_in_bytes") { "-1" } else { "max" };
    Finding::new(GROUP, level, text).mended(write(it, none, &file))
}

fn pages(it: &Observed) -> Finding {
    let text = format!("have {} bytes", it.page);
    match it.page == PAGE_SIZE as u64 {
        true => Finding::ok(PAGES, text),
        false => Finding::new(PAGES, Level::Note, format!("{text}: `swap on` needs {PAGE_SIZE}")),
    }
}

fn fuse(it: &Observed) -> Finding {
    let Err(error) = &it.fuse else { return Finding::ok(FUSE, "opens") };
    let text = format!(
        "{}; so no directories, no block devices and no control tree, only NBD",
        failed("cannot be opened", error).message
    );
    let found = Finding::new(FUSE, Level::Problem, text);
    if error.kind() == ErrorKind::PermissionDenied && !it.is_root {
        return found.mended(as_root(it, "chmod 666 /dev/fuse"));
    }
    found.mended(load(it, "fuse", "--device /dev/fuse"))
}

/// A program that `--mount` without root needs.
fn needed_without_root(it: &Observed, name: &str, package: &str) -> Finding {
    match (it.programs.get(name), it.is_privileged()) {
        (Some(path), _) => Finding::ok(name, format!("is {}", path.display())),
        (None, true) => Finding::ok(name, "is not installed; root does without"),
        (None, false) => {
            let text = "is not installed: `up --mount` without root needs it";
            Finding::new(name, Level::Problem, text).mended(install(it, package))
        }
    }
}

fn helper(it: &Observed) -> Finding {
    match it.programs.get(HELPER) {
        Some(path) if !it.is_root && !it.helper_has_rights => {
            let path = path.display();
            let text = format!(
                "{path} gets no rights of root here (its set-user-id bit, or no-new-privileges of \
                 a container): an ordinary user can mount nothing"
            );
            let found = Finding::new(HELPER, Level::Problem, text);
            found.mended(as_root(it, &format!("chmod u+s {path}")))
        }
        _ => needed_without_root(it, HELPER, "fuse3"),
    }
}

fn fuse2fs(it: &Observed) -> Finding {
    needed_without_root(it, FUSE2FS, FUSE2FS)
}

fn mkfs(it: &Observed) -> Finding {
    match it.programs.get(MKFS) {
        Some(path) => Finding::ok(MKFS, format!("is {}", path.display())),
        None => Finding::new(MKFS, Level::Problem, "is not installed: `up --mount` needs it")
            .mended(install(it, "e2fsprogs")),
    }
}

fn user_namespaces(it: &Observed) -> Finding {
    const NAME: &str = "user namespaces";
    let Err(error) = &it.user_namespace else {
        let text = "can be made: `unshare -Urm` lets an ordinary user mount without fusermount3";
        return Finding::ok(NAME, text);
    };
    let why = failed("cannot be made", error).message;
    let text = format!("{why}; so an ordinary user mounts by fusermount3 alone");
    let found = Finding::new(NAME, Level::Note, text);
    // What refuses is not told.
    match settings::NAMESPACES.iter().find(|(name, off, _)| it.settings.get(name) == Some(off)) {
        Some((name, _, on)) => found.mended(to_kernel(it, &format!("sysctl {name}={on}"))),
        None => found,
    }
}

/// A driver that root alone can use: how much it matters that it is missing.
fn for_root(it: &Observed) -> Level {
    if it.is_privileged() { Level::Problem } else { Level::Note }
}

fn loops(it: &Observed) -> Finding {
    let Err(error) = &it.loops else { return Finding::ok(LOOP, "/dev/loop-control opens") };
    let text = match it.is_privileged() {
        true => {
            let why = failed("/dev/loop-control cannot be opened", error).message;
            format!("{why}; so no block devices")
        }
        false => "is for root: an ordinary user has directories, files and NBD".to_owned(),
    };
    let found = Finding::new(LOOP, for_root(it), text);
    match it.is_privileged() {
        true => found.mended(load(
            it,
            "loop",
            "--cap-add SYS_ADMIN --device /dev/loop-control --device-cgroup-rule 'b 7:* rmw'",
        )),
        false => found,
    }
}

fn by_ublk(it: &Observed) -> Finding {
    let Err(error) = &it.ublk else { return Finding::ok(UBLK, "the driver answers") };
    if !it.is_privileged() {
        return Finding::new(UBLK, Level::Note, "is for root, and with it swap space");
    }
    let text = match error {
        ublk::Error::NoDriver(_) => {
            "the driver is not loaded, or not in this kernel (Linux 6.4)".to_owned()
        }
        _ => error.to_string(),
    };
    let text = format!("{text}: `swap on` refuses; {WITHOUT_UBLK}");
    let found = Finding::new(UBLK, Level::Problem, text);
    match error {
        ublk::Error::NoDriver(_) => found.mended(load(it, "ublk_drv", "--privileged -v /dev:/dev")),
        ublk::Error::NoUring(_) => found.mended(to_kernel(it, "sysctl kernel.io_uring_disabled=0")),
        _ => found,
    }
}

fn frees(it: &Observed) -> Finding {
    const NAME: &str = "freed pages";
    match &it.frees {
        Ok(function) => Finding::ok(NAME, format!("of swap space are heard of by {function}")),
        Err(_) if !it.is_privileged() => Finding::ok(NAME, "of swap space are heard of by root"),
        Err(why) => {
            let text = format!(
                "of swap space are heard of by discards alone, and keep memory for longer: {}",
                why.0
            );
            Finding::new(NAME, Level::Note, text)
        }
    }
}

fn nbd(it: &Observed) -> Finding {
    const NAME: &str = "nbd";
    let has_client = it.programs.contains_key(NBD_CLIENT);
    if it.has_nbd && has_client {
        return Finding::ok(NAME, "the kernel's client is there");
    }
    let text = "the kernel's client is not there; only a block device of an NBD export needs it, \
                programs that speak NBD do not";
    let found = Finding::new(NAME, Level::Note, text);
    match it.has_nbd {
        false => found.mended(to_kernel(it, "modprobe nbd")),
        true => found.mended(install(it, NBD_CLIENT)),
    }
}

fn sandbox(it: &Observed) -> Finding {
    const NAME: &str = "sandbox";
    match &it.sandbox {
        Ok(NoFiles::NoLandlock) => {
            let text = "threads that serve are under seccomp alone: landlock needs Linux 5.13, and \
                        its name in lsm= on the kernel's command line";
            Finding::new(NAME, Level::Note, text)
        }
        Ok(_) => Finding::ok(NAME, "threads that serve are under seccomp and landlock"),
        Err(error) => {
            let why = failed("threads that serve cannot be confined", error).message;
            let text = format!("{why}; so a daemon starts with --sandbox off alone");
            Finding::new(NAME, Level::Problem, text).mended("export RAMPACK_SANDBOX=off".to_owned())
        }
    }
}

fn locked(it: &Observed) -> Finding {
    const NAME: &str = "locked memory";
    // Root of a user namespace has the capability for nothing here.
    let is_free = it.is_privileged() && has(it, CapabilitySet::IPC_LOCK);
    let Some(limit) = it.locked.filter(|_| !is_free).map(human) else {
        return Finding::ok(NAME, "has no limit");
    };
    let text = format!(
        "is limited to {limit} (`ulimit -l`): with --lock-memory a start fails, and without it \
         stored pages may go to another swap device"
    );
    let found = Finding::new(NAME, for_root(it), text);
    match it.is_privileged() {
        true => found.mended("ulimit -l unlimited".to_owned()),
        false => found.mended("sudo prlimit --pid $$ --memlock=unlimited".to_owned()),
    }
}

fn zswap(it: &Observed) -> Finding {
    const NAME: &str = "zswap";
    if !it.has_zswap {
        return Finding::ok(NAME, "is off, or not in this kernel");
    }
    let text = "the kernel's zswap is on, in front of every swap device: pages are compressed \
                twice, and `swap on --front zswap` makes the best of it";
    Finding::new(NAME, Level::Note, text).mended(write(it, "N", in_front::ENABLED))
}

fn has(it: &Observed, capability: CapabilitySet) -> bool {
    it.capabilities.contains(capability)
}

fn privileges(it: &Observed) -> Vec<Finding> {
    const NEEDED: [(&str, CapabilitySet, Level, &str); 4] = [
        (
            "CAP_SYS_ADMIN",
            CapabilitySet::SYS_ADMIN,
            Level::Problem,
            "no mounts, no block devices, no swap space",
        ),
        (
            "CAP_SYS_RESOURCE",
            CapabilitySet::SYS_RESOURCE,
            Level::Problem,
            "a daemon of `swap on` may be ended, or waited for, when memory is out",
        ),
        (
            "CAP_IPC_LOCK",
            CapabilitySet::IPC_LOCK,
            Level::Note,
            "memory is locked within `ulimit -l` alone",
        ),
        (
            "CAP_SYS_NICE",
            CapabilitySet::SYS_NICE,
            Level::Note,
            "a daemon of `swap on` waits for a CPU behind the programs that need memory",
        ),
    ];
    if !it.is_privileged() {
        let text = "an ordinary user has disks over NBD and directories; block devices and swap \
                    space are for root";
        return vec![Finding::new("root", Level::Note, text)];
    }
    let line = |&(name, capability, level, without): &(&str, CapabilitySet, Level, &str)| {
        if has(it, capability) {
            return Finding::ok(name, "is there");
        }
        let text = format!("is not there: {without}");
        let command = run_with(it, &format!("--cap-add {}", name.trim_start_matches("CAP_")));
        Finding { command, ..Finding::new(name, level, text) }
    };
    NEEDED.iter().map(line).collect()
}

/// Promises that need a kernel of at least this version.
const PROMISES: [(u32, u32, &str); 5] = [
    (5, 6, "swap that never waits for its own daemon"),
    (5, 9, "an OOM killer that `swap on` calls when the machine is stuck"),
    (5, 14, "encrypted pages that outlive the daemon, and all memory of `swap on` there before"),
    (6, 4, "ublk, and swap devices that outlive their daemon"),
    (6, 9, "block devices, mounts and loop swap whose users wait when the daemon dies"),
];

fn kernel(it: &Observed) -> Vec<Finding> {
    let line = |&(major, minor, what): &(u32, u32, &str)| {
        let name = format!("Linux {major}.{minor}");
        match it.has_linux(major, minor) {
            true => Finding::ok(&name, what),
            false => {
                let text = format!("this is {}, which cannot have: {what}", it.release);
                Finding::new(&name, Level::Note, text)
            }
        }
    };
    PROMISES.iter().map(line).collect()
}

/// Is rampack among what a command line of earlyoom has it avoid?
fn spares_rampack(command: &str) -> bool {
    command.split_once("--avoid").is_some_and(|(_, rest)| rest.contains("rampack"))
}

fn killers(it: &Observed) -> Vec<Finding> {
    if it.killers.is_empty() {
        let text = "no program is seen that ends others when memory is short";
        return vec![Finding::ok("oomd", text)];
    }
    let line = |(name, command): (&String, &String)| match &**name {
        "systemd-oomd" if it.are_spared => Finding::ok(name, "leaves rampack alone"),
        "systemd-oomd" => Finding::new(
            name,
            Level::Note,
            "may end the control group of a disk's daemon when memory is short; `swap on` has one \
             that is left alone",
        )
        .mended(as_root(it, "systemd-run -p ManagedOOMPreference=omit rampack serve")),
        _ if spares_rampack(command) => Finding::ok(name, "leaves rampack alone"),
        "earlyoom" => Finding::new(
            name,
            Level::Note,
            "may take the daemon of a disk for the program to end when memory is short",
        )
        .mended(match command.trim_end().split_once(' ') {
            Some((_, options)) if options.contains("--avoid") => {
                "# add ^rampack$ to --avoid in /etc/default/earlyoom".into()
            }
            given => format!(
                // Of several such lines the last one counts.
                "echo 'EARLYOOM_ARGS=\"{}--avoid ^rampack$\"' | {} && {}",
                given.map_or_else(String::new, |(_, options)| format!("{options} ")),
                as_root(it, "tee -a /etc/default/earlyoom"),
                as_root(it, "systemctl restart earlyoom")
            ),
        }),
        _ => Finding::new(
            name,
            Level::Note,
            "may take the daemon of a disk for the program to end; tell it to leave rampack alone",
        ),
    };
    it.killers.iter().map(line).collect()
}

fn set(it: &Observed) -> Vec<Finding> {
    let line = |setting: &settings::Setting| {
        let (now, wanted) = setting.values(&it.settings, it.memory)?;
        if now == wanted {
            return Some(Finding::ok(setting.name, format!("is {now}")));
        }
        let level = if setting.fails { Level::Problem } else { Level::Note };
        let found = Finding::new(setting.name, level, format!("is {now}; {}", setting.why));
        Some(found.mended(to_kernel(it, &format!("sysctl {}={wanted}", setting.name))))
    };
    settings::ALL.iter().filter_map(line).collect()
}

fn huge_pages(it: &Observed) -> Finding {
    const NAME: &str = "huge pages";
    match &*it.huge_pages {
        "never" => {
            let text = "are off: the daemon can have none for its tables and pools (with them a \
                        rewrite of a page was 9% quicker)";
            let file = "/sys/kernel/mm/transparent_hugepage/enabled";
            Finding::new(NAME, Level::Note, text).mended(write(it, "madvise", file))
        }
        "" => Finding::ok(NAME, "are not in this kernel, or it does not tell"),
        switch => Finding::ok(NAME, format!("are there where a program asks for them ({switch})")),
    }
}
