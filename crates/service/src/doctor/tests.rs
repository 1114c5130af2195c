use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use control::{ControlError, Errno};
use host::{GroupLimit, NoFiles, Unheard, errno};
use rustix::thread::CapabilitySet;

use super::observed::{chosen, distribution};
use super::*;

const GIB: u64 = 1 << 30;

/// A machine of root, with everything.
fn whole() -> Observed {
    let at = |name| (name, PathBuf::from("/usr/bin").join(name));
    Observed {
        release: "6.12.48+deb13-amd64".into(),
        is_root: true,
        is_by_sudo: false,
        in_user_namespace: false,
        container: None,
        distribution: "debian".into(),
        has_proc: true,
        room: Ok(()),
        limits: Vec::new(),
        can_lift: true,
        memory: 8 * GIB,
        fuse: Ok(()),
        loops: Ok(()),
        page: 4096,
        ublk: Ok(()),
        frees: Ok("zswap_invalidate"),
        has_nbd: true,
        programs: ["fusermount3", "fuse2fs", "mkfs.ext4", "nbd-client"].map(at).into(),
        helper_has_rights: true,
        user_namespace: Ok(()),
        sandbox: Ok(NoFiles::Fully),
        locked: None,
        capabilities: CapabilitySet::all(),
        has_zswap: false,
        huge_pages: "madvise".into(),
        killers: [].into(),
        are_spared: false,
        settings: Settings::from([
            ("vm.page-cluster", 0),
            ("vm.swappiness", 60),
            ("vm.watermark_scale_factor", 100),
            ("vm.watermark_boost_factor", 0),
            ("vm.min_free_kbytes", 90_000),
            ("kernel.io_uring_disabled", 0),
            ("fs.fuse.max_request_timeout", 0),
            ("fs.fuse.default_request_timeout", 0),
            ("user.max_user_namespaces", 1000),
        ]),
    }
}

/// The same for an ordinary user.
fn of_a_user() -> Observed {
    Observed {
        is_root: false,
        capabilities: CapabilitySet::empty(),
        loops: Err(refused()),
        ublk: Err(ublk::Error::NoPermission),
        locked: Some(8 << 20),
        ..whole()
    }
}

fn refused() -> io::Error {
    ErrorKind::PermissionDenied.into()
}

fn absent() -> io::Error {
    ErrorKind::NotFound.into()
}

fn limited(file: &str) -> Vec<GroupLimit> {
    let top = GroupLimit { file: "/sys/fs/cgroup/memory.max".into(), bytes: 4 * GIB };
    vec![GroupLimit { file: file.into(), bytes: GIB }, top]
}

fn found<'a>(name: &str, all: &'a [Finding]) -> &'a Finding {
    let named = || panic!("no line {name}: {all:?}");
    all.iter().find(|it| it.name == name).unwrap_or_else(named)
}

#[test]
fn nothing_is_wrong_with_a_whole_machine() {
    let all = findings(&whole());
    for it in &all {
        assert_eq!((it.level, &it.command), (Level::Ok, &None), "{it:?}");
    }
    let names: BTreeSet<_> = all.iter().map(|it| &it.name).collect();
    assert_eq!(names.len(), all.len(), "each line has a name of its own");
    assert!(abilities(&whole()).iter().all(|it| it.missing.is_empty()));
}

