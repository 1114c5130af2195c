//! What is configured in files: merged, checked, started, and changed while it runs.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Need, TempDir, met};

use crate::common::{Daemon, NbdClient, Place, Said, noise, program, refused, said, wait_until};
use crate::fsck::region_of;
use crate::keep_users::NEEDS;
use crate::keeper::{Keeper, has_resend};

/// A system with these files; a name that ends in @ is a link to /dev/null.
pub fn system(files: &[(&str, &str)]) -> TempDir {
    let top = TempDir::new();
    for (name, text) in files {
        write(&top, name, text);
    }
    top
}

pub fn write(top: &TempDir, name: &str, text: &str) {
    let path = top.join(name.trim_end_matches('@'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match name.ends_with('@') {
        true => symlink("/dev/null", path).unwrap(),
        false => fs::write(path, text).unwrap(),
    }
}

fn command(top: &TempDir, line: &str) -> Command {
    let mut command = program();
    command.env("RAMPACK_CONFIG_ROOT", top.path()).args(line.split_whitespace());
    command
}

/// What `rampack LINE` says on that system, whose directory it does not name.
pub fn says(top: &TempDir, line: &str) -> Said {
    let mut said = said(&command(top, line).output().unwrap());
    for text in [&mut said.out, &mut said.err] {
        *text = text.replace(&format!("{}/", top.path().display()), "/");
    }
    said
}

pub const MAIN: &str = "etc/rampack/rampack.toml";

#[test]
fn show_tells_where_each_value_is_from() {
    let top = system(&[
        (MAIN, "[zram0]\nsize = \"1G\"\nmemory = '100M'\n\n[swap0]\nsize = 'ram / 2'\n"),
        ("usr/lib/rampack/rampack.toml", "[zram9]\n"),
        ("usr/lib/rampack/rampack.toml.d/10-distribution.toml", "[zram0]\nalgorithm = 'lz4'\n"),
        ("usr/lib/rampack/rampack.toml.d/20-vendor.toml", "[zram0]\nalgorithm = 'lzo'\n"),
        ("etc/rampack/rampack.toml.d/20-vendor.toml@", ""),
        ("run/rampack/rampack.toml.d/30-now.toml", "# for now\n[zram0]\nmemory = '50M'\n"),
        ("run/rampack/rampack.toml.d/40-set.toml", "[zram0.set]\nauto_cpu_percent = 9\n"),
    ]);
    let shown = says(&top, "config show");
    assert_eq!(shown.err, "");
    assert_eq!(
        shown.out,
        "# /etc/rampack/rampack.toml\n\
         # /usr/lib/rampack/rampack.toml.d/10-distribution.toml\n\
         # /run/rampack/rampack.toml.d/30-now.toml\n\
         # /run/rampack/rampack.toml.d/40-set.toml\n\
         # hidden by /etc/rampack/rampack.toml.d/20-vendor.toml\n\
         \n[swap0]\n\
         size = 'ram / 2'  # /etc/rampack/rampack.toml:6\n\
         \n[zram0]\n\
         size = \"1G\"  # /etc/rampack/rampack.toml:2\n\
         memory = '50M'  # /run/rampack/rampack.toml.d/30-now.toml:3\n\
         algorithm = 'lz4'  # /usr/lib/rampack/rampack.toml.d/10-distribution.toml:2\n\
         \n[zram0.set]\n\
         auto_cpu_percent = 9  # /run/rampack/rampack.toml.d/40-set.toml:2\n"
    );
    // What is shown is a configuration, the same one.
    write(&top, "shown.toml", &shown.out);
    let again = says(&top, &format!("config show {}", top.join("shown.toml").display()));
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split("  #").next().unwrap().to_owned()).collect()
    };
    assert_eq!(values(&again.out), values(&shown.out));
}

