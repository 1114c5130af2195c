//! `rampack config apply`: what a running daemon follows, what it refuses, and what it tries again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use testkit::{Need, met};

use crate::common::{NbdClient, Place, noise, program, refused, wait_until};
use crate::config::{MAIN, damage, keep, says, serve, system, write};
use crate::keep_users::NEEDS;
use crate::keeper::{Keeper, has_resend, kill};

/// A system whose disks are served by NBD alone, as `text` has them.
fn by_nbd(text: &str) -> String {
    format!("[serve]\ntransport = 'nbd'\n{text}")
}

fn apply(place: &Place, options: &str) -> String {
    format!("--root {} config apply {options}", place.root().display())
}

fn client(place: &Place, name: &str) -> NbdClient {
    NbdClient::connect(&place.root().join("nbd.sock"), name).unwrap()
}

#[test]
fn what_fails_stops_nothing_else_and_is_tried_again() {
    let text = by_nbd("[zram0]\nsize = '4M'\n[zram1]\nsize = '4M'\n");
    let (top, place) = (system(&[(MAIN, &*text)]), Place::new());
    let daemon = serve(&top, &place);
    // It has no backing device, which no check of a file can know of a disk that is there.
    let text = text.replace("[zram1]", "[zram0.set]\nauto_writeback = '1G'\n[zram1]");
    write(&top, MAIN, &format!("{text}memory = '1M'\n"));
    let fails = "zram0: auto_writeback stays: zram0 has no backing device";
    let said = says(&top, &apply(&place, ""));
    refused(&said, 1, &[fails, "ENODEV"]);
    let would = "zram0: auto_writeback would be 1G\nzram1: mem_limit would be 1M\n";
    assert_eq!(said.out, format!("{would}zram1: mem_limit is 1M now\n"));
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    let said = says(&top, &apply(&place, ""));
    refused(&said, 1, &[fails]);
    assert_eq!(said.out, "zram0: auto_writeback would be 1G\n");
    write(&top, MAIN, &text.replace("auto_writeback = '1G'", ""));
    assert_eq!(says(&top, &apply(&place, "")).code, 0);
    daemon.stop();
    place.is_clean();
}

#[test]
fn what_failed_at_a_start_is_tried_again() {
    if !met("what_failed_at_a_start_is_tried_again", &[Need::Root]) {
        return;
    }
    let text = by_nbd("[zram0]\nsize = '4M'\n");
    let (top, place) = (system(&[(MAIN, &*text)]), Place::new());
    let mut keeper = keep(&top, &place);
    write(&top, MAIN, &format!("{text}memory = '1M'\nset.auto_writeback = '1G'\n"));
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    keeper.says("zram0: auto_writeback stays: ");
    keeper.says("zram0: mem_limit is 1M now");
    let said = says(&top, &apply(&place, ""));
    refused(&said, 1, &["zram0: auto_writeback stays: "]);
    assert_eq!(said.out, "zram0: auto_writeback would be 1G\n");
    keeper.stop();
    place.is_clean();
}

/// Loading a file does not see all that can be wrong with how disks are to be served.
#[test]
fn what_was_left_is_served_if_it_cannot_be_served_as_a_file_has_it() {
    let text = by_nbd("nbd-allow-uid = [65534]\n[zram0]\nsize = '4M'\n");
    let (top, place) = (system(&[(MAIN, &*text)]), Place::new());
    let mut keeper = keep(&top, &place);
    assert_eq!(client(&place, "zram0").write(4096, &noise(7)), 0);
    write(&top, MAIN, &text.replace("'nbd'", "'fuse'"));
    let fault = "/etc/rampack/rampack.toml:3: nbd-allow-uid is for NBD";
    refused(&says(&top, "config check"), 1, &[fault, "EINVAL"]);
    keeper.kill(libc::SIGKILL);
    keeper.says("the configuration is not followed: /");
    keeper.wait();
    assert_eq!(client(&place, "zram0").read(4096, 4096), noise(7)[..4096]);
    keeper.stop();
    place.is_clean();
}

