//! The control tree's files behave as sysfs's do.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use testkit::{Need, Rng, met};

use crate::common::{DESIGN, Daemon, Place};

struct Tree {
    place: Place,
    daemon: Daemon,
}

impl Tree {
    fn new(devices: u32) -> Tree {
        let place = Place::new();
        let line = format!("serve --transport nbd --num-devices {devices}");
        let daemon = Daemon::start(&place, &line);
        Tree { place, daemon }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.place.root().join("sys").join(path)
    }

    fn end(self) {
        self.daemon.stop();
        self.place.is_clean();
    }
}

#[track_caller]
fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().expect("it is refused").raw_os_error().unwrap()
}

#[test]
fn a_value_is_taken_when_it_is_read_from_the_beginning() {
    if !met("a_value_is_taken_when_it_is_read_from_the_beginning", &[Need::Fuse]) {
        return;
    }
    let tree = Tree::new(1);
    let path = tree.path("block/zram0/disksize");
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.len(), found.permissions().mode() & 0o777), (4096, 0o644));
    let mut file = File::open(&path).unwrap();
    let mut byte = [0; 1];
    file.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"0");
    fs::write(&path, "1M\n").unwrap();
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "\n", "the rest of what was taken");
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "\n1048576\n", "and what it is now");
    let mut part = [0; 3];
    assert_eq!(file.read_at(&mut part, 2).unwrap(), 3);
    assert_eq!(&part, b"485");
    assert_eq!(file.read_at(&mut part, 4000).unwrap(), 0);
    drop(file);
    tree.end();
}

#[test]
fn only_root_looks_into_the_directory_of_exec() {
    if !met("only_root_looks_into_the_directory_of_exec", &[Need::Fuse]) {
        return;
    }
    let tree = Tree::new(1);
    let mode = |path: &str| fs::metadata(tree.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(".exec"), 0o700);
    assert_eq!(mode(".exec/dev"), 0o755, "as a mount of it shows it");
    assert_eq!(mode("block"), 0o755);
    tree.end();
}