#[test]
fn check_tells_what_would_be() {
    let top = system(&[(
        MAIN,
        "[zram2]\nsize = 'min(ram, 3M + 1M)'\nalgorithm = 'zstd'\nmount = '/mnt/a b'\n\
         [zram2.set]\nmem_limit = '1M'\n[swap0]\nsize = '1G'\nmemory = '10%'\nauto = false\n\
         transport = 'fuse'\n[swap1]\nbacking = '/b'\nplain-backing = true\n\
         backing-layout = 'log'\n[serve]\ntransport = 'auto'\nnbd-allow-uid = [1, 2]\n\
         force = true\n",
    )]);
    let said = says(&top, "config check");
    assert_eq!(
        (&*said.out, &*said.err),
        (
            "files: /etc/rampack/rampack.toml\n\
             serve: transport=auto nbd-allow-uid=1,2 force=true\n\
             zram2: comp_algorithm=zstd disksize=4194304 mem_limit=1M mount=/mnt/a b\n\
             swap0: auto=N max_pool_bytes=0 max_pool_percent=10 priority=100 size=1G \
             transport=fuse\n\
             swap1: auto=Y backing=/b backing_layout=log plain_backing=true priority=100\n",
            ""
        )
    );
    write(&top, "proc/cmdline", "quiet rampack=0\n");
    assert!(says(&top, "config check").out.contains("\nrampack=0 is on the kernel's command"));
    assert_eq!(says(&system(&[]), "config check").out, "no device is configured\n");
}

#[test]
fn check_has_remote_stores_without_their_passwords() {
    let remote = |words: &str| {
        let text = format!("[zram0]\nsize = '1M'\nbacking = '/nowhere/b'\nremote = [{words}]\n");
        says(&system(&[(MAIN, &*text)]), "config check")
    };
    let said = remote("'redis://:pass@h:1/0', 'cold=9'");
    assert_eq!((said.code, &*said.err), (0, ""));
    assert!(said.out.ends_with(" backing_remote=redis://…@h:1/0 cold=9\n"), "{}", said.out);
    let said = remote("'redis://:pass@h:1/0', 'soon=9'");
    refused(&said, 1, &["rampack.toml:4: remote: ", "soon", "EINVAL"]);
    assert!(!said.err.contains("pass"), "{}", said.err);
}

#[test]
fn faults_have_file_and_line() {
    let top = system(&[
        (MAIN, "[zram0]\nsize = 'plenty'\n\n[swap0]\nseize = '1G'\n"),
        ("run/rampack/rampack.toml.d/a.toml", "[zram0]\nalgorithm = 'lzma'\n[zram1\n"),
    ]);
    let place = Place::new();
    let root = place.root();
    let serve = format!("--root {} serve --config", root.display());
    // A service manager knows by the code of a daemon that another start would not help.
    for (line, code) in
        [("config check", 1), ("config show", 1), (&*serve, 3), ("swap on --config", 3)]
    {
        let said = says(&top, line);
        refused(
            &said,
            code,
            &[
                "/etc/rampack/rampack.toml:2: size = 'plenty': \"plenty\" is not a size",
                "/etc/rampack/rampack.toml:4: [swap0]: size is missing",
                "/etc/rampack/rampack.toml:5: [swap0] has no seize; there are: size backing",
                "/run/rampack/rampack.toml.d/a.toml:3: not TOML:",
                "(EINVAL)",
            ],
        );
    }
    let top = system(&[(MAIN, "[zram0]\nsize = 'x'\n[zram0.set]\nmem_limit = 'y'\n")]);
    let said = says(&top, "config check");
    assert_eq!(said.err.matches("(EINVAL)").count(), 1, "{}", said.err);
    let top = system(&[(MAIN, "[zram0]\nset.mem_limt = 1\n")]);
    let words = ["rampack.toml:2: ", "mem_limt", "mem_limit"];
    refused(&says(&top, "config check"), 1, &words);
    let none = says(&top, "config check /nowhere/x.toml");
    refused(&none, 1, &["cannot read /nowhere/x.toml", "ENOENT"]);
    place.is_clean();
}