/// A change of a machine, and the line that it makes: its name and level, words of its text, and
/// its command.
type Case = (fn(&mut Observed), &'static str, Level, &'static str, Option<&'static str>);

fn check(make: fn() -> Observed, cases: &[Case]) {
    for (change, name, level, words, command) in cases {
        let mut machine = make();
        change(&mut machine);
        let all = findings(&machine);
        let it = found(name, &all);
        let command = command.map(str::to_owned);
        assert_eq!((it.level, &it.command), (*level, &command), "{it:?}");
        assert!(it.text.contains(words), "{words:?} is missing: {it:?}");
    }
}

#[test]
fn each_line_says_what_is_wrong_and_what_mends_it() {
    use Level::{Note, Ok as Fine, Problem};
    let cases: &[Case] = &[
        (|it| it.container = Some("docker".into()), "container", Fine, "those of the host", None),
        (
            |it| it.has_proc = false,
            "/proc",
            Problem,
            "not mounted",
            Some("mount -t proc proc /proc"),
        ),
        (
            |it| it.room = Err(ControlError::new(Errno::ENOMEM, "no room: `ulimit -v` is 1G")),
            "room",
            Problem,
            "`ulimit -v` is 1G",
            Some("ulimit -d unlimited; ulimit -v unlimited"),
        ),
        (
            |it| it.room = Err(ControlError::new(Errno::ENOMEM, "no room: memory.max is 1M")),
            "room",
            Problem,
            "memory.max",
            None,
        ),
        (
            |it| it.limits = limited("/sys/fs/cgroup/a/memory.max"),
            "control group",
            Problem,
            "/sys/fs/cgroup/a/memory.max is 1G",
            Some("echo max | tee /sys/fs/cgroup/a/memory.max"),
        ),
        (
            |it| it.limits = limited("/sys/fs/cgroup/memory/a/memory.limit_in_bytes"),
            "control group",
            Problem,
            "refuses",
            Some("echo -1 | tee /sys/fs/cgroup/memory/a/memory.limit_in_bytes"),
        ),
        (
            |it| {
                it.limits = limited("/sys/fs/cgroup/memory.max");
                it.container = Some("docker".into());
                it.can_lift = false;
            },
            "control group",
            Note,
            "counts against it",
            Some("docker run --memory 0 …"),
        ),
        (|it| it.page = 16384, "pages", Note, "`swap on` needs 4096", None),
        (
            |it| it.fuse = Err(absent()),
            "/dev/fuse",
            Problem,
            "cannot be opened",
            Some("modprobe fuse"),
        ),
        (
            |it| it.fuse = Err(io::Error::from_raw_os_error(errno::ENODEV)),
            "/dev/fuse",
            Problem,
            "no such device",
            Some("modprobe fuse"),
        ),
        (
            |it| {
                it.fuse = Err(refused());
                it.container = Some("podman".into());
            },
            "/dev/fuse",
            Problem,
            "denied",
            Some("modprobe fuse && podman run --device /dev/fuse …   # as root of the host"),
        ),
        (
            |it| _ = it.programs.remove("mkfs.ext4"),
            "mkfs.ext4",
            Problem,
            "not installed",
            Some("apt install e2fsprogs"),
        ),
        (
            |it| {
                it.programs.remove("mkfs.ext4");
                it.distribution = "centos rhel fedora".into();
            },
            "mkfs.ext4",
            Problem,
            "not installed",
            Some("dnf install e2fsprogs"),
        ),
        (
            |it| {
                it.programs.remove("mkfs.ext4");
                it.distribution = "other".into();
            },
            "mkfs.ext4",
            Problem,
            "not installed",
            Some("# install the package e2fsprogs"),
        ),
        (
            |it| {
                it.user_namespace = Err(refused());
                it.settings.insert("user.max_user_namespaces", 0);
            },
            "user namespaces",
            Note,
            "fusermount3 alone",
            Some("sysctl user.max_user_namespaces=15000"),
        ),
        (
            |it| {
                it.user_namespace = Err(refused());
                it.settings.insert("kernel.apparmor_restrict_unprivileged_userns", 1);
            },
            "user namespaces",
            Note,
            "fusermount3 alone",
            Some("sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
        ),
        (|it| it.user_namespace = Err(refused()), "user namespaces", Note, "cannot be made", None),
        (|it| it.loops = Err(absent()), "loop", Problem, "cannot be opened", Some("modprobe loop")),
        (
            |it| it.ublk = Err(ublk::Error::NoDriver(absent())),
            "ublk",
            Problem,
            "`swap on` refuses; without it the kernel would reach a swap device by a loop device",
            Some("modprobe ublk_drv"),
        ),
        (
            |it| it.ublk = Err(ublk::Error::NoUring(refused())),
            "ublk",
            Problem,
            "io_uring",
            Some("sysctl kernel.io_uring_disabled=0"),
        ),
        (|it| it.ublk = Err(ublk::Error::TooOld), "ublk", Problem, "Linux 6.4", None),
        (
            |it| it.frees = Err(Unheard("this kernel has no kprobes".into())),
            "freed pages",
            Note,
            "by discards alone, and keep memory for longer: this kernel has no kprobes",
            None,
        ),
        (|it| it.has_nbd = false, "nbd", Note, "only a block device", Some("modprobe nbd")),
        (
            |it| _ = it.programs.remove("nbd-client"),
            "nbd",
            Note,
            "only a block device",
            Some("apt install nbd-client"),
        ),
        (|it| it.sandbox = Ok(NoFiles::NoLandlock), "sandbox", Note, "lsm=", None),
        (
            |it| it.sandbox = Err(refused()),
            "sandbox",
            Problem,
            "--sandbox off",
            Some("export RAMPACK_SANDBOX=off"),
        ),
        (
            |it| {
                it.locked = Some(8 << 20);
                it.capabilities.remove(CapabilitySet::IPC_LOCK);
            },
            "locked memory",
            Problem,
            "limited to 8M",
            Some("ulimit -l unlimited"),
        ),
        (
            |it| it.has_zswap = true,
            "zswap",
            Note,
            "twice",
            Some("echo N | tee /sys/module/zswap/parameters/enabled"),
        ),
        (
            |it| it.capabilities.remove(CapabilitySet::SYS_ADMIN),
            "CAP_SYS_ADMIN",
            Problem,
            "no mounts",
            None,
        ),
        (
            |it| {
                it.capabilities.remove(CapabilitySet::SYS_RESOURCE);
                it.container = Some("docker".into());
            },
            "CAP_SYS_RESOURCE",
            Problem,
            "when memory is out",
            Some("docker run --cap-add SYS_RESOURCE …"),
        ),
        (
            |it| it.capabilities.remove(CapabilitySet::IPC_LOCK),
            "CAP_IPC_LOCK",
            Note,
            "ulimit -l",
            None,
        ),
        (|it| it.capabilities.remove(CapabilitySet::SYS_NICE), "CAP_SYS_NICE", Note, "a CPU", None),
        (|it| it.release = "6.8.0-1-generic".into(), "Linux 6.9", Note, "6.8.0-1", None),
        (|it| it.release = "6.3.1".into(), "Linux 6.4", Note, "ublk", None),
        (|it| it.release = "5.10.0".into(), "Linux 5.14", Note, "outlive", None),
        (|it| it.release = "5.4.0".into(), "Linux 5.9", Note, "OOM killer", None),
        (|it| it.release = "5.4.0".into(), "Linux 5.6", Note, "swap that never waits", None),
        (|it| it.release = "unknown".into(), "Linux 5.6", Note, "unknown", None),
        (
            |it| _ = it.killers.insert("systemd-oomd".into(), "/lib/systemd-oomd".into()),
            "systemd-oomd",
            Note,
            "left alone",
            Some("systemd-run -p ManagedOOMPreference=omit rampack serve"),
        ),
        (
            |it| {
                it.killers.insert("systemd-oomd".into(), "/lib/systemd-oomd".into());
                it.are_spared = true;
            },
            "systemd-oomd",
            Fine,
            "leaves rampack alone",
            None,
        ),
        (
            |it| _ = it.killers.insert("earlyoom".into(), "earlyoom -r 3600".into()),
            "earlyoom",
            Note,
            "may take the daemon",
            Some(
                "echo 'EARLYOOM_ARGS=\"-r 3600 --avoid ^rampack$\"' | tee -a /etc/default/earlyoom && \
                 systemctl restart earlyoom",
            ),
        ),
        (
            |it| _ = it.killers.insert("earlyoom".into(), "earlyoom --avoid ^rampack$".into()),
            "earlyoom",
            Fine,
            "leaves rampack alone",
            None,
        ),
        (
            |it| _ = it.killers.insert("earlyoom".into(), "earlyoom --avoid ^sshd$".into()),
            "earlyoom",
            Note,
            "may take the daemon",
            Some("# add ^rampack$ to --avoid in /etc/default/earlyoom"),
        ),
        (
            |it| _ = it.killers.insert("nohang".into(), "nohang".into()),
            "nohang",
            Note,
            "leave rampack alone",
            None,
        ),
        (
            |it| _ = it.settings.insert("vm.page-cluster", 3),
            "vm.page-cluster",
            Note,
            "is 3; N reads",
            Some("sysctl vm.page-cluster=0"),
        ),
        (
            |it| _ = it.settings.insert("vm.swappiness", 180),
            "vm.swappiness",
            Note,
            "215 s",
            Some("sysctl vm.swappiness=100"),
        ),
        (
            |it| _ = it.settings.insert("vm.swappiness", 1),
            "vm.swappiness",
            Note,
            "is 1;",
            Some("sysctl vm.swappiness=60"),
        ),
        (
            |it| _ = it.settings.insert("vm.watermark_scale_factor", 10),
            "vm.watermark_scale_factor",
            Note,
            "earlier",
            Some("sysctl vm.watermark_scale_factor=100"),
        ),
        (
            |it| _ = it.settings.insert("vm.watermark_boost_factor", 15_000),
            "vm.watermark_boost_factor",
            Note,
            "files alone",
            Some("sysctl vm.watermark_boost_factor=0"),
        ),
        (
            |it| _ = it.settings.insert("vm.min_free_kbytes", 67_584),
            "vm.min_free_kbytes",
            Note,
            "reserve",
            Some("sysctl vm.min_free_kbytes=83886"),
        ),
        (
            |it| {
                it.settings.insert("kernel.io_uring_disabled", 2);
                it.container = Some("docker".into());
            },
            "kernel.io_uring_disabled",
            Note,
            "with 2 there is no ublk",
            Some("sysctl kernel.io_uring_disabled=1   # as root of the host"),
        ),
        (
            |it| _ = it.settings.insert("fs.fuse.max_request_timeout", 60),
            "fs.fuse.max_request_timeout",
            Problem,
            "end the mount",
            Some("sysctl fs.fuse.max_request_timeout=0"),
        ),
        (
            |it| it.huge_pages = "never".into(),
            "huge pages",
            Note,
            "are off",
            Some("echo madvise | tee /sys/kernel/mm/transparent_hugepage/enabled"),
        ),
        (|it| it.huge_pages = String::new(), "huge pages", Fine, "not in this kernel", None),
    ];
    check(whole, cases);
    // Each line that can be wrong has been.
    let tried: BTreeSet<_> = cases.iter().map(|case| case.1).collect();
    let of_users = ["fusermount3", "fuse2fs", "oomd", "fs.fuse.default_request_timeout"];
    for it in findings(&whole()) {
        assert!(tried.contains(&*it.name) || of_users.contains(&&*it.name), "{}", it.name);
    }
}

/// Kernels of distributions, and what each is too old for.
#[test]
fn older_kernels_are_told_what_they_cannot_have() {
    const ALL: [&str; 5] = ["Linux 5.6", "Linux 5.9", "Linux 5.14", "Linux 6.4", "Linux 6.9"];
    for (release, has) in [
        ("4.18.0-553.el8_10.x86_64", 0),
        ("5.4.0-216-generic", 0),
        ("5.10.0-35-amd64", 2),
        ("5.14.0-570.el9.x86_64", 3),
        ("5.15.0-161-generic", 3),
        ("6.1.0-41-cloud-amd64", 3),
        ("6.6.87.2-microsoft-standard-WSL2", 4),
        ("6.8.0-88-generic", 4),
        ("6.12.48+deb13-amd64", 5),
        ("7.0-rc1", 5),
    ] {
        let machine = Observed { release: release.into(), ..whole() };
        let all = findings(&machine);
        for (n, name) in ALL.into_iter().enumerate() {
            let it = found(name, &all);
            let level = if n < has { Level::Ok } else { Level::Note };
            assert_eq!((it.level, &it.command), (level, &None), "{release}: {it:?}");
            let is_told = it.text.starts_with(&format!("this is {release}, which cannot have: "));
            assert_eq!(is_told, n >= has, "{it:?}");
        }
    }
}

#[test]
fn who_ran_doctor_by_sudo_types_sudo_again() {
    let mut machine = whole();
    machine.is_by_sudo = true;
    machine.has_zswap = true;
    let command = "echo N | sudo tee /sys/module/zswap/parameters/enabled";
    assert_eq!(found("zswap", &findings(&machine)).command.as_deref(), Some(command));
}

#[test]
fn an_ordinary_user_is_told_what_is_theirs() {
    let user = of_a_user();
    let all = findings(&user);
    assert!(all.iter().all(|it| it.level < Level::Problem), "{all:?}");
    for name in ["root", "loop", "ublk", "locked memory"] {
        assert_eq!(found(name, &all).level, Level::Note);
    }
    let command = "sudo prlimit --pid $$ --memlock=unlimited";
    assert_eq!(found("locked memory", &all).command.as_deref(), Some(command));
    let cases: &[Case] = &[
        (
            |it| _ = it.programs.remove("fusermount3"),
            "fusermount3",
            Level::Problem,
            "without root",
            Some("sudo apt install fuse3"),
        ),
        (
            |it| it.helper_has_rights = false,
            "fusermount3",
            Level::Problem,
            "mount nothing",
            Some("sudo chmod u+s /usr/bin/fusermount3"),
        ),
        (
            |it| _ = it.programs.remove("fuse2fs"),
            "fuse2fs",
            Level::Problem,
            "without root",
            Some("sudo apt install fuse2fs"),
        ),
        (
            |it| it.fuse = Err(refused()),
            "/dev/fuse",
            Level::Problem,
            "only NBD",
            Some("sudo chmod 666 /dev/fuse"),
        ),
        (
            |it| it.has_zswap = true,
            "zswap",
            Level::Note,
            "twice",
            Some("echo N | sudo tee /sys/module/zswap/parameters/enabled"),
        ),
    ];
    check(of_a_user, cases);
    for (change, name, ..) in cases {
        let mut machine = of_a_user();
        change(&mut machine);
        let is_mount = ["fusermount3", "fuse2fs", "/dev/fuse"].contains(name);
        assert_eq!(!abilities(&machine)[1].missing.is_empty(), is_mount, "{name}");
    }
    // Root needs neither of the programs, except in a user namespace.
    let mut machine = whole();
    machine.programs.remove("fuse2fs");
    assert_eq!(found("fuse2fs", &findings(&machine)).level, Level::Ok);
    machine.in_user_namespace = true;
    assert_eq!(found("fuse2fs", &findings(&machine)).level, Level::Problem);
    assert_eq!(abilities(&machine)[1].missing, ["fuse2fs"]);
}

#[test]
fn what_works_and_what_it_lacks() {
    let missing = |machine: &Observed| {
        abilities(machine).into_iter().map(|it| it.missing).collect::<Vec<_>>()
    };
    let root: Vec<&str> = vec!["root"];
    assert_eq!(missing(&of_a_user()), [vec![], vec![], root.clone(), root]);
    let mut machine = whole();
    machine.ublk = Err(ublk::Error::TooOld);
    machine.limits = limited("/sys/fs/cgroup/memory.max");
    machine.loops = Err(absent());
    assert_eq!(
        missing(&machine),
        [vec![], vec!["loop"], vec!["loop"], vec!["loop", "ublk", "control group"]]
    );
    machine.sandbox = Err(refused());
    assert_eq!(missing(&machine)[0], ["sandbox"]);
    // What an ability lacks is a line that is not as it should be.
    let all = findings(&machine);
    for name in missing(&machine).concat() {
        assert!(found(name, &all).level > Level::Ok, "{name}");
    }
}

#[test]
fn the_settings_make_a_file_that_leaves_nothing_to_say() {
    let now = [
        ("vm.page-cluster", 3),
        ("vm.swappiness", 200),
        ("vm.min_free_kbytes", 1),
        ("user.max_user_namespaces", 0),
    ];
    let machine = Observed { settings: now.into(), ..whole() };
    let file = sysctl_file(&machine.settings, machine.memory);
    assert!(file.lines().all(|line| line.is_empty() || line.starts_with('#') || {
        let (name, value) = line.split_once(" = ").unwrap();
        now.iter().any(|known| known.0 == name) && value.parse::<u64>().is_ok()
    }));
    assert!(file.contains("(now 200)\nvm.swappiness = 100\n"), "{file}");
    assert!(!file.contains("user."), "it opens nothing: {file}");
    let set = file.lines().filter_map(|line| line.split_once(" = "));
    let settings = now.into_iter().filter_map(|(name, _)| {
        let (_, value) = set.clone().find(|(set, _)| *set == name)?;
        Some((name, value.parse().unwrap()))
    });
    let machine = Observed { settings: settings.collect(), ..machine };
    assert!(findings(&machine).iter().all(|it| it.level == Level::Ok));
}

#[test]
fn files_of_the_system_are_read() {
    let text = "NAME=\"Rocky Linux\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nX_ID=no\n";
    assert_eq!(distribution(text), "rocky rhel centos fedora");
    assert_eq!(distribution(""), "");
    assert_eq!(chosen("always [madvise] never\n"), "madvise");
    assert_eq!(chosen(""), "");
}