#[test]
fn a_refused_write_is_in_the_log() {
    if !met("a_refused_write_is_in_the_log", &[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "-v serve --transport nbd --num-devices 1");
    let path = place.root().join("sys/block/zram0/comp_algorithm");
    assert_eq!(errno(fs::write(&path, "lz\x1b5\n")), libc::EINVAL);
    let line = daemon.lines_until(&["refused"]);
    for word in ["block/zram0/comp_algorithm", "refused", "lz\\u{1b}5", "lz4"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    assert_eq!(daemon.ask("set zram0 disksize 0").code, 1);
    let line = daemon.lines_until(&["zram0/disksize"]);
    assert!(line.contains("refused \"0\""), "{line}");
    // Neither line has an escape sequence: the log is no terminal.
    assert!(!line.contains('\x1b'), "{line:?}");
    daemon.stop();
}

#[test]
fn each_write_is_a_value() {
    if !met("each_write_is_a_value", &[Need::Fuse]) {
        return;
    }
    let tree = Tree::new(1);
    let limit = tree.path("block/zram0/mem_limit");
    let limit_now = || {
        let stat = fs::read_to_string(tree.path("block/zram0/mm_stat")).unwrap();
        stat.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap()
    };
    let mut file = OpenOptions::new().write(true).open(&limit).unwrap();
    for (text, value) in [("1M\n", 1 << 20), ("2M", 2 << 20), ("8K\0rubbish", 8192)] {
        assert_eq!(file.write(text.as_bytes()).unwrap(), text.len());
        assert_eq!(limit_now(), value, "{text:?}");
    }
    assert_eq!(file.write_at(b"4K\n", 77).unwrap(), 3, "wherever it is aimed at");
    assert_eq!(limit_now(), 4096);
    assert_eq!(file.write(b"").unwrap(), 0);
    assert_eq!(errno(file.write(b"much")), libc::EINVAL);
    assert_eq!(limit_now(), 4096);
    for length in [4097, 10_000, 300_000] {
        assert_eq!(file.write(&vec![b'0'; length]).unwrap(), 4096, "a page of {length} is taken");
    }
    drop(file);
    // What shells and editors of lines do.
    for flags in [libc::O_TRUNC, libc::O_APPEND, libc::O_CREAT | libc::O_TRUNC] {
        let mut file = OpenOptions::new().write(true).custom_flags(flags).open(&limit).unwrap();
        file.write_all(b"1M\n").unwrap();
        assert_eq!(limit_now(), 1 << 20);
        file.write_all(b"0\n").unwrap();
    }
    File::open(tree.path("block/zram0/mm_stat")).unwrap().sync_all().unwrap();
    tree.end();
}

#[test]
fn a_file_has_the_directions_of_its_mode() {
    if !met("a_file_has_the_directions_of_its_mode", &[Need::Fuse]) {
        return;
    }
    let tree = Tree::new(1);
    let open = |path: &str, read: bool, write: bool| {
        OpenOptions::new().read(read).write(write).open(tree.path(path)).map(drop)
    };
    for path in ["block/zram0/reset", "class/zram-control/hot_remove"] {
        assert_eq!(errno(open(path, true, false)), libc::EACCES, "{path}");
        assert_eq!(errno(open(path, true, true)), libc::EACCES, "{path}");
        open(path, false, true).unwrap();
    }
    for path in ["block/zram0/initstate", "class/zram-control/hot_add"] {
        assert_eq!(errno(open(path, false, true)), libc::EACCES, "{path}");
        open(path, true, false).unwrap();
    }
    open("block/zram0/comp_algorithm", true, true).unwrap();
    assert!(!tree.path("block/zram1").exists(), "opening alone makes no device");
    tree.end();
}

#[test]
fn nothing_can_be_made_or_moved() {
    if !met("nothing_can_be_made_or_moved", &[Need::Fuse]) {
        return;
    }
    let tree = Tree::new(1);
    let (row, new) = (tree.path("block/zram0/disksize"), tree.path("block/zram0/new"));
    assert_eq!(errno(fs::create_dir(&new)), libc::EPERM);
    assert_eq!(errno(File::create(&new)), libc::EACCES);
    assert_eq!(errno(symlink("x", &new)), libc::EPERM);
    assert_eq!(errno(fs::hard_link(&row, &new)), libc::EPERM);
    assert_eq!(errno(fs::rename(&row, &new)), libc::EPERM);
    assert_eq!(errno(fs::remove_file(&row)), libc::EPERM);
    assert_eq!(errno(fs::remove_dir(tree.path("block/zram0/queue"))), libc::EPERM);
    assert_eq!(errno(fs::set_permissions(&row, fs::Permissions::from_mode(0o777))), libc::EPERM);
    assert_eq!(errno(fs::read(tree.path("block/zram0"))), libc::EISDIR);
    assert_eq!(errno(fs::read_dir(&row)), libc::ENOTDIR);
    assert_eq!(errno(fs::metadata(tree.path("block/zram7"))), libc::ENOENT);
    tree.end();
}

#[test]
fn what_was_removed_is_gone_for_who_has_it_open() {
    if !met("what_was_removed_is_gone_for_who_has_it_open", &[Need::Fuse]) {
        return;
    }
    let tree = Tree::new(1);
    let mut size = File::open(tree.path("block/zram0/disksize")).unwrap();
    let directory = tree.path("block/zram0");
    let before = fs::metadata(&directory).unwrap().ino();
    fs::write(tree.path("class/zram-control/hot_remove"), "0").unwrap();
    assert!(!directory.exists());
    let mut text = String::new();
    assert_eq!(errno(size.read_to_string(&mut text)), libc::ENODEV);
    let added = fs::read_to_string(tree.path("class/zram-control/hot_add")).unwrap();
    assert_eq!(added, "0\n");
    assert_eq!(errno(size.read_to_string(&mut text)), libc::ENODEV, "another device");
    assert_ne!(fs::metadata(&directory).unwrap().ino(), before);
    assert_eq!(fs::read_to_string(directory.join("disksize")).unwrap(), "0\n");
    drop(size);
    let listed = |path: &str| {
        let names = fs::read_dir(tree.path(path)).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(listed("block"), ["zram0"]);
    assert_eq!(listed(""), ["block", "class", "fs", "kernel", "module"], "nothing else is listed");
    let control = ["hot_add", "hot_remove", "load", "unload"];
    assert_eq!(listed("class/zram-control"), control);
    tree.end();
}

/// Devices come, get a size, are looked at, reset and removed by more threads than the mount has.
#[test]
fn many_at_once_wait_for_each_other_and_end() {
    if !met("many_at_once_wait_for_each_other_and_end", &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 2");
    let top = place.root().join("sys");
    let seed = testkit::seed("many_at_once_wait_for_each_other_and_end");
    thread::scope(|scope| {
        for number in 0..24 {
            let top = &top;
            scope.spawn(move || {
                let mut rng = Rng::new(seed.wrapping_add(number));
                for _ in 0..12 {
                    let device = top.join(format!("block/zram{}", rng.below(4)));
                    // Anything may be refused; nothing may hang.
                    let _ = match rng.below(6) {
                        0 => fs::write(device.join("disksize"), "1M"),
                        1 => fs::write(device.join("reset"), "1"),
                        2 => fs::read(top.join(".exec/dev/zram0")).map(drop),
                        3 if number % 8 == 0 => {
                            fs::read(top.join("class/zram-control/hot_add")).map(drop)
                        }
                        4 => fs::write(
                            top.join("class/zram-control/hot_remove"),
                            (2 + rng.below(2)).to_string(),
                        ),
                        _ => fs::read(device.join("mm_stat")).map(drop),
                    };
                    let names = fs::read_dir(top.join(".exec/dev")).unwrap();
                    assert!(names.flatten().any(|entry| entry.file_name() == "null"));
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(top.join("block/zram0/ro")).unwrap(), "0\n");
    daemon.stop();
    place.is_clean();
}

/// A daemon of an ordinary user: with a `/dev/fuse` for everybody, as most systems have it, in a
/// mount namespace where it harms nobody. `$1` is the program, `$2` a directory.
const ORDINARY: &str = r#"
mount -t tmpfs none "$2"
chmod 1777 "$2"
mknod -m 666 "$2/fuse" c 10 229
mount --bind "$2/fuse" /dev/fuse
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
cp "$1" "$2/rampack"
chmod 755 "$2/rampack"
as_nobody mkfifo "$2/said"
as_nobody "$2/rampack" --root "$2/root" serve --num-devices 1 > "$2/said" 2> /dev/null &
trap 'kill $! 2> /dev/null || true' EXIT
while read line; do case $line in serving*) break;; esac; done < "$2/said"
as_nobody sh -euc '
    cat "$1/class/zram-control/hot_add"
    echo 4M > "$1/block/zram1/disksize"
    cat "$1/block/zram1/initstate" "$1/block/zram1/dev"
    ! cat "$1/block/zram1/reset" 2> /dev/null
' - "$2/root/sys"
as_nobody "$2/rampack" --root "$2/root" stop
wait
[ ! -e "$2/root" ]
echo end
"#;

#[test]
fn an_ordinary_user_has_the_tree_too() {
    let needs = [
        Need::Root,
        Need::Fuse,
        Need::program("fusermount3", "fuse3"),
        Need::program("unshare", "util-linux"),
        Need::program("setpriv", "util-linux"),
    ];
    if !met("an_ordinary_user_has_the_tree_too", &needs) {
        return;
    }
    let place = testkit::TempDir::new();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "sh", "-euc", ORDINARY, "-"]);
    command.arg(env!("CARGO_BIN_EXE_rampack")).arg(place.path());
    let output = testkit::run(&mut command);
    assert_eq!(output.stdout, "1\n1\n0:0\nend\n", "{}", output.stderr);
}

#[test]
fn the_page_allocator_is_told_of_as_in_proc() {
    if !met("the_page_allocator_is_told_of_as_in_proc", &[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd --num-devices 1 --size 1M");
    let tree = Tree { place, daemon };
    let counter = |name: &str| {
        let path = tree.path(&format!("kernel/debug/rampack/zone/{name}"));
        fs::read_to_string(path).unwrap().trim().to_string()
    };
    assert_eq!(counter("design"), DESIGN);
    assert_eq!(counter("bad_frees"), "0");
    let line = fs::read_to_string(tree.place.root().join("proc/buddyinfo")).unwrap();
    let numbers = line.strip_prefix("Node 0, zone   Normal ").expect(&line);
    let numbers: Vec<u64> = numbers.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!((numbers.len(), line.lines().count()), (11, 1), "{line}");
    let free: u64 = numbers.iter().enumerate().map(|(order, blocks)| blocks << order).sum();
    assert_eq!(counter("free"), free.to_string());
    let part = |name: &str| counter(name).parse::<u64>().unwrap();
    assert_eq!(part("managed"), part("allocated") + part("cached") + part("free"));
    assert!(part("capacity") > part("managed"));
    let said = tree.daemon.does("get kernel/debug/rampack buddyinfo");
    assert_eq!(said.trim_end(), line.trim_end());
    tree.end();
}