#[test]
fn a_command_line_beside_a_configuration_is_refused() {
    for line in [
        "serve --config --size 1G",
        "serve --config --memory 1M",
        "serve --config --transport nbd",
        "serve --config --lock-memory",
        "serve --config --nbd-tcp 10809",
        "swap on --config --size 1G",
        "swap on --config --transport fuse",
        "swap on --config --front zswap",
        "swap on --config --headroom 1M",
        "swap on --config --oom-after 3",
        "swap on --config --no-auto",
    ] {
        let said = said(&program().args(line.split(' ')).output().unwrap());
        let command = line.split(" --").next().unwrap_or_default();
        let usage = format!("Usage: rampack {command}");
        refused(&said, 2, &["--config", "cannot be used with", &usage]);
    }
}

#[test]
fn import_reads_each_option_of_zram_generator() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let conf = fs::read_to_string(golden.join("zram-generator.conf")).unwrap();
    let top = system(&[("usr/lib/systemd/zram-generator.conf", &*conf)]);
    let said = says(&top, "config import");
    assert_eq!(said.code, 0, "{}", said.err);
    let path = golden.join("rampack.toml");
    if std::env::var_os("RAMPACK_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, &said.out).unwrap();
    }
    assert_eq!(said.out, fs::read_to_string(&path).unwrap());
    // What has no counterpart is told as well.
    let notes = said.out.lines().filter_map(|line| line.strip_prefix("# /"));
    let told: String = notes.map(|note| format!("rampack: /{note}\n")).collect();
    assert_eq!(said.err, told);
    // And the rest is a configuration.
    write(&top, MAIN, &said.out);
    assert_eq!(says(&top, "config check").err, "");
    // Drop-ins count as zram-generator has them: /run is above /etc.
    let name = "systemd/zram-generator.conf.d/a.conf";
    write(&top, &format!("etc/{name}"), "[zram2]\nmax-zram-size = 1\n");
    write(&top, &format!("run/{name}"), "[zram2]\nmax-zram-size = 2\n");
    assert!(says(&top, "config import").out.contains("\"min(ram * 0.25, 2M)\""));
    // A file of something else is none of zram-generator's; one that has nothing yet is.
    write(&top, "other.conf", "[Unit]\nDescription=x\n");
    let other = says(&top, &format!("config import {}", top.join("other.conf").display()));
    let words =
        ["/other.conf:1: [Unit] is of no zram device", "no zram device is in that", "EINVAL"];
    refused(&other, 1, &words);
    write(&top, "empty.conf", "# later\n");
    let empty = says(&top, &format!("config import {}", top.join("empty.conf").display()));
    assert_eq!((empty.code, &*empty.out), (0, "# From zram-generator.\n"));
}

#[test]
fn the_kernels_command_line_turns_all_off() {
    let top = system(&[
        (MAIN, "[zram0]\nsize = '1M'\n[swap0]\nsize = '1M'\n"),
        ("proc/cmdline", "root=/dev/vda rampack=0"),
    ]);
    let place = Place::new();
    for line in ["serve --config", "swap on --config"] {
        let said = says(&top, &format!("--root {} {line}", place.root().display()));
        let expected = "rampack: rampack=0 is on the kernel's command line: nothing is started\n";
        assert_eq!((said.code, &*said.out, &*said.err), (0, "", expected), "{line}");
    }
    place.is_clean();
    let said = says(&system(&[]), "serve --config");
    assert_eq!(
        (said.code, &*said.err),
        (0, "rampack: no disk is configured: nothing is started\n")
    );
}

/// A daemon of the configuration of `top`.
pub fn serve(top: &TempDir, place: &Place) -> Daemon {
    let mut command = Daemon::command_in(place, "serve --config");
    Daemon::spawn(place, command.env("RAMPACK_CONFIG_ROOT", top.path()))
}

