//! `rampack upgrade`: another program takes the place of a daemon, and nothing is lost.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use testkit::{Need, Rng, copy_program, met, run};

use crate::common::{Daemon, NbdClient, Place, Said, program, rampack, refused, said, wait_until};
use crate::keep::{Kept, PAGES, contents, write_until_killed};
use crate::keeper::{Keeper, daemon_of, has_resend, kill};

/// A daemon under a keeper.
pub struct Service {
    // The daemon ends before its place goes.
    pub keeper: Kept,
    pub place: Place,
}

impl Service {
    pub fn start(line: &str) -> Service {
        let place = Place::new();
        let mut command = program();
        command.arg("--root").arg(place.root()).arg("keep").args(line.split_whitespace());
        Service::spawn(place, &mut command)
    }

    fn spawn(place: Place, command: &mut Command) -> Service {
        let keeper = Kept(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let service = Service { place, keeper };
        service.wait();
        service
    }

    pub fn wait(&self) {
        let socket = self.socket();
        wait_until("a daemon serves", || {
            self.ask("status zram0").code == 0 && NbdClient::is_served(&socket, "zram0")
        });
    }

    fn socket(&self) -> PathBuf {
        self.place.root().join("nbd.sock")
    }

    pub fn process(&self) -> i32 {
        daemon_of(self.keeper.0.id()).expect("a daemon")
    }

    pub fn ask(&self, line: &str) -> Said {
        rampack(&format!("--root {} {line}", self.place.root().display()))
    }

    #[track_caller]
    pub fn does(&self, line: &str) -> String {
        let said = self.ask(line);
        assert_eq!(said.code, 0, "{line}: {}", said.err);
        said.out
    }

    pub fn client(&self) -> NbdClient {
        NbdClient::connect(&self.socket(), "zram0").unwrap()
    }

    pub fn stop(mut self) {
        wait_until("the daemon stops", || self.ask("stop").code == 0);
        assert!(self.keeper.0.wait().unwrap().success());
        self.place.is_clean();
    }
}

/// The file of the program of a process.
fn program_of(process: i32) -> PathBuf {
    fs::read_link(format!("/proc/{process}/exe")).unwrap()
}

/// A copy of the program at `path`.
fn copy(path: &Path) {
    copy_program(program().get_program(), path);
}

/// A program at `path` that a shell reads.
fn script(path: &Path, text: &str) {
    testkit::script(path, &format!("#!/bin/sh\n{text}\n"));
}

/// Pages that are not as they should be have the next version: its write was under way.
fn check(service: &Service, versions: &mut BTreeMap<u64, u64>, under_way: u64) {
    let mut client = service.client();
    for page in 0..PAGES {
        let version = versions.get(&page).copied().unwrap_or(0);
        let found = client.read(page * 4096, 4096);
        if found != contents(page, version) {
            assert!(page == under_way && found == contents(page, version + 1), "page {page}");
            versions.insert(page, version + 1);
        }
    }
}

#[test]
fn a_daemon_is_upgraded_under_load() {
    let mut rng = Rng::new(testkit::seed("a_daemon_is_upgraded_under_load"));
    let service = Service::start("serve --transport nbd --size 4M");
    let process = service.process();
    service.does("add --size 1M --algorithm zstd");
    let own = program_of(process);
    let mut versions = BTreeMap::new();
    for round in 0..5 {
        let other = service.place.path().join(format!("rampack-{round}"));
        copy(&other);
        let (seed, socket) = (rng.next_u64(), service.socket());
        let under_way = thread::scope(|scope| {
            let writer = scope.spawn(|| write_until_killed(&socket, seed, &mut versions));
            thread::sleep(Duration::from_millis(20 + rng.below(150)));
            let said = service.does(&format!("upgrade --to {}", other.display()));
            assert!(said.contains(&format!("serves in process {process}")), "{said}");
            writer.join().unwrap()
        });
        assert_eq!(service.process(), process);
        assert_eq!(program_of(process), other);
        check(&service, &mut versions, under_way);
        assert!(service.does("get zram1 comp_algorithm").contains("[zstd]"));
        assert_eq!(service.does("get zram0 lost_pages").trim(), "0");
        service.does(&format!("set zram0 mem_limit={}M", 10 + round));
    }
    assert!(versions.values().sum::<u64>() > 100, "it was used");
    // The keeper has everything still: a death is survived as before, by the program that it knows.
    kill(process, libc::SIGKILL);
    wait_until("another daemon", || {
        daemon_of(service.keeper.0.id()).is_some_and(|it| it != process)
    });
    service.wait();
    assert_eq!(program_of(service.process()), own);
    check(&service, &mut versions, PAGES);
    let limit = service.does("get zram0 mm_stat");
    assert_eq!(limit.split_whitespace().nth(3), Some("14680064"), "{limit}");
    service.stop();
}

#[test]
fn clients_wait_in_the_socket_for_the_next_program() {
    let service = Service::start("serve --transport nbd --size 4M");
    let path = service.place.path().join("other");
    let layouts = service.does("layouts");
    Keeper::is_there_while(&service.socket(), || {
        for _ in 0..5 {
            service.does("upgrade");
            assert_eq!(service.client().read(4096, 4096), [0; 4096]);
        }
        // Nor are they when the daemon goes on in the end.
        script(&path, &format!("echo '{}'; chmod 644 $0", layouts.trim().replace("true", "false")));
        let said = service.ask(&format!("upgrade --to {}", path.display()));
        refused(&said, 1, &["cannot execute", "EACCES"]);
        assert_eq!(service.client().read(4096, 4096), [0; 4096]);
    });
    service.stop();
}

#[test]
fn without_a_path_the_program_is_the_one_that_was_installed_since() {
    let place = Place::new();
    let installed = place.path().join("rampack");
    copy(&installed);
    let mut command = Command::new(&installed);
    command.env("RAMPACK_SANDBOX", "strict").env_remove("NOTIFY_SOCKET");
    command.arg("--root").arg(place.root()).args(["keep", "serve", "--transport", "nbd"]);
    command.args(["--size", "4M"]);
    let service = Service::spawn(place, &mut command);
    let process = service.process();
    assert_eq!(service.client().write(4096, &contents(1, 1)), 0);
    fs::remove_file(&installed).unwrap();
    refused(&service.ask("upgrade"), 1, &["cannot run", installed.to_str().unwrap(), "ENOENT"]);
    copy(&installed);
    service.does("upgrade");
    assert_eq!((service.process(), program_of(process)), (process, installed));
    assert_eq!(service.client().read(4096, 4096), contents(1, 1));
    service.stop();
}

#[test]
fn a_program_that_cannot_take_over_is_refused_and_the_daemon_goes_on() {
    let service = Service::start("serve --transport nbd --size 4M");
    let process = service.process();
    // This connection stays: programs are judged before anything is given up.
    let mut client = service.client();
    let path = service.place.path().join("other");
    let name = path.to_str().unwrap().to_owned();
    let upgrade = format!("upgrade --to {name}");
    let goes_on = |client: &mut NbdClient, version: u64| {
        assert_eq!(service.process(), process);
        assert_eq!(client.write(4096, &contents(1, version)), 0);
        assert_eq!(client.read(4096, 4096), contents(1, version));
    };
    refused(&service.ask(&upgrade), 1, &["cannot run", &name, "ENOENT"]);
    fs::write(&path, "no program").unwrap();
    refused(&service.ask(&upgrade), 1, &["cannot run", &name, "EACCES"]);
    goes_on(&mut client, 1);
    let layouts = |table: &str, disk: &str| {
        format!(r#"echo '{{"rampack":"9.9","reads":{{"table":{table},"disk":{disk}}},"more":1}}'"#)
    };
    let one = r#"{"oldest":1,"newest":2}"#;
    let three = r#"{"oldest":3,"newest":3}"#;
    let two = r#"{"oldest":3,"newest":4}"#;
    let older = r#"{"oldest":1,"newest":2}"#;
    for (text, words) in [
        ("exit 0", &["told no layouts", "exit status: 0", "EINVAL"][..]),
        ("echo '{}'", &["told no layouts"]),
        ("echo unknown command >&2; exit 2", &["told no layouts", "exit status: 2"]),
        ("kill -9 $$", &["told no layouts", "signal: 9"]),
        (
            &layouts(two, three),
            &["(rampack 9.9) reads layouts 3..=4 of the table", "this state has layout 2"],
        ),
        (&layouts(one, older), &["reads layouts 1..=2 of the disk", "this state has layout 3"]),
        (r#"echo '{"rampack":"0.0","reads":{}}'"#, &["reads no table", "one of layout 2"]),
    ] {
        script(&path, text);
        refused(&service.ask(&upgrade), 1, &[words, &[&*name]].concat());
    }
    goes_on(&mut client, 2);
    assert_eq!(service.does("get zram0 lost_pages").trim(), "0");
    drop(client);
    // One that is right and cannot be executed any more: clients have to connect again.
    script(&path, &format!("{}; chmod 644 $0", layouts(one, three)));
    refused(&service.ask(&upgrade), 1, &["cannot execute", &name, "EACCES"]);
    goes_on(&mut service.client(), 3);
    service.does("add --size 1M");
    // One that lies: the program that the keeper knows takes over.
    let lies = format!("{}; [ \"$1\" = layouts ] || exit 3", layouts(one, three));
    script(&path, &lies);
    refused(&service.ask(&upgrade), 1, &[&format!("(process {process}) died"), "EIO"]);
    service.wait();
    assert_ne!(service.process(), process);
    assert_eq!(service.client().read(4096, 4096), contents(1, 3));
    assert!(service.does("status").contains("zram1"));
    service.stop();
}

#[test]
fn a_program_that_could_not_take_over_says_so_before_anything_is_given_up() {
    let service = Service::start("serve --transport nbd --size 4M");
    let process = service.process();
    let mut client = service.client();
    let path = service.place.path().join("other");
    let name = path.to_str().unwrap().to_owned();
    let layouts = service.does("layouts");
    let layouts = layouts.trim();
    assert!(layouts.contains(r#""rehearses":true"#), "{layouts}");
    for (version, (rehearsal, words)) in (1..).zip([
        ("exit 3", &["does not say whether it can take over", "exit status: 3"][..]),
        ("echo yes", &["does not say whether it can take over", "exit status: 0"]),
        (
            r#"echo '{"refused":"there is no tape","errno":95,"more":1}'"#,
            &["cannot take over: there is no tape", "ENOTSUP"],
        ),
    ]) {
        let text = format!(
            "[ \"$1\" = layouts ] && echo '{layouts}' && exit\n\
             echo \"$RAMPACK_REHEARSAL $*\" > $0.asked\n[ -n \"$RAMPACK_REHEARSAL\" ] || exit 9\n\
             {rehearsal}"
        );
        script(&path, &text);
        refused(&service.ask(&format!("upgrade --to {name}")), 1, &[words, &[&*name]].concat());
        let asked = fs::read_to_string(format!("{name}.asked")).unwrap();
        assert!(asked.contains("rampack.table"), "{asked}");
        assert!(asked.trim().ends_with("serve --transport nbd --size 4M"), "{asked}");
        // The connection is the one of before.
        assert_eq!(service.process(), process);
        assert_eq!(client.write(4096, &contents(1, version)), 0);
        assert_eq!(client.read(4096, 4096), contents(1, version));
    }
    drop(client);
    service.does("upgrade");
    assert_eq!(service.client().read(4096, 4096), contents(1, 3));
    service.stop();
}

#[test]
fn a_program_that_no_longer_reads_what_is_there_is_refused() {
    let name = "a_program_that_no_longer_reads_what_is_there_is_refused";
    if !met(name, &crate::keep_swap::needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let keeper = Keeper::start(&place, "serve --size 4M");
    // It reads no swap, and there is none when it is asked what it reads.
    let path = place.path().join("other");
    let (root, rampack) = (place.root(), program().get_program().to_owned());
    let one = r#"{"oldest":1,"newest":9}"#;
    let layouts =
        format!(r#"{{"rampack":"9.9","reads":{{"table":{one},"disk":{one}}},"rehearses":true}}"#);
    let (root, rampack) = (root.display(), rampack.display());
    script(
        &path,
        &format!(
            "[ \"$1\" = layouts ] && echo '{layouts}' && exit\n\
             [ -n \"$RAMPACK_REHEARSAL\" ] || exit 9\n\
             env -u RAMPACK_REHEARSAL {rampack} --root {root} swap on --size 8M --force > /dev/null 2>&1\n\
             exec {rampack} \"$@\""
        ),
    );
    let process = keeper.daemon();
    let said = keeper.ask(&format!("upgrade --to {}", path.display()));
    refused(&said, 1, &["reads no swap, and this state has one", "EINVAL"]);
    assert_eq!(keeper.daemon(), process);
    keeper.does("swap off");
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_daemon_that_a_signal_has_told_to_end_is_not_upgraded() {
    let place = Place::new();
    let keeper = Keeper::start(&place, "serve --transport nbd --size 4M");
    // The signal comes while the next program says that it could take over.
    let path = place.path().join("other");
    let rampack = program().get_program().to_owned().into_string().unwrap();
    script(
        &path,
        &format!("[ -n \"$RAMPACK_REHEARSAL\" ] && kill -TERM $PPID\nexec {rampack} \"$@\""),
    );
    let said = keeper.ask(&format!("upgrade --to {}", path.display()));
    refused(&said, 1, &["a signal has told the daemon to end", "EBUSY"]);
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}

#[test]
fn a_daemon_that_tries_to_end_is_not_upgraded() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, has_resend()];
    if !met("a_daemon_that_tries_to_end_is_not_upgraded", &needs) {
        return;
    }
    let place = Place::new();
    let keeper = Keeper::start(&place, "serve --size 4M");
    let open = File::open(keeper.block_device("zram0")).unwrap();
    kill(keeper.daemon(), libc::SIGTERM);
    keeper.says("It is tried again every second");
    refused(&keeper.ask("upgrade"), 1, &["a signal has told the daemon to end", "EBUSY"]);
    drop(open);
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}

#[test]
fn what_is_asked_of_the_next_program_is_looked_for_first() {
    let place = Place::new();
    let certificates = place.path().join("certificates");
    fs::create_dir(&certificates).unwrap();
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(certificates.join("server-cert.pem"), key.cert.pem()).unwrap();
    fs::write(certificates.join("server-key.pem"), key.signing_key.serialize_pem()).unwrap();
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["keep", "serve", "--transport", "nbd"]);
    command.args(["--size", "4M", "--nbd-tcp", "127.0.0.1:0", "--tls-certificates"]);
    command.arg(&certificates);
    let service = Service::spawn(place, &mut command);
    let mut client = service.client();
    assert_eq!(client.write(4096, &contents(1, 1)), 0);
    fs::rename(certificates.join("server-key.pem"), certificates.join("other")).unwrap();
    refused(&service.ask("upgrade"), 1, &["cannot take over", "server-key.pem", "goes on"]);
    assert_eq!(client.read(4096, 4096), contents(1, 1));
    drop(client);
    fs::rename(certificates.join("other"), certificates.join("server-key.pem")).unwrap();
    service.does("upgrade");
    assert_eq!(service.client().read(4096, 4096), contents(1, 1));
    service.stop();
}

/// A daemon whose keeper is dead; it ends with the test.
struct Orphan(i32);

impl Drop for Orphan {
    fn drop(&mut self) {
        // SAFETY: two numbers. It is the test's own, and nobody has its number yet.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

#[test]
fn a_daemon_without_its_keeper_goes_on_and_is_not_upgraded() {
    let place = Place::new();
    let keeper = Keeper::start(&place, "serve --transport nbd --size 4M");
    let orphan = Orphan(keeper.daemon());
    let mut client = NbdClient::connect(&keeper.nbd(), "zram0").unwrap();
    assert_eq!(client.write(4096, &contents(1, 1)), 0);
    assert!(!keeper.does("status").contains("NOT KEPT"));
    kill(keeper.process(), libc::SIGKILL);
    wait_until("the death is noticed", || keeper.does("status").contains("NOT KEPT"));
    keeper.says("NOT KEPT");
    assert!(keeper.does("status --json").contains(r#""abandoned": true"#));
    for _ in 0..2 {
        let said = keeper.ask("upgrade");
        refused(&said, 1, &["the service manager, which keeps the devices, does not answer"]);
        refused(&said, 1, &["the daemon goes on"]);
        assert_eq!(client.write(8192, &contents(2, 1)), 0);
        assert_eq!(client.read(4096, 4096), contents(1, 1));
    }
    // It is as one that nobody keeps: devices come and go, and it can be stopped.
    keeper.does("add --size 1M");
    let mut other = NbdClient::connect(&keeper.nbd(), "zram1").unwrap();
    assert_eq!(other.write(0, &contents(3, 1)), 0);
    drop(other);
    keeper.does("remove zram1");
    keeper.does("set zram0 mem_limit=8M");
    assert_eq!(keeper.said().matches("NOT KEPT").count(), 1, "{}", keeper.said());
    drop(client);
    wait_until("it stops", || keeper.ask("stop").code == 0);
    wait_until("it ends", || !Path::new(&format!("/proc/{}", orphan.0)).exists());
    std::mem::forget(orphan);
    place.is_clean();
}

#[test]
fn devices_that_end_with_their_program_are_not_handed_over() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd --size 4M");
    refused(&daemon.ask("upgrade"), 1, &["memory that ends with its program", "rampack keep"]);
    refused(&rampack("--root /nonexistent/rampack upgrade"), 1, &["no rampack daemon", "ENOENT"]);
    daemon.stop();
}

#[test]
fn sealed_pages_and_their_key_are_handed_over() {
    let is_there = host::Memfds::new().secret("key", |_| Ok(())).is_ok();
    let need = Need::other(is_there, "secret memory (memfd_secret, Linux 5.14)");
    if !met("sealed_pages_and_their_key_are_handed_over", &[need]) {
        return;
    }
    let service = Service::start("serve --transport nbd --size 4M");
    let backing = service.place.path().join("backing");
    File::create(&backing).unwrap().set_len(1 << 20).unwrap();
    service.does(&format!("add --size 1M --backing {}", backing.display()));
    let mut client = NbdClient::connect(&service.socket(), "zram1").unwrap();
    assert_eq!(client.write(4096, &contents(1, 1)), 0);
    service.does("set zram1 writeback=page_index=1");
    drop(client);
    service.does("upgrade");
    let mut client = NbdClient::connect(&service.socket(), "zram1").unwrap();
    assert_eq!(client.read(4096, 4096), contents(1, 1));
    drop(client);
    service.does("set zram1 scrub=1");
    service.stop();
}

#[test]
fn nothing_changes_while_a_daemon_is_handed_over() {
    let service = Service::start("serve --transport nbd --size 8M");
    // Clients that take no replies are waited for: nobody is served meanwhile.
    let mut client = service.client();
    (0..4).for_each(|_| client.ask_for(0, 8 << 20));
    let said = thread::scope(|scope| {
        let mut command = Command::new("timeout");
        command.arg("120").arg(program().get_program()).arg("--root").arg(service.place.root());
        let upgrade = scope.spawn(move || said(&command.arg("upgrade").output().unwrap()));
        // Who connects meanwhile waits for the next program.
        let is_greeted = || {
            let mut client = UnixStream::connect(service.socket()).unwrap();
            client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            client.read(&mut [0]).is_ok()
        };
        wait_until("it is handed over", || !is_greeted());
        let said = service.ask("clone zram0");
        let upgraded = upgrade.join().unwrap();
        assert_eq!(upgraded.code, 0, "{}", upgraded.err);
        said
    });
    service.wait();
    // The command came in time, or to the next program.
    match said.code {
        0 => assert_eq!(service.does("get zram1 disksize"), "8388608\n"),
        _ => refused(&said, 1, &["being handed over to its next program", "EBUSY"]),
    }
    service.does("remove zram0");
    service.does("add --size 4M");
    service.stop();
}

#[test]
fn the_users_of_block_devices_wait_for_the_new_program() {
    let needs = [Need::Root, Need::Fuse, Need::Loop];
    if !met("the_users_of_block_devices_wait_for_the_new_program", &needs) {
        return;
    }
    let service = Service::start("serve --size 4M");
    let link = service.place.root().join("dev/zram0");
    wait_until("a block device", || link.exists());
    let open = File::options().read(true).write(true).open(&link).unwrap();
    for version in 1..4 {
        open.write_all_at(&contents(1, version), 4096).unwrap();
        open.sync_all().unwrap();
        service.does("upgrade");
        let mut found = vec![0; 4096];
        File::open(&link).unwrap().read_exact_at(&mut found, 4096).unwrap();
        assert_eq!(found, contents(1, version));
        assert_eq!(service.client().read(4096, 4096), contents(1, version));
    }
    drop(open);
    service.stop();
}

/// A service with two disks, and the file of the second one, which this process has open.
fn with_an_open_file() -> (Service, PathBuf, File) {
    let service = Service::start("serve --num-devices 2 --size 4M");
    wait_until("the other disk", || service.ask("get zram1 initstate").out == "1\n");
    let file = service.place.root().join("files/zram1");
    let open = File::options().read(true).write(true).open(&file).unwrap();
    (service, file, open)
}

#[test]
fn a_program_keeps_the_file_that_it_opened_under_the_daemon_before() {
    let name = "a_program_keeps_the_file_that_it_opened_under_the_daemon_before";
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop, has_resend()]) {
        return;
    }
    let (service, file, open) = with_an_open_file();
    let this = format!("pid {}", std::process::id());
    for is_upgrade in [false, true] {
        let before = service.process();
        match is_upgrade {
            true => _ = service.does("upgrade"),
            false => {
                kill(before, libc::SIGKILL);
                let next = || daemon_of(service.keeper.0.id()).is_some_and(|it| it != before);
                wait_until("the next daemon", next);
                service.wait();
            }
        }
        for command in ["remove zram1", "reset zram1", "stop"] {
            refused(&service.ask(command), 1, &["zram1", "in use", &this, "EBUSY"]);
        }
        open.write_all_at(&contents(1, 1), 0).unwrap();
    }
    let mut found = vec![0; 4096];
    File::open(&file).unwrap().read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, contents(1, 1));
    drop(open);
    service.does("remove zram1");
    service.stop();
}

#[test]
fn a_file_that_is_gone_is_no_other_disk_after_an_upgrade() {
    let name = "a_file_that_is_gone_is_no_other_disk_after_an_upgrade";
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop, has_resend()]) {
        return;
    }
    let (service, file, open) = with_an_open_file();
    service.does("remove --force zram1");
    service.does("upgrade");
    assert_eq!(service.does("add --size 4M"), "zram1\n");
    open.write_at(&[1; 4096], 0).unwrap_err();
    let mut found = vec![1; 4096];
    File::open(&file).unwrap().read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [0; 4096]);
    drop(open);
    service.stop();
}

#[test]
fn a_program_on_a_disk_of_the_daemon_is_refused() {
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    let needs = [Need::Root, Need::Fuse, Need::Loop, mkfs];
    if !met("a_program_on_a_disk_of_the_daemon_is_refused", &needs) {
        return;
    }
    let service = Service::start("serve --size 32M");
    let (process, link) = (service.process(), service.place.root().join("dev/zram0"));
    wait_until("a block device", || link.exists());
    run(Command::new("mkfs.ext4").arg("-q").arg(&link));
    let at = service.place.mount_point();
    run(Command::new("mount").args([&link, &at]));
    let path = at.join("rampack");
    let text = format!("#!/bin/sh\nexec {:?} \"$@\"\n", program().get_program());
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    let said = service.ask(&format!("upgrade --to {}", path.display()));
    run(Command::new("umount").arg(&at));
    refused(&said, 1, &["rampack is on a device of this daemon", "EINVAL"]);
    assert_eq!(service.process(), process);
    service.does("upgrade");
    service.stop();
}

#[test]
fn sockets_of_a_service_manager_are_handed_over() {
    let place = Place::new();
    let path = place.path().join("activated.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=nbd exec \"$@\"";
    let rampack = program();
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(rampack.get_program()).arg("--root").arg(place.root());
    command.args(["keep", "serve", "--transport", "nbd", "--size", "4M"]);
    command.env("RAMPACK_SANDBOX", "strict").stdin(Stdio::from(OwnedFd::from(listener)));
    let service = Service::spawn(place, &mut command);
    let process = service.process();
    let client = || NbdClient::connect(&path, "zram0").unwrap();
    assert_eq!(client().write(4096, &contents(1, 1)), 0);
    for _ in 0..2 {
        service.does("upgrade");
        assert_eq!(client().read(4096, 4096), contents(1, 1));
    }
    assert_eq!(service.process(), process);
    service.stop();
}

#[test]
fn a_state_of_a_newer_layout_is_refused_by_name_and_stays() {
    let place = Place::new();
    let log = place.path().join("log");
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["keep", "serve", "--transport", "nbd"]);
    command.args(["--size", "4M"]).stdout(Stdio::null());
    command.stderr(Stdio::from(File::create(&log).unwrap()));
    let keeper = Kept(command.spawn().unwrap());
    let service = Service { place, keeper };
    service.wait();
    assert_eq!(service.client().write(4096, &contents(1, 1)), 0);
    let table = table_of(service.keeper.0.id());
    let mut layout = [0; 4];
    table.read_exact_at(&mut layout, 8).unwrap();
    let newer = u32::from_ne_bytes(layout) + 1;
    table.write_all_at(&newer.to_ne_bytes(), 8).unwrap();
    kill(service.process(), libc::SIGKILL);
    let said =
        format!("the kept state has a newer layout, {newer}; this program reads layouts 1 to 2");
    wait_until("the refusal", || fs::read_to_string(&log).unwrap().contains(&said));
    // Nothing is lost: a program that reads it, or here the layout of before, has it all.
    table.write_all_at(&layout, 8).unwrap();
    service.wait();
    assert_eq!(service.client().read(4096, 4096), contents(1, 1));
    service.stop();
}

/// The table of the state that a keeper has.
pub fn table_of(keeper: u32) -> File {
    let fds = fs::read_dir(format!("/proc/{keeper}/fd")).unwrap();
    let is_table = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == kept::Table::BYTES)
    };
    let path = fds.map(|entry| entry.unwrap().path()).find(is_table).expect("a table");
    File::options().read(true).write(true).open(path).unwrap()
}
