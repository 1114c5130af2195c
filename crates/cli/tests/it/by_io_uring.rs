//! Files and loop devices whose requests come by io_uring.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::Need;

use crate::common::{Daemon, Place};

const MIB: u64 = 1 << 20;
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

#[test]
fn it_is_chosen_and_shown() {
    let ring = Need::Other { what: "FUSE over io_uring", is_there: Path::new(PARAMETER).exists() };
    let needs = [Need::Root, Need::Fuse, Need::Loop, ring];
    if !testkit::met("it_is_chosen_and_shown", &needs) {
        return;
    }
    let before = fs::read_to_string(PARAMETER).unwrap();
    for (transport, is_by_ring) in [("fuse-io-uring", true), ("fuse-classic", false)] {
        let place = Place::new();
        let daemon = Daemon::start(&place, &format!("serve --size 16M --transport {transport}"));
        assert_eq!(fs::read_to_string(PARAMETER).unwrap(), before, "it is as it was");
        let said = "requests to files and loop devices come by io_uring";
        assert_eq!(daemon.does("status").contains(said), is_by_ring, "{transport}");
        let told = daemon.does("status --json").contains("\"by_io_uring\": true");
        assert_eq!(told, is_by_ring, "{transport}");
        let device = format!("/dev/loop{}", place.loops()[0]);
        let page = [7; 4096];
        let device = OpenOptions::new().read(true).write(true).open(device).unwrap();
        device.write_all_at(&page, MIB).unwrap();
        device.sync_all().unwrap();
        let mut into = [0; 4096];
        device.read_exact_at(&mut into, MIB).unwrap();
        assert_eq!(into, page);
        drop(device);
        daemon.stop();
        place.is_clean();
    }
}
