//! What is there, as the kernel and the files of the system tell it.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use control::ControlError;
use host::{
    self, Frees, GroupLimit, NoFiles, Sandbox, Unheard, command_of, effective_user, group_limits,
    in_user_namespace,
};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities, no_new_privs};

use super::settings::{self, Settings};
use crate::engine::check_room;
use crate::filesystem::find_program;
use crate::swap::group::is_left_alone;
use crate::swap::in_front::has_kernel_zswap;

/// Programs that rampack runs, or that bring what it serves to other programs.
const PROGRAMS: [&str; 4] = ["fusermount3", "fuse2fs", "mkfs.ext4", NBD_CLIENT];
/// The program that makes a block device of an NBD export.
pub(super) const NBD_CLIENT: &str = "nbd-client";
/// Programs that end others when memory is short, as the kernel shows them: 15 bytes at most.
const KILLERS: [&str; 4] = ["systemd-oomd", "earlyoom", "nohang", "oomd"];
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Is this a command of root that another user gave, by sudo(8)? That user's next one is none.
#[must_use]
pub fn is_by_sudo() -> bool {
    let user = env::var("SUDO_UID").ok().and_then(|user| user.parse::<u32>().ok());
    effective_user() == 0 && user.is_some_and(|user| user != 0)
}

/// This machine, and this process on it.
#[derive(Debug)]
pub struct Observed {
    /// The release of the kernel.
    pub release: String,
    /// Is the effective user root, in whatever user namespace?
    pub is_root: bool,
    /// Is the user somebody else, who became root for this command?
    pub is_by_sudo: bool,
    /// Is it in a user namespace of its own?
    pub in_user_namespace: bool,
    /// The kind of container, if it is one that can be recognized.
    pub container: Option<String>,
    /// The distribution and those it is like, as os-release(5) names them.
    pub distribution: String,
    /// Can the files of /proc be read?
    pub has_proc: bool,
    /// Is there room for what a daemon takes itself?
    pub room: Result<(), ControlError>,
    /// Limits of control groups on the memory of this process.
    pub limits: Vec<GroupLimit>,
    /// Can this process change the files of `limits`?
    pub can_lift: bool,
    /// Bytes of memory of the machine.
    pub memory: u64,
    /// Opens /dev/fuse.
    pub fuse: io::Result<()>,
    /// Opens the driver of loop devices.
    pub loops: io::Result<()>,
    /// Bytes of a page.
    pub page: u64,
    /// Asks the driver ublk.
    pub ublk: Result<(), ublk::Error>,
    /// The function of the kernel that tells of freed pages of swap space.
    pub frees: Result<&'static str, Unheard>,
    /// Has the kernel its NBD client now?
    pub has_nbd: bool,
    /// Programs that were found.
    pub programs: BTreeMap<&'static str, PathBuf>,
    /// Would fusermount3 have root's rights here?
    pub helper_has_rights: bool,
    /// Makes a user namespace.
    pub user_namespace: io::Result<()>,
    /// Confines a thread.
    pub sandbox: io::Result<NoFiles>,
    /// Bytes that this process may lock; `None` without a limit.
    pub locked: Option<u64>,
    /// The effective capabilities of this process.
    pub capabilities: CapabilitySet,
    /// Is the kernel's zswap on?
    pub has_zswap: bool,
    /// The chosen word of the switch of transparent huge pages; empty without them.
    pub huge_pages: String,
    /// Programs that end others when memory is short, each with its command line.
    pub killers: BTreeMap<String, String>,
    /// Do daemons of rampack run, and does systemd-oomd leave each of them alone?
    pub are_spared: bool,
    /// Settings of the kernel that matter here.
    pub settings: Settings,
}

