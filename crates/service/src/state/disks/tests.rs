use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ublk::Id;
use zram::SavedDisk;

use super::{device, disks, saved, saved_setting, take_saved_at, take_ublk, ublk_setting};

fn disk(settings: &[(&str, &str)]) -> SavedDisk {
    let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    SavedDisk { id: 7, bytes: 4096, generation: 2, clone_of: None, settings: settings.collect() }
}

#[test]
fn a_block_device_by_ublk_is_found_again_and_is_no_setting() {
    let settings = [("comp_algorithm", "zstd"), ("mem_limit", "4096")];
    let mut kept = disk(&settings);
    let id = Id { number: 3, maker: 4711 };
    kept.settings.push(ublk_setting(id));
    let mut left = saved(device(kept)).unwrap();
    assert_eq!(take_ublk(&mut left), Some((7, id)));
    assert_eq!(left, disk(&settings));
    assert_eq!(take_ublk(&mut left), None);
}

#[test]
fn a_block_device_that_cannot_be_is_none() {
    for value in ["", "3", "3 x", "x 4711", "-1 4711", "3 4711 5", "99999999999 1"] {
        let mut left = disk(&[("ublk", value), ("mem_limit", "4096")]);
        assert_eq!(take_ublk(&mut left), None, "{value:?}");
        assert_eq!(left, disk(&[("mem_limit", "4096")]), "{value:?}");
    }
}

#[test]
fn the_file_that_a_disk_is_saved_to_is_found_again_and_is_no_setting() {
    let settings = [("mem_limit", "4096")];
    let path = Path::new(OsStr::from_bytes(b"/var/lib/\xff a"));
    let mut kept = disk(&settings);
    kept.settings.push(saved_setting(path));
    kept.settings.push(ublk_setting(Id { number: 3, maker: 4711 }));
    // Who only looks at the disks sees neither.
    assert_eq!(disks(vec![device(kept.clone())]).unwrap(), [disk(&settings)]);
    let mut left = saved(device(kept)).unwrap();
    assert_eq!(take_saved_at(&mut left), Some((7, path.to_owned())));
    // An older program has kept none.
    assert_eq!(take_saved_at(&mut left), None);
}

#[test]
fn a_clone_is_found_again() {
    let clone = SavedDisk { clone_of: Some(3), ..disk(&[]) };
    assert_eq!(disks(vec![device(clone.clone())]).unwrap(), std::slice::from_ref(&clone));
    let mut damaged = device(clone);
    damaged.settings.insert("clone_of".into(), "x".into());
    let error = disks(vec![damaged]).unwrap_err();
    assert!(error.message.contains("clone_of of zram7"), "{}", error.message);
}