#[test]
fn disks_are_started_from_a_file_and_used() {
    let top = system(&[
        (MAIN, "[serve]\ntransport = 'nbd'\n\n[zram0]\nsize = '4M'\nmemory = '2M'\n"),
        ("etc/rampack/rampack.toml.d/more.toml", "[zram7]\nsize = '2M * 2 + 1M'\n"),
    ]);
    let place = Place::new();
    let daemon = serve(&top, &place);
    assert_eq!(daemon.does("get zram7 disksize"), "5242880\n");
    assert!(daemon.does("get zram0 mm_stat").contains(" 2097152 "));
    let mut client = NbdClient::connect(&daemon.nbd(), "zram7").unwrap();
    assert_eq!(client.write(4096, &noise(7)), 0);
    assert_eq!(client.read(4096, 4096), noise(7)[..4096]);
    drop(client);
    refused(&daemon.ask("get zram1 disksize"), 1, &["there are: zram0 zram7"]);
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_disk_that_cannot_be_made_stops_no_other() {
    let config = "[serve]\ntransport = 'nbd'\n[zram0]\nbacking = '/nowhere/x'\n[zram1]\n";
    let (top, place) = (system(&[(MAIN, config)]), Place::new());
    let daemon = serve(&top, &place);
    assert!(daemon.greeting.contains("zram0 is not made: "), "{}", daemon.greeting);
    assert_eq!(daemon.does("get zram1 disksize"), "1073741824\n");
    daemon.stop();
    write(&top, MAIN, "[serve]\ntransport = 'nbd'\n[zram0]\nbacking = '/nowhere/x'\n");
    let said = says(&top, &format!("--root {} serve --config", place.root().display()));
    refused(&said, 3, &["zram0 is not made: ", "/nowhere/x"]);
    place.is_clean();
}

#[test]
fn a_swap_device_that_a_daemon_cannot_make_stops_no_other() {
    let config = "[swap0]\nsize = '1M'\n[swap1]\nsize = '1M'\n";
    let (top, place) = (system(&[(MAIN, config)]), Place::new());
    // It makes no block devices.
    let daemon = Daemon::start(&place, "serve --size 1M --transport nbd");
    let said = says(&top, &format!("--root {} swap on --config", place.root().display()));
    refused(&said, 3, &["swap0 is not made: ", "swap1 is not made: "]);
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_running_daemon_follows_what_it_can() {
    let before = "[serve]\ntransport = 'nbd'\n[zram0]\nsize = '4M'\nmemory = '2M'\n[zram1]\n";
    let (top, place) = (system(&[(MAIN, before)]), Place::new());
    let daemon = serve(&top, &place);
    let apply = |line: &str| {
        let said = says(&top, &format!("--root {} config apply {line}", place.root().display()));
        assert_eq!(said.code, i32::from(!said.err.is_empty()), "{line}");
        said.out + &said.err
    };
    assert_eq!(apply(""), "");
    let after = "[serve]\ntransport = 'nbd'\nnbd-read-only = true\n[zram0]\nsize = '4M'\n\
                 algorithm = 'lz4'\nmemory = '3M'\n[zram2]\nsize = '1M'\n[zram3]\nbacking = '/nowhere/x'\n";
    write(&top, MAIN, after);
    let not = "zram0: comp_algorithm=lz4 is not followed: it was made with no comp_algorithm\n\
               zram1 is not configured any more, and stays until `rampack config apply --remove` \
               or `rampack remove zram1`\n\
               [serve]: nbd-read-only=true is followed from the next start on: restart the \
               service\n";
    let would = "zram0: mem_limit would be 3M\nzram2 would be made\nzram3 would be made\n";
    assert_eq!(apply("--dry-run"), format!("{not}{would}"));
    assert!(daemon.does("get zram0 mm_stat").contains(" 2097152 "));
    let done = apply("");
    let is = "zram0: mem_limit is 3M now\nzram2 is made\nrampack: zram3 is not made: ";
    let is = format!("{not}{would}{is}");
    assert!(done.starts_with(&is), "{done}");
    assert!(daemon.does("get zram0 mm_stat").contains(" 3145728 "));
    assert_eq!(daemon.does("get zram2 disksize"), "1048576\n");
    // What an administrator set since stays, and what was not made is tried again.
    daemon.does("set zram0 mem_limit=1M");
    assert_eq!(apply("--dry-run"), format!("{not}zram3 would be made\n"));
    assert!(daemon.does("get zram0 mm_stat").contains(" 1048576 "));
    // Faults change nothing.
    write(&top, MAIN, "[zram0]\nmemory = '9M'\nsize = 'x'\n");
    let line = format!("--root {} config apply", place.root().display());
    refused(&says(&top, &line), 1, &["/etc/rampack/rampack.toml:3: size = 'x'"]);
    assert!(daemon.does("get zram0 mm_stat").contains(" 1048576 "));
    daemon.stop();
    let daemon = Daemon::start(&place, "serve --size 1M --transport nbd");
    write(&top, MAIN, "[zram0]\n");
    refused(&says(&top, &line), 1, &["not started with --config", "ENOTSUP"]);
    daemon.stop();
    place.is_clean();
}

#[test]
fn auto_is_turned_off_in_a_file() {
    let text = "[serve]\ntransport = 'nbd'\n[zram0]\nsize = '4M'\nauto = true\n";
    let (top, place) = (system(&[(MAIN, text)]), Place::new());
    let daemon = serve(&top, &place);
    assert_eq!(daemon.does("get zram0 auto"), "1\n");
    write(&top, MAIN, &text.replace("auto = true", "auto = false"));
    let said = says(&top, &format!("--root {} config apply", place.root().display()));
    assert_eq!(said.out, "zram0: auto would be 0\nzram0: auto is 0 now\n", "{}", said.err);
    assert_eq!(daemon.does("get zram0 auto"), "0\n");
    daemon.stop();
    place.is_clean();
}

/// A keeper of a daemon of the configuration of `top`.
pub fn keep(top: &TempDir, place: &Place) -> Keeper {
    let mut command = program();
    command.env("RAMPACK_CONFIG_ROOT", top.path());
    Keeper::start_by(command, place, "serve --config")
}

#[test]
fn what_was_left_is_served_whatever_is_wrong_in_a_file() {
    let text = "[serve]\ntransport = 'nbd'\nnbd-allow-uid = [\n  65534,\n]\n[zram0]\nsize = '4M'\n";
    let (top, place) = (system(&[(MAIN, text)]), Place::new());
    let mut keeper = keep(&top, &place);
    let client = || NbdClient::connect(&place.root().join("nbd.sock"), "zram0").unwrap();
    assert_eq!(client().write(4096, &noise(7)), 0);
    write(&top, MAIN, "[zram0\n");
    refused(&keeper.ask("upgrade"), 1, &["cannot take over", "rampack.toml:1: not TOML", "EINVAL"]);
    keeper.kill(libc::SIGKILL);
    keeper.says("the configuration is not followed: /");
    assert_eq!(client().read(4096, 4096), noise(7)[..4096]);
    // As it was before.
    let mode = fs::metadata(keeper.nbd()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    write(&top, MAIN, &format!("{text}memory = '1M'\n[zram1]\n"));
    let said = says(&top, &format!("--root {} config apply", place.root().display()));
    let is = "zram0: mem_limit is 1M now\nzram1 is made\n";
    assert!(said.out.ends_with(is), "{}{}", said.out, said.err);
    keeper.stop();
    place.is_clean();
}

/// Nobody has to repair the configuration before the daemon is stopped.
#[test]
fn a_disk_is_saved_at_the_end_whatever_is_wrong_in_a_file() {
    let (first, second) = ("size = '4M'\nsnapshot = '/SAVED'\n", "[zram1]\nsize = '1M'\n");
    let place = Place::new();
    let (file, other) = (place.path().join("kept.snap"), place.path().join("other.snap"));
    let of = |first: &str, file: &Path| first.replace("/SAVED", file.to_str().unwrap());
    let text = format!("[serve]\ntransport = 'nbd'\n[zram0]\n{}{second}", of(first, &file));
    let top = system(&[(MAIN, &*text)]);
    let mut keeper = keep(&top, &place);
    let client = || NbdClient::connect(&place.root().join("nbd.sock"), "zram0").unwrap();
    let apply = format!("--root {} config apply", place.root().display());
    let die = |keeper: &mut Keeper| {
        write(&top, MAIN, "[zram0\n");
        keeper.kill(libc::SIGKILL);
        keeper.wait();
    };
    assert_eq!(client().write(4096, &noise(7)), 0);
    die(&mut keeper);
    keeper.says("the configuration is not followed: /");
    keeper.stop();
    assert!(fs::metadata(&file).is_ok_and(|it| it.len() > 4096), "it is saved");
    // What it is saved to changes while it is there, and is known after the next death.
    write(&top, MAIN, &text);
    let mut keeper = self::keep(&top, &place);
    keeper.serves("zram1");
    assert_eq!(client().read(4096, 4096), noise(7)[..4096]);
    assert_eq!(client().write(4096, &noise(8)), 0);
    write(&top, MAIN, &text.replace("kept.snap", "none/x"));
    let said = says(&top, &apply);
    assert!(said.err.contains("zram0: snapshot stays: cannot write "), "{}{}", said.out, said.err);
    write(&top, MAIN, &text.replace("kept.snap", "other.snap"));
    let (would, is) =
        (format!("would be {}\n", other.display()), format!("is {} now\n", other.display()));
    assert_eq!(says(&top, &apply).out, format!("zram0: snapshot {would}zram0: snapshot {is}"));
    die(&mut keeper);
    keeper.stop();
    assert!(other.exists());
    // What is removed from the configuration is not saved any more.
    write(&top, MAIN, &text);
    let mut keeper = self::keep(&top, &place);
    keeper.serves("zram1");
    assert_eq!(client().read(4096, 4096), noise(7)[..4096]);
    write(&top, MAIN, &format!("[serve]\ntransport = 'nbd'\n[zram0]\nsize = '4M'\n{second}"));
    let said = says(&top, &apply).out;
    assert_eq!(said, "zram0: snapshot would be none\nzram0: snapshot is none now\n");
    fs::remove_file(&file).unwrap();
    die(&mut keeper);
    keeper.stop();
    assert!(!file.exists());
    fs::remove_file(&other).unwrap();
    place.is_clean();
}

#[test]
fn swap_devices_beside_disks_are_served_before_files_are_read() {
    let name = "swap_devices_beside_disks_are_served_before_files_are_read";
    if !met(name, &crate::keep_swap::needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let text = "[zram0]\nsize = '1M'\n";
    let (top, place) = (system(&[(MAIN, text)]), Place::new());
    let mut keeper = keep(&top, &place);
    keeper.does("swap on --size 8M --force");
    // Whoever reads the file waits until it is written.
    fs::remove_file(top.join(MAIN)).unwrap();
    testkit::run(Command::new("mkfifo").arg(top.join(MAIN)));
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    assert!(keeper.does("status --json").contains("\"swap0\""));
    write(&top, MAIN, &format!("{text}[zram1]\n"));
    keeper.says("zram1 is made");
    keeper.does("swap off");
    keeper.stop();
    place.is_clean();
}

/// A system with two disks that are mounted, one below the other.
fn mounted(place: &Place) -> (TempDir, PathBuf) {
    let outer = place.path().join("outer");
    let text = format!(
        "[zram0]\nsize = '16M'\nmount = '{0}/inner'\nfs = 'ext2'\n\n[zram1]\nsize = '32M'\n\
         mount = '{0}'\n",
        outer.display()
    );
    (system(&[(MAIN, &*text)]), outer)
}

#[test]
fn file_systems_are_mounted_and_unmounted() {
    if !met("file_systems_are_mounted_and_unmounted", &NEEDS) {
        return;
    }
    let place = Place::new();
    let (top, outer) = mounted(&place);
    let daemon = serve(&top, &place);
    let at = place.mounts();
    assert!(at.contains(&outer) && at.contains(&outer.join("inner")), "{at:?}");
    fs::write(outer.join("inner/file"), "text").unwrap();
    let status = daemon.does("status");
    assert!(status.contains(&outer.join("inner").display().to_string()), "{status}");
    // A stop that is refused leaves everything mounted.
    let file = fs::File::open(outer.join("file")).or_else(|_| fs::File::create(outer.join("file")));
    refused(&daemon.ask("stop"), 1, &["EBUSY"]);
    assert_eq!(fs::read_to_string(outer.join("inner/file")).unwrap(), "text");
    drop(file);
    daemon.stop();
    place.is_clean();
}

#[test]
fn disks_and_mounts_come_back_after_a_kill() {
    let name = "disks_and_mounts_come_back_after_a_kill";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    let (top, outer) = mounted(&place);
    let mut keeper = keep(&top, &place);
    wait_until("it is mounted", || place.mounts().contains(&outer.join("inner")));
    fs::write(outer.join("inner/file"), "text").unwrap();
    fs::write(outer.join("file"), "outer").unwrap();
    let text = fs::read_to_string(top.join(MAIN)).unwrap();
    let text = text.replace("size = '16M'", "size = '16M'\nmemory = '8M'");
    write(&top, MAIN, &format!("{text}\n[zram2]\nsize = '1M'\n"));
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    wait_until("the new disk is made", || keeper.ask("get zram2 disksize").code == 0);
    assert_eq!(fs::read_to_string(outer.join("inner/file")).unwrap(), "text");
    assert_eq!(fs::read_to_string(outer.join("file")).unwrap(), "outer");
    assert!(keeper.does("get zram0 mm_stat").contains(" 8388608 "));
    assert!(keeper.does("get zram1 mm_stat").split_whitespace().nth(3) == Some("0"));
    let apply = format!("--root {} config apply", place.root().display());
    assert_eq!(says(&top, &apply).out, "");
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_disk_of_the_name_of_one_that_was_not_made_is_kept() {
    let name = "a_disk_of_the_name_of_one_that_was_not_made_is_kept";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    let mount = place.path().join("mount");
    let text = format!(
        "[zram0]\nsize = '1M'\n[zram1]\nbacking = '/nowhere/x'\nmount = '{}'\n",
        mount.display()
    );
    let top = system(&[(MAIN, &*text)]);
    let mut keeper = keep(&top, &place);
    keeper.says("zram1 is not made: ");
    keeper.does("add --size 3M");
    assert_eq!(keeper.does("get zram1 disksize"), "3145728\n");
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    wait_until("it serves", || keeper.ask("get zram0 disksize").code == 0);
    assert_eq!(keeper.does("get zram1 disksize"), "3145728\n");
    keeper.stop();
    place.is_clean();
}

#[test]
fn the_file_system_of_a_disk_that_was_emptied_or_unloaded_is_forgotten() {
    let name = "the_file_system_of_a_disk_that_was_emptied_or_unloaded_is_forgotten";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let unload = ["set class/zram-control unload=1", "add --size 16M"];
    for lines in [&["reset zram0"][..], &unload] {
        let place = Place::new();
        let at = place.path().join("a");
        let text = format!(
            "[zram0]\nsize = '16M'\nmount = '{}'\n[zram1]\nbacking = '/nowhere/x'\nmount = '{}'\n",
            at.display(),
            place.path().join("b").display()
        );
        let top = system(&[(MAIN, &*text)]);
        let mut keeper = keep(&top, &place);
        // The last that a start does.
        let refused = |keeper: &Keeper| keeper.said().matches("zram1 is not made: ").count();
        wait_until("it has begun", || refused(&keeper) == 1);
        host::unmount(&at, host::Unmount::WhenUnused).unwrap();
        for line in lines {
            keeper.does(line);
        }
        keeper.kill(libc::SIGKILL);
        wait_until("the next one has begun", || refused(&keeper) == 2);
        assert!(!keeper.said().contains("no longer mounted"), "{}", keeper.said());
        keeper.stop();
        place.is_clean();
    }
}

#[test]
fn a_disk_that_was_begun_and_is_in_use_stops_no_other_and_stays() {
    let name = "a_disk_that_was_begun_and_is_in_use_stops_no_other_and_stays";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    // It takes as long as the test wants.
    let text = format!(
        "#!/bin/sh\n: > {0}/begun\nwhile [ ! -e {0}/end ]; do sleep 0.01; done\nexit 1\n",
        place.path().display()
    );
    let mkfs = place.path().join("mkfs.ext4");
    testkit::script(&mkfs, &text);
    let top = system(&[(MAIN, "[zram0]\nsize = '16M'\nfs = 'ext4'\n[zram1]\nsize = '1M'\n")]);
    let mut command = program();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", place.path().display()));
    command.env("RAMPACK_CONFIG_ROOT", top.path());
    let mut keeper = Keeper::start_by(command, &place, "serve --config");
    wait_until("it is begun", || place.path().join("begun").exists());
    let file = fs::File::open(keeper.block_device("zram0")).unwrap();
    keeper.kill(libc::SIGKILL);
    fs::write(place.path().join("end"), "").unwrap();
    keeper.wait();
    keeper.says("zram0 stays, with a part of a file system");
    wait_until("the other is made", || keeper.ask("get zram1 disksize").code == 0);
    // Who has it now keeps it.
    drop(file);
    keeper.does("remove zram1");
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    wait_until("the other is made again", || keeper.ask("get zram1 disksize").code == 0);
    assert_eq!(keeper.does("get zram0 disksize"), "16777216\n");
    keeper.stop();
    place.is_clean();
}

/// Has the next daemon find a disk that it cannot take over.
pub fn damage(keeper: &mut Keeper, disk: &str) {
    let record = region_of(keeper.process() as u32, &format!("{disk}.1.record"));
    record.write_all_at(&[7; 8], 0).unwrap();
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    keeper.says("what there is of it stays");
}

#[test]
fn a_disk_that_could_not_be_taken_over_is_not_made_again() {
    if !met("a_disk_that_could_not_be_taken_over_is_not_made_again", &[Need::Root]) {
        return;
    }
    let text = "[serve]\ntransport = 'nbd'\n[zram0]\nsize = '4M'\n[zram1]\nsize = '4M'\n";
    let (top, place) = (system(&[(MAIN, text)]), Place::new());
    let mut keeper = keep(&top, &place);
    keeper.serves("zram1");
    damage(&mut keeper, "zram1");
    let apply = format!("--root {} config apply", place.root().display());
    assert_eq!(says(&top, &format!("{apply} --dry-run")).out, "");
    // What it was asked for is known on.
    write(&top, MAIN, &format!("{text}memory = '1M'\nalgorithm = 'lz4'\n"));
    let not = "zram1: comp_algorithm=lz4 is not followed: it was made with no comp_algorithm\n";
    for _ in 0..2 {
        let said = says(&top, &apply);
        assert!(said.out.starts_with(not) && !said.out.contains("made: "), "{}", said.out);
    }
    keeper.stop();
    place.is_clean();
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "up --size 4M --transport nbd");
    damage(&mut keeper, "zram0");
    // Until then its start is under way.
    wait_until("it has begun", || keeper.ask("upgrade").code == 0);
    let status: serde_json::Value = serde_json::from_str(&keeper.does("status --json")).unwrap();
    assert_eq!(status["devices"].as_array().unwrap().len(), 1, "{status}");
    keeper.stop();
    place.is_clean();
}

#[test]
fn swap_devices_that_are_served_again_follow_the_files() {
    let name = "swap_devices_that_are_served_again_follow_the_files";
    if !met(name, &crate::keep_swap::needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let swap = |number, more| {
        format!("[swap{number}]\nsize = '8M'\ntransport = 'fuse'\nforce = true\n{more}")
    };
    let (top, place) = (system(&[(MAIN, &*swap(0, ""))]), Place::new());
    let mut command = program();
    command.env("RAMPACK_CONFIG_ROOT", top.path());
    let mut keeper = Keeper::start_swap_by(command, &place, "swap on --config");
    let next = |keeper: &mut Keeper, text: &str, said: &str| {
        write(&top, MAIN, text);
        keeper.kill(libc::SIGKILL);
        keeper.wait();
        keeper.says(said);
    };
    next(&mut keeper, "", "swap0 is not configured any more");
    next(&mut keeper, &swap(1, "backing = '/nowhere/x'\n"), "swap1 is not made: ");
    next(&mut keeper, "[swap0\n", "the configuration is not followed: ");
    assert_eq!(keeper.said().matches("swap1 is not made: ").count(), 1, "{}", keeper.said());
    keeper.does("swap off");
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}
