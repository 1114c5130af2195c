//! Pages on a backing device, after the death of the daemon that encrypted them.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rampack::host::Memfds;
use testkit::{Need, TempDir, met};

use crate::common::{NbdClient, Place, noise, program, rampack, wait_until};
use crate::keep::Kept;
use crate::keeper::{daemon_of, kill};

const PAGES: u64 = 100;

#[test]
fn pages_that_were_sealed_outlive_the_daemon() {
    let secret = Memfds::new().secret("key", |_| Ok(())).is_ok();
    let need = Need::other(secret, "secret memory (memfd_secret, Linux 5.14)");
    if !met("pages_that_were_sealed_outlive_the_daemon", &[need]) {
        return;
    }
    let (place, directory) = (Place::new(), TempDir::new());
    let backing = directory.join("backing");
    File::create(&backing).unwrap().set_len(1 << 20).unwrap();
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["keep", "serve", "--transport", "nbd"]);
    command.args(["--size", "4M", "--backing"]).arg(&backing);
    let mut keeper = Kept(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let (socket, root) = (place.root().join("nbd.sock"), place.root());
    let asked = |what: &str| rampack(&format!("--root {} {what}", root.display()));
    let does = |what: &str| {
        let said = asked(what);
        assert_eq!(said.code, 0, "{what}: {}", said.err);
        said.out
    };
    wait_until("a daemon serves", || {
        UnixStream::connect(&socket).is_ok() && asked("status").code == 0
    });
    let page = |n: u64| noise(n).into_iter().take(4096).collect::<Vec<u8>>();
    let mut client = NbdClient::connect(&socket, "zram0").unwrap();
    for n in 0..PAGES {
        assert_eq!(client.write(n * 4096, &page(n)), 0);
    }
    drop(client);
    does("set zram0 writeback=huge");
    let backed = |stat: &str| stat.split_whitespace().next().map(str::to_owned);
    assert_eq!(backed(&does("get zram0 bd_stat")), Some(PAGES.to_string()));
    for round in 0..2 {
        let dead = daemon_of(keeper.0.id()).unwrap();
        kill(dead, libc::SIGKILL);
        wait_until("the next daemon serves", || {
            daemon_of(keeper.0.id()).is_some_and(|it| it != dead) && asked("status").code == 0
        });
        let stat = does("get zram0 bd_stat");
        assert_eq!(backed(&stat), Some((PAGES - round).to_string()), "{stat}");
        does("set zram0 scrub=1");
        let mut client = NbdClient::connect(&socket, "zram0").unwrap();
        for n in 0..PAGES {
            assert!(client.read(n * 4096, 4096) == page(n), "page {n}");
        }
        // One that is back in memory stays there.
        assert_eq!(client.write(round * 4096, &page(round)), 0);
    }
    does("stop");
    assert!(keeper.0.wait().unwrap().success());
    place.is_clean();
}
