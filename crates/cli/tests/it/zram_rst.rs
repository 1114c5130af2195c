//! The commands of the kernel's document on zram (Documentation/admin-guide/blockdev/zram.rst), in
//! its order, each with what it prints or the error it ends with.
//!
//! The commands are those of Linux 6.1, then those that later versions added. `zramX` is a device
//! of the list, `/dev/sda5` a loop device, and `/tmp` an empty directory. What the document only
//! describes is done between its commands, and marked so.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use testkit::{Need, met};

use crate::common::{Daemon, Place, said};

/// Where a command is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The document of Linux 6.1.
    V6_1,
    /// Later documents, by the version that brought it.
    Later(&'static str),
    /// The text between the commands.
    Between,
}
use Source::{Between, Later, V6_1};

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// It prints this text.
    Prints(&'static str),
    /// It prints a line of so many words.
    Words(usize),
    /// It prints lines, and each has these words at its end, or is one of these kinds.
    Lines(fn(&str) -> bool),
    /// It fails with this text of an error number.
    Fails(&'static str),
}
use Outcome::{Fails, Lines, Prints, Words};

const DONE: Outcome = Prints("");
const BUSY: Outcome = Fails("Device or resource busy");

/// A line of `block_state`: block, time, state.
fn is_state(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [block, time, state] = words[..] else { return false };
    block.parse::<u64>().is_ok()
        && time.split_once('.').is_some_and(|(_, micro)| micro.len() == 6)
        && state.len() == 6
}

const COMMANDS: &[(Source, &str, Outcome)] = &[
    // 1) Load module.
    (V6_1, "modprobe zram num_devices=4", DONE),
    (Between, "ls /dev/zram*", Prints("/dev/zram0\n/dev/zram1\n/dev/zram2\n/dev/zram3\n")),
    // 2) Streams. Linux shows the number of CPUs whatever was written.
    (V6_1, "echo 3 > /sys/block/zram0/max_comp_streams", DONE),
    (V6_1, "cat /sys/block/zram0/max_comp_streams", Prints("3\n")),
    // 3) Algorithm.
    (
        V6_1,
        "cat /sys/block/zram0/comp_algorithm",
        Prints("lzo-rle lzo [lz4] lz4hc zstd deflate 842 \n"),
    ),
    (V6_1, "echo lzo > /sys/block/zram0/comp_algorithm", DONE),
    (Between, "grep -o '\\[.*\\]' /sys/block/zram0/comp_algorithm", Prints("[lzo]\n")),
    // 4) Disk size. The four commands are alternatives: the first one holds.
    (V6_1, "echo $((50*1024*1024)) > /sys/block/zram0/disksize", DONE),
    (V6_1, "echo 256K > /sys/block/zram0/disksize", BUSY),
    (V6_1, "echo 512M > /sys/block/zram0/disksize", BUSY),
    (V6_1, "echo 1G > /sys/block/zram0/disksize", BUSY),
    (Between, "cat /sys/block/zram0/disksize", Prints("52428800\n")),
    (Between, "echo lz4 > /sys/block/zram0/comp_algorithm", BUSY),
    // 5) Memory limit.
    (V6_1, "echo $((50*1024*1024)) > /sys/block/zram0/mem_limit", DONE),
    (V6_1, "echo 256K > /sys/block/zram0/mem_limit", DONE),
    (V6_1, "echo 512M > /sys/block/zram0/mem_limit", DONE),
    (V6_1, "echo 1G > /sys/block/zram0/mem_limit", DONE),
    (Between, "cut -c 28-38 /sys/block/zram0/mm_stat", Prints("1073741824 \n")),
    (V6_1, "echo 0 > /sys/block/zram0/mem_limit", DONE),
    // 6) Activate.
    (V6_1, "mkswap /dev/zram0 > $OUT", DONE),
    (V6_1, "swapon /dev/zram0", DONE),
    (Between, "echo 64M > /sys/block/zram1/disksize", DONE),
    (V6_1, "mkfs.ext4 -q /dev/zram1", DONE),
    (V6_1, "mount /dev/zram1 $TMP", DONE),
    (Between, "echo x > $TMP/x; cat $TMP/x", Prints("x\n")),
    // 7) Add and remove.
    (V6_1, "cat /sys/class/zram-control/hot_add", Prints("4\n")),
    (V6_1, "echo 4 > /sys/class/zram-control/hot_remove", DONE),
    (Between, "echo 4 > /sys/class/zram-control/hot_remove", Fails("No such device")),
    (Between, "echo 0 > /sys/class/zram-control/hot_remove", BUSY),
    (Between, "echo 1 > /sys/class/zram-control/hot_remove", BUSY),
    (Between, "modprobe -r zram", Fails("Module zram is in use.")),
    // 8) Statistics.
    (V6_1, "cat /sys/block/zram0/stat", Words(17)),
    (V6_1, "cat /sys/block/zram0/io_stat", Words(4)),
    (V6_1, "cat /sys/block/zram0/mm_stat", Words(9)),
    (V6_1, "cat /sys/block/zram0/bd_stat", Words(3)),
    (Between, "cat /sys/block/zram0/initstate", Prints("1\n")),
    (Between, "echo 1 > /sys/block/zram0/compact", DONE),
    (Between, "echo 0 > /sys/block/zram0/mem_used_max", DONE),
    (Between, "echo 1 > /sys/block/zram0/reset", BUSY),
    // 9) Deactivate.
    (V6_1, "swapoff /dev/zram0", DONE),
    (V6_1, "umount /dev/zram1", DONE),
    // 10) Reset.
    (V6_1, "echo 1 > /sys/block/zram0/reset", DONE),
    (V6_1, "echo 1 > /sys/block/zram1/reset", DONE),
    (Between, "cat /sys/block/zram0/disksize", Prints("0\n")),
    // Writeback.
    (V6_1, "echo $SDA5 > /sys/block/zram2/backing_dev", DONE),
    (Between, "echo 64M > /sys/block/zram2/disksize", DONE),
    (Between, "echo $SDA5 > /sys/block/zram2/backing_dev", BUSY),
    (Between, "dd if=/dev/urandom of=/dev/zram2 bs=4k count=100 oflag=direct status=none", DONE),
    (Between, "dd if=$TEXT of=/dev/zram2 bs=4k seek=100 count=100 oflag=direct status=none", DONE),
    (V6_1, "echo huge > /sys/block/zram2/writeback", DONE),
    (Between, "awk '{ print $1, $3 }' /sys/block/zram2/bd_stat", Prints("100 100\n")),
    (V6_1, "echo all > /sys/block/zram2/idle", DONE),
    (V6_1, "echo 86400 > /sys/block/zram2/idle", DONE),
    (V6_1, "echo idle > /sys/block/zram2/writeback", DONE),
    // Pages that are younger than a day are idle no more.
    (Between, "awk '{ print $1, $3 }' /sys/block/zram2/bd_stat", Prints("100 100\n")),
    (Between, "echo all > /sys/block/zram2/idle", DONE),
    (Between, "echo idle > /sys/block/zram2/writeback", DONE),
    (Between, "awk '{ print $1, $3 }' /sys/block/zram2/bd_stat", Prints("200 200\n")),
    (V6_1, "echo huge_idle > /sys/block/zram2/writeback", DONE),
    (Between, "dd if=$TEXT of=/dev/zram2 bs=4k seek=1251 count=1 oflag=direct status=none", DONE),
    (V6_1, "echo \"page_index=1251\" > /sys/block/zram2/writeback", DONE),
    (Between, "awk '{ print $1, $3 }' /sys/block/zram2/bd_stat", Prints("201 201\n")),
    (V6_1, "echo 1 > /sys/block/zram2/writeback_limit_enable", DONE),
    // Without a budget nothing is written back.
    (Between, "dd if=$TEXT of=/dev/zram2 bs=4k seek=1300 count=1 oflag=direct status=none", DONE),
    (Between, "echo page_index=1300 > /sys/block/zram2/writeback", Fails("Input/output error")),
    (V6_1, "MB_SHIFT=20", DONE),
    // The document's `4K_SHIFT` is no name for a variable of a shell.
    (V6_1, "SHIFT_4K=12", DONE),
    (V6_1, "echo $((400<<MB_SHIFT>>SHIFT_4K)) > /sys/block/zram2/writeback_limit", DONE),
    (V6_1, "echo 1 > /sys/block/zram2/writeback_limit_enable", DONE),
    (V6_1, "echo $((400<<MB_SHIFT>>SHIFT_4K)) > /sys/block/zram2/writeback_limit", DONE),
    (V6_1, "cat /sys/block/zram2/writeback_limit", Prints("102400\n")),
    (Between, "echo page_index=1300 > /sys/block/zram2/writeback", DONE),
    (Between, "cat /sys/block/zram2/writeback_limit", Prints("102399\n")),
    (V6_1, "echo 0 > /sys/block/zram2/writeback_limit_enable", DONE),
    (Between, "cmp -n 409600 $TEXT <(dd if=/dev/zram2 bs=4k skip=100 count=100 status=none)", DONE),
    // Memory tracking.
    (V6_1, "cat /sys/kernel/debug/zram/zram2/block_state", Lines(is_state)),
    (
        Between,
        "awk '$1 == 1300 { print $3 }' /sys/kernel/debug/zram/zram2/block_state",
        Prints(".w....\n"),
    ),
    // Recompression, 6.2 and later.
    (Later("6.2"), "echo \"algo=zstd priority=1\" > /sys/block/zram3/recomp_algorithm", DONE),
    (Later("6.2"), "echo \"algo=deflate priority=2\" > /sys/block/zram3/recomp_algorithm", DONE),
    (
        Later("6.2"),
        "grep -o '^#.*: \\|\\[.*\\]' /sys/block/zram3/recomp_algorithm | tr -d '\\n'",
        Prints("#1: [zstd]#2: [deflate]"),
    ),
    (Later("6.12"), "echo \"priority=1 level=8\" > /sys/block/zram3/algorithm_params", DONE),
    (Later("6.12"), "echo \"algo=deflate level=5\" > /sys/block/zram3/algorithm_params", DONE),
    (Between, "echo 64M > /sys/block/zram3/disksize", DONE),
    (Between, "dd if=$TEXT of=/dev/zram3 bs=4k count=100 oflag=direct status=none", DONE),
    (Later("6.2"), "echo \"type=idle\" > /sys/block/zram3/recompress", DONE),
    (Later("6.2"), "echo \"type=huge\" > /sys/block/zram3/recompress", DONE),
    (Later("6.2"), "echo \"type=huge_idle\" > /sys/block/zram3/recompress", DONE),
    (Later("6.2"), "echo \"threshold=3000\" > /sys/block/zram3/recompress", DONE),
    (Later("6.2"), "echo \"type=huge threshold=2000\" > /sys/block/zram3/recompress", DONE),
    (Between, "echo all > /sys/block/zram3/idle", DONE),
    (Later("6.2"), "echo \"type=idle threshold=1000\" > /sys/block/zram3/recompress", DONE),
    (
        Between,
        "awk '{ print $3 }' /sys/kernel/debug/zram/zram3/block_state | sort | uniq -c | \
         awk '{ print $1, $2 }'",
        Prints("100 ....r.\n"),
    ),
    (Later("6.7"), "echo \"type=huge_idle max_pages=42\" > /sys/block/zram3/recompress", DONE),
    (Later("6.2"), "echo \"type=huge algo=zstd\" > /sys/block/zram3/recompress", DONE),
    (Later("6.2"), "echo \"type=huge priority=1\" > /sys/block/zram3/recompress", DONE),
    (
        Later("6.2"),
        "echo \"type=huge algo=nosuch\" > /sys/block/zram3/recompress",
        Fails("Invalid argument"),
    ),
    // Page indexes and ranges, 6.16.
    (Later("6.16"), "echo \"page_indexes=0-9 page_index=20\" > /sys/block/zram2/writeback", DONE),
    // The end.
    (Between, "modprobe -r zram", DONE),
    (Between, "ls /dev/zram* 2>/dev/null | wc -l", Prints("0\n")),
    (V6_1, "modprobe zram", DONE),
    (Between, "ls /dev/zram*", Prints("/dev/zram0\n")),
    (Between, "cat /sys/block/zram0/disksize", Prints("0\n")),
];

/// Runs every command in one shell: its output goes to `DIR/N.out` and its exit code to
/// `DIR/N.code`.
fn script(dir: &Path) -> String {
    let mut text = String::from("trap 'swapoff /dev/zram0 2>/dev/null' EXIT\n");
    for (number, (_, command, _)) in COMMANDS.iter().enumerate() {
        let quoted = command.replace('\'', "'\\''");
        let at = dir.join(number.to_string());
        let at = at.display();
        let _ = writeln!(text, "eval '{quoted}' > {at}.out 2>&1; echo $? > {at}.code");
    }
    text
}

fn judge(outcome: Outcome, out: &str, code: &str) -> bool {
    let succeeded = code == "0\n";
    match outcome {
        Prints(text) => succeeded && out == text,
        Words(count) => succeeded && out.split_whitespace().count() == count,
        Lines(is_right) => succeeded && !out.is_empty() && out.lines().all(is_right),
        Fails(text) => !succeeded && out.trim_end().ends_with(text),
    }
}

#[test]
fn the_commands_of_the_kernels_document_in_order() {
    let needs = [
        Need::Root,
        Need::Fuse,
        Need::Loop,
        Need::Swap,
        Need::program("modprobe", "kmod"),
        Need::program("mkfs.ext4", "e2fsprogs"),
        Need::program("mkswap", "util-linux"),
        Need::program("swapon", "mount"),
    ];
    if !met("the_commands_of_the_kernels_document_in_order", &needs) {
        return;
    }
    // Swap is the whole machine's.
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let dir = testkit::TempDir::new();
    let (tmp, backing, text) = (place.mount_point(), dir.join("sda5"), dir.join("text"));
    File::create(&backing).unwrap().set_len(64 << 20).unwrap();
    let words: String = (0..160_000).map(|n| format!("{} ", n % 400)).collect();
    fs::write(&text, &words.as_bytes()[..409_600]).unwrap();
    let sda5 = Loop(testkit::attach_loop(&[], &backing).display().to_string());
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let mut exec = daemon.command("exec --");
    exec.args(["bash", "-c", &script(dir.path())]);
    exec.env("TMP", &tmp).env("SDA5", &sda5.0).env("TEXT", &text).env("OUT", dir.join("out"));
    let ran = said(&exec.output().unwrap());
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let mut wrong = String::new();
    for (number, (from, command, outcome)) in COMMANDS.iter().enumerate() {
        let read = |end: &str| fs::read_to_string(dir.join(format!("{number}.{end}"))).unwrap();
        let (out, code) = (read("out"), read("code"));
        if !judge(*outcome, &out, &code) {
            let _ =
                writeln!(wrong, "{from:?} $ {command}\n{out}exit code {code}wanted {outcome:?}\n");
        }
    }
    daemon.stop();
    drop(sda5);
    assert!(wrong.is_empty(), "{wrong}");
    place.is_clean();
}

struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_wrong_outcome_is_found() {
    assert!(judge(Prints("a\n"), "a\n", "0\n") && !judge(Prints("a\n"), "a\n", "1\n"));
    assert!(!judge(Prints("a\n"), "b\n", "0\n") && !judge(DONE, "warning\n", "0\n"));
    assert!(judge(Words(3), " 1 2\t3\n", "0\n") && !judge(Words(3), "1 2\n", "0\n"));
    assert!(judge(BUSY, "bash: echo: write error: Device or resource busy\n", "1\n"));
    assert!(!judge(BUSY, "bash: echo: write error: Invalid argument\n", "1\n"));
    assert!(!judge(BUSY, "Device or resource busy\n", "0\n"));
    assert!(judge(Lines(is_state), "  300    75.033841 .wh...\n", "0\n"));
    assert!(!judge(Lines(is_state), "", "0\n") && !judge(Lines(is_state), "300 .wh...\n", "0\n"));
}