#[test]
fn what_was_left_is_served_if_this_process_may_not_do_what_a_file_asks_for() {
    let name = "what_was_left_is_served_if_this_process_may_not_do_what_a_file_asks_for";
    let setpriv = Need::program("setpriv", "util-linux");
    let prlimit = Need::program("prlimit", "util-linux");
    if !met(name, &[Need::Root, setpriv, prlimit]) {
        return;
    }
    let text = by_nbd("[zram0]\nsize = '4M'\n");
    let (top, place) = (system(&[(MAIN, &*text)]), Place::new());
    let mut command = Command::new("prlimit");
    command.args(["--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock"]);
    let inner = program();
    command.arg(inner.get_program()).env("RAMPACK_CONFIG_ROOT", top.path());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut keeper = Keeper::start_by(command, &place, "serve --config");
    assert_eq!(client(&place, "zram0").write(4096, &noise(7)), 0);
    write(&top, MAIN, &text.replace("[zram0]", "lock-memory = true\n[zram0]\nmemory = '1M'"));
    keeper.kill(libc::SIGKILL);
    keeper.says("[serve] is not followed: --lock-memory: memory cannot be locked");
    keeper.wait();
    assert_eq!(client(&place, "zram0").read(4096, 4096), noise(7)[..4096]);
    // The rest of the file is followed.
    keeper.says("zram0: mem_limit is 1M now");
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_disk_gets_the_size_of_the_file_unless_something_would_be_lost() {
    let text = |size: &str, memory: &str| {
        by_nbd(&format!("[zram0]\nsize = '{size}'\n[zram1]\nsize = '4M'\nmemory = '{memory}'\n"))
    };
    let (top, place) = (system(&[(MAIN, &*text("4M", "1M"))]), Place::new());
    let daemon = serve(&top, &place);
    let mut user = client(&place, "zram0");
    assert_eq!(user.write(4096, &noise(1)), 0);
    // It grows while it is in use.
    write(&top, MAIN, &text("8M", "1M"));
    let grown = says(&top, &apply(&place, ""));
    assert_eq!(grown.out, "zram0: disksize would be 8M\nzram0: disksize is 8M now\n");
    assert_eq!(daemon.does("get zram0 disksize"), "8388608\n");
    assert_eq!(says(&top, &apply(&place, "")).out, "");
    let mut later = client(&place, "zram0");
    assert_eq!((later.bytes, later.write((8 << 20) - 4096, &noise(2))), (8 << 20, 0));
    drop(later);
    // A smaller one loses the last page, or is a surprise for who has it; the rest is followed.
    write(&top, MAIN, &text("2M", "2M"));
    let would = "zram1: mem_limit would be 2M\n";
    let stays = "zram0: disksize stays: page 2047 of zram0 holds data beyond the new end";
    for options in ["--dry-run", ""] {
        let said = says(&top, &apply(&place, options));
        refused(&said, 1, &[stays, "EBUSY"]);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(said.out.starts_with(would), "{}", said.out);
    }
    assert!(daemon.does("get zram1 mm_stat").contains(" 2097152 "));
    assert_eq!(user.write(4 << 20, &noise(3)), 0, "it has the size that it had");
    drop(user);
    daemon.does("reset zram0");
    daemon.does("set zram0 disksize=8M");
    let mut user = client(&place, "zram0");
    assert_eq!(user.write(4096, &noise(4)), 0);
    refused(&says(&top, &apply(&place, "")), 1, &["zram0: disksize stays: ", "1 NBD client"]);
    drop(user);
    let shrunk = says(&top, &apply(&place, ""));
    assert_eq!(shrunk.out, "zram0: disksize would be 2M\nzram0: disksize is 2M now\n");
    let mut user = client(&place, "zram0");
    assert_eq!((user.bytes, user.read(4096, 4096)), (2 << 20, noise(4)));
    drop(user);
    daemon.stop();
    place.is_clean();
}

#[test]
fn what_left_the_file_is_taken_down_on_request_unless_it_is_used() {
    let text = by_nbd("[zram0]\nsize = '1M'\n[zram1]\nsize = '1M'\n[zram2]\nsize = '1M'\n");
    let (top, place) = (system(&[(MAIN, &*text)]), Place::new());
    let daemon = serve(&top, &place);
    let mut user = client(&place, "zram1");
    assert_eq!(user.write(0, &noise(1)), 0);
    write(&top, MAIN, &by_nbd("[zram0]\nsize = '1M'\nmemory = '1M'\n"));
    let stays = |name: &str| {
        format!(
            "{name} is not configured any more, and stays until `rampack config apply --remove` \
             or `rampack remove {name}`\n"
        )
    };
    let said = says(&top, &apply(&place, "--dry-run"));
    let named = format!("{}{}", stays("zram1"), stays("zram2"));
    assert_eq!((said.code, &*said.out), (0, &*format!("{named}zram0: mem_limit would be 1M\n")));
    let said = says(&top, &apply(&place, "--remove --dry-run"));
    refused(&said, 1, &["zram1 is not removed: zram1 is in use: 1 NBD client", "EBUSY"]);
    let would = "zram2 would be removed\nzram0: mem_limit would be 1M\n";
    assert_eq!(said.out, would);
    daemon.does("get zram2 disksize");
    let said = says(&top, &apply(&place, "--remove"));
    refused(&said, 1, &["zram1 is not removed: "]);
    assert_eq!(said.out, format!("{would}zram2 is removed\nzram0: mem_limit is 1M now\n"));
    refused(&daemon.ask("get zram2 disksize"), 1, &["there are: zram0 zram1"]);
    assert_eq!(user.read(0, 4096), noise(1));
    drop(user);
    let said = says(&top, &apply(&place, "--remove"));
    assert_eq!((said.code, &*said.out), (0, "zram1 would be removed\nzram1 is removed\n"));
    assert_eq!(says(&top, &apply(&place, "--remove")).out, "");
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_disk_of_another_under_a_name_of_the_file_is_never_taken_down() {
    let text = by_nbd("[zram0]\nsize = '1M'\n[zram1]\nsize = '1M'\n");
    let (top, place) = (system(&[(MAIN, &*text)]), Place::new());
    let daemon = serve(&top, &place);
    daemon.does("remove zram1");
    daemon.does("add --size 2M");
    assert_eq!(daemon.does("get zram1 disksize"), "2097152\n");
    // Nor is it made what the file has.
    let said = says(&top, &apply(&place, "--remove"));
    assert_eq!(
        (said.code, &*said.out),
        (0, "zram1: disksize=1M is not followed: it was made with no disksize\n")
    );
    write(&top, MAIN, &by_nbd("[zram0]\nsize = '1M'\n"));
    let said = says(&top, &apply(&place, "--remove"));
    assert_eq!((said.code, &*said.out), (0, ""));
    assert_eq!(daemon.does("get zram1 disksize"), "2097152\n");
    daemon.stop();
    place.is_clean();
}

/// A service may have a file of its own: what is in that of the system is none of its business.
#[test]
fn a_daemon_of_a_file_of_its_own_follows_that_one() {
    let own = by_nbd("[zram0]\nsize = '4M'\n");
    let place = Place::new();
    let top = system(&[(MAIN, &*by_nbd("[zram5]\nsize = '1M'\n")), ("own.toml", &*own)]);
    let mut command = program();
    command.env("RAMPACK_CONFIG_ROOT", top.path()).current_dir(top.path());
    let mut keeper = Keeper::start_by(command, &place, "serve --config=own.toml");
    let follows = |memory: &str| {
        write(&top, "own.toml", &format!("{own}memory = '{memory}'\n"));
        let said = says(&top, &apply(&place, "--remove"));
        let lines = [("would be", ""), ("is", " now")];
        let lines = lines.map(|(is, now)| format!("zram0: mem_limit {is} {memory}{now}\n"));
        assert_eq!((&*said.out, &*said.err), (&*lines.concat(), ""));
    };
    follows("1M");
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    follows("2M");
    keeper.does("upgrade");
    keeper.wait();
    follows("3M");
    // Another one is followed by its name.
    let said = says(&top, &apply(&place, &format!("--dry-run {}", top.join(MAIN).display())));
    assert!(said.out.contains("zram5 would be made\n"), "{}{}", said.out, said.err);
    fs::remove_file(top.join("own.toml")).unwrap();
    refused(&says(&top, &apply(&place, "--remove")), 1, &["cannot read /own.toml", "ENOENT"]);
    keeper.does("get zram0 disksize");
    keeper.stop();
    place.is_clean();
}

/// A file with an ext2 at `mounts`, each on a disk of its own.
fn mounted(place: &Place, mounts: &[&str]) -> String {
    let disk = |(number, name): (usize, &&str)| {
        let at = place.path().join(name);
        format!("[zram{number}]\nsize = '8M'\nfs = 'ext2'\nmount = '{}'\n", at.display())
    };
    mounts.iter().enumerate().map(disk).collect()
}

#[test]
fn mounts_that_left_the_file_are_taken_down_unless_they_are_used() {
    let name = "mounts_that_left_the_file_are_taken_down_unless_they_are_used";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    let both = mounted(&place, &["a", "a/b"]);
    let top = system(&[(MAIN, &*both)]);
    let mut keeper = keep(&top, &place);
    let (a, b) = (place.path().join("a"), place.path().join("a/b"));
    wait_until("both are mounted", || place.mounts().contains(&b));
    fs::write(a.join("file"), "a").unwrap();
    // The outer one is to be mounted no more, the inner one is to be gone.
    let text = mounted(&place, &["a"]).replace(&format!("mount = '{}'\n", a.display()), "");
    write(&top, MAIN, &text);
    let at = a.display();
    let said = says(&top, &apply(&place, "--dry-run"));
    let named = format!("zram0 is to be mounted no more, and stays at {at} until ");
    assert!(said.out.starts_with(&named) && said.out.contains("zram1 is not"), "{}", said.out);
    let file = fs::File::create(b.join("open")).unwrap();
    let would = format!("zram0 would be unmounted from {at}\n");
    let said = says(&top, &apply(&place, "--remove"));
    // The inner one is in use, and keeps the outer one.
    let not = ["zram1 is not removed: ", &format!("zram0 is not unmounted from {at}: ")];
    refused(&said, 1, &[&not[..], &[" is in use; used by "]].concat());
    assert_eq!(said.out, "");
    drop(file);
    let said = says(&top, &apply(&place, "--remove"));
    assert_eq!(
        (&*said.out, &*said.err),
        (
            &*format!(
                "zram1 would be removed\n{would}zram1 is removed\nzram0 is unmounted from {at}\n"
            ),
            ""
        )
    );
    assert!(!place.mounts().contains(&a) && !place.mounts().contains(&b), "{:?}", place.mounts());
    // The next daemon does not mount it again, and its file system is there.
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    assert_eq!(says(&top, &apply(&place, "--remove")).out, "");
    assert!(!place.mounts().contains(&a));
    let device = keeper.block_device("zram0");
    host::mount(&device, &a, "ext2", "").unwrap();
    assert_eq!(fs::read_to_string(a.join("file")).unwrap(), "a");
    // A file system counts on the end of its disk, also where nothing is stored.
    write(&top, MAIN, &text.replace("8M", "7M"));
    let smaller = apply(&place, "");
    refused(&says(&top, &smaller), 1, &["zram0: disksize stays: "]);
    host::unmount(&a, host::Unmount::WhenUnused).unwrap();
    refused(&says(&top, &smaller), 1, &["zram0: disksize stays: "]);
    assert_eq!(keeper.does("get zram0 disksize"), "8388608\n");
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_disk_is_made_where_one_was_mounted_that_left_the_file() {
    let name = "a_disk_is_made_where_one_was_mounted_that_left_the_file";
    if !met(name, &NEEDS) {
        return;
    }
    let place = Place::new();
    let text = mounted(&place, &["a"]);
    let top = system(&[(MAIN, &*text)]);
    let daemon = serve(&top, &place);
    let a = place.path().join("a");
    fs::write(a.join("file"), "a").unwrap();
    write(&top, MAIN, &text.replace("zram0", "zram5"));
    let said = says(&top, &apply(&place, "--remove"));
    let would = "zram0 would be removed\nzram5 would be made\n";
    assert_eq!(said.out, format!("{would}zram0 is removed\nzram5 is made\n"), "{}", said.err);
    assert!(place.mounts().contains(&a) && !a.join("file").exists());
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_disk_that_could_not_be_taken_over_is_named_and_stays() {
    if !met("a_disk_that_could_not_be_taken_over_is_named_and_stays", &[Need::Root]) {
        return;
    }
    let text = by_nbd("[zram0]\nsize = '4M'\n[zram1]\nsize = '4M'\n");
    let (top, place) = (system(&[(MAIN, &*text)]), Place::new());
    let mut keeper = keep(&top, &place);
    keeper.serves("zram1");
    damage(&mut keeper, "zram1");
    let words = ["zram1 could not be taken over: ", "`rampack remove zram1` gives up"];
    refused(&keeper.ask("get zram1 disksize"), 1, &words);
    write(&top, MAIN, &format!("{text}memory = '1M'\n"));
    for _ in 0..2 {
        let said = says(&top, &apply(&place, ""));
        refused(&said, 1, &["zram1: mem_limit stays: zram1 could not be taken over"]);
    }
    write(&top, MAIN, &text.replace("[zram1]\nsize = '4M'\n", ""));
    let said = says(&top, &apply(&place, "--remove"));
    refused(&said, 1, &["zram1 is not removed: ", words[0]]);
    keeper.does("remove zram1");
    assert_eq!(says(&top, &apply(&place, "--remove")).out, "");
    keeper.stop();
    place.is_clean();
}

#[test]
fn swap_devices_that_left_the_file_are_read_back_and_go() {
    let name = "swap_devices_that_left_the_file_are_read_back_and_go";
    if !met(name, &crate::keep_swap::needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let swap = |number| format!("[swap{number}]\nsize = '8M'\ntransport = 'fuse'\nforce = true\n");
    let (top, place) = (system(&[(MAIN, &*(swap(0) + &swap(1)))]), Place::new());
    let mut command = program();
    command.env("RAMPACK_CONFIG_ROOT", top.path());
    let keeper = Keeper::start_swap_by(command, &place, "swap on --config");
    wait_until("both are made", || keeper.does("status --json").contains("\"swap1\""));
    write(&top, MAIN, &swap(1));
    let said = says(&top, &apply(&place, ""));
    assert!(said.out.starts_with("swap0 is not configured any more"), "{}", said.out);
    let said = says(&top, &apply(&place, "--remove"));
    assert_eq!(said.out, "swap0 would be swapped off\nswap0 is swapped off\n", "{}", said.err);
    // The daemon ends with its last device, so another is made before.
    write(&top, MAIN, &swap(2));
    let said = says(&top, &apply(&place, "--remove"));
    let would = "swap1 would be swapped off\nswap2 would be made\n";
    assert_eq!(said.out, format!("{would}swap2 is made\nswap1 is swapped off\n"), "{}", said.err);
    write(&top, MAIN, "");
    let said = says(&top, &apply(&place, "--remove"));
    assert_eq!(said.out, "swap2 would be swapped off\nswap2 is swapped off\n", "{}", said.err);
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}

#[test]
fn a_file_of_a_configuration_that_is_being_filled_holds_up_no_stop() {
    let name = "a_file_of_a_configuration_that_is_being_filled_holds_up_no_stop";
    if !met(name, &crate::keep_swap::needs()) || !met(name, &crate::swap_backing::with_a_file()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let swap = |text: &str| format!("{text}\ntransport = 'fuse'\nforce = true\n");
    let first = swap("[swap0]\nsize = '8M'");
    let (top, place) = (system(&[(MAIN, &*first)]), Place::new());
    let path = place.path().join("backing");
    let mut command = program();
    command.env("RAMPACK_CONFIG_ROOT", top.path());
    let mut keeper = Keeper::start_swap_by(command, &place, "swap on --config");
    let next = swap(&format!("[swap1]\nsize = '2G'\nbacking = '{}'", path.display()));
    write(&top, MAIN, &(first + &next));
    keeper.kill(libc::SIGKILL);
    wait_until("the first blocks", || fs::metadata(&path).is_ok_and(|it| it.blocks() > 0));
    kill(keeper.daemon(), libc::SIGTERM);
    keeper.says("is not filled");
    assert_eq!(keeper.ended(), 0);
    assert!(!path.exists());
    place.is_clean();
}