impl Observed {
    /// Looks at everything. Makes a copy of the process, so this must have one thread.
    #[must_use]
    pub fn look() -> Observed {
        let user_namespace = host::try_user_namespace();
        let path = env::var_os("PATH");
        let find = |name| Some((name, find_program(name, path.as_deref())?));
        let programs: BTreeMap<_, _> = PROGRAMS.into_iter().filter_map(find).collect();
        let helper = programs.get("fusermount3");
        let is_set_user_id = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o4000 != 0)
        };
        let limits = group_limits();
        let is_open = |limit: &GroupLimit| OpenOptions::new().write(true).open(&limit.file).is_ok();
        Observed {
            can_lift: limits.iter().all(is_open),
            limits,
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            is_root: effective_user() == 0,
            is_by_sudo: is_by_sudo(),
            in_user_namespace: in_user_namespace(),
            container: container(),
            distribution: distribution(&text("/etc/os-release")),
            has_proc: Path::new("/proc/self/mountinfo").exists(),
            room: check_room(),
            memory: host::machine_memory(),
            fuse: opens("/dev/fuse"),
            loops: opens("/dev/loop-control"),
            page: host::page_bytes(),
            ublk: ublk::available(),
            frees: Frees::of(1).map(|frees| frees.function()),
            has_nbd: Path::new("/dev/nbd0").exists(),
            helper_has_rights: helper.is_some_and(is_set_user_id)
                && !no_new_privs().unwrap_or(false),
            programs,
            user_namespace,
            sandbox: host::sandbox::choose(Sandbox::On),
            locked: getrlimit(Resource::Memlock).current,
            capabilities: capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective),
            has_zswap: has_kernel_zswap(),
            huge_pages: chosen(&text(HUGE_PAGES)),
            killers: killers(),
            are_spared: are_spared(),
            settings: settings::names().filter_map(value).collect(),
        }
    }

    /// May this process do what root may do on the machine? Root of a user namespace may not.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.is_root && !self.in_user_namespace
    }

    /// Is the kernel this one or a newer one? False if its release has no numbers.
    #[must_use]
    pub fn has_linux(&self, major: u32, minor: u32) -> bool {
        let mut numbers =
            self.release.split(['.', '-', '+']).map_while(|number| number.parse::<u32>().ok());
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn opens(path: &str) -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open(path).map(drop)
}

fn value(name: &'static str) -> Option<(&'static str, u64)> {
    let value = text(&format!("/proc/sys/{}", name.replace('.', "/")));
    Some((name, value.trim().parse().ok()?))
}

/// The kind of container, as container managers leave it. `None` outside of one.
fn container() -> Option<String> {
    let named = || env::var("container").ok().filter(|name| !name.is_empty());
    let written = || {
        let files = ["/run/systemd/container", "/run/host/container-manager"];
        let names = files.map(|file| text(file).trim().to_owned());
        names.into_iter().find(|name| !name.is_empty())
    };
    let marked = || {
        let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
        let found = marks.into_iter().find(|(file, _)| Path::new(file).exists());
        found.map(|(_, name)| name.to_owned())
    };
    let in_kubernetes = || env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "Kubernetes".to_owned());
    written().or_else(marked).or_else(named).or_else(in_kubernetes)
}

/// The words of `ID` and `ID_LIKE`.
pub(super) fn distribution(os_release: &str) -> String {
    let value = |line: &str| {
        let (name, value) = line.split_once('=')?;
        ["ID", "ID_LIKE"].contains(&name).then(|| value.trim_matches('"').to_owned())
    };
    os_release.lines().filter_map(value).collect::<Vec<_>>().join(" ")
}

/// The word in brackets of a switch such as `always [madvise] never`.
pub(super) fn chosen(switch: &str) -> String {
    let word = switch.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or_else(String::new, |(word, _)| word.to_owned())
}

/// Another rampack is a daemon, or runs for a moment.
fn are_spared() -> bool {
    let own = std::process::id().to_string();
    let spared = |entry: fs::DirEntry| {
        let (home, is_own) = (entry.path(), *entry.file_name() == *own);
        let is_daemon = !is_own && command_of(&home) == "rampack";
        let groups = || fs::read_to_string(home.join("cgroup")).unwrap_or_default();
        is_daemon.then(|| is_left_alone(&groups()))
    };
    let daemons: Vec<bool> =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(spared).collect();
    !daemons.is_empty() && daemons.into_iter().all(|it| it)
}

fn killers() -> BTreeMap<String, String> {
    let of = |entry: fs::DirEntry| {
        let home = entry.path();
        let name = command_of(&home);
        let words = || fs::read(home.join("cmdline")).unwrap_or_default();
        let command = || String::from_utf8_lossy(&words()).replace('\0', " ");
        KILLERS.contains(&&*name).then(|| (name, command()))
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(of).collect()
}
