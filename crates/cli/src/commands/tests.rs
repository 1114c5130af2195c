use clap::Parser;

use super::*;
use crate::args::{Cli, Command};

/// What `rampack status LINE` shows of a daemon with zram0 and swap0: the names, or why nothing.
fn shown(line: &str) -> Result<Vec<String>, String> {
    let words = format!("rampack status {line}");
    let Command::Status(options) = Cli::parse_from(words.split_whitespace()).command else {
        panic!("{words}")
    };
    let mut daemon: DaemonReport = serde_json::from_value(json!({
        "rampack": "1.2.3", "pid": 1, "root": "/r", "nbd": [], "block_devices": true, "devices": [],
    }))
    .unwrap();
    daemon.devices = vec![DeviceReport { name: "zram0".into(), ..DeviceReport::default() }];
    daemon.swaps = vec![SwapReport { name: "swap0".into(), ..SwapReport::default() }];
    let (disks, swaps) = chosen(&daemon, &options).map_err(|error| error.message)?;
    let disks = disks.into_iter().map(|it| it.name);
    Ok(disks.chain(swaps.into_iter().map(|it| it.name)).collect())
}

#[test]
fn a_swap_device_beside_what_is_of_disks_is_refused() {
    for (line, names) in [
        ("", &["zram0", "swap0"][..]),
        ("swap0", &["swap0"]),
        ("zram0 swap0", &["zram0", "swap0"]),
        ("--raw zram0", &["zram0"]),
        ("swap0 --json --output NAME", &["swap0"]),
    ] {
        assert_eq!(shown(line).unwrap(), names, "{line}");
    }
    for option in ["--output NAME", "--raw", "--noheadings"] {
        let why = shown(&format!("{option} zram0 swap0")).unwrap_err();
        assert!(why.starts_with("swap0 is a swap device: "), "{why}");
    }
    let none = shown("zram1").unwrap_err();
    assert_eq!(none, "no device \"zram1\"; there are: zram0 swap0");
}
