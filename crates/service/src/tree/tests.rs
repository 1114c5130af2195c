use super::*;

use control::tree::{attributes, find};

use crate::root::Root;

fn devices() -> Arc<Devices> {
    let root = Root::choose(Some(std::path::Path::new("/nonexistent/rampack"))).unwrap();
    Arc::new(Devices::new(root, crate::engine::new().unwrap(), None))
}

fn row(top: &Arc<dyn Directory>, path: &str) -> control::tree::AttributeFile {
    match find(top, path) {
        Some(Node::Attribute(attribute)) => attribute,
        _ => panic!("{path} is no attribute"),
    }
}

#[test]
fn devices_come_and_go_in_the_tree() {
    let devices = devices();
    let top = tree(&devices);
    assert_eq!(row(&top, "class/zram-control/hot_add").show().unwrap(), "0\n");
    assert_eq!(row(&top, "class/zram-control/hot_add").show().unwrap(), "1\n");
    assert_eq!(row(&top, "module/zram/parameters/num_devices").show().unwrap(), "2\n");
    let size = row(&top, "block/zram0/disksize");
    size.store("1M\n").unwrap();
    assert_eq!(size.show().unwrap(), "1048576\n");
    assert_eq!(row(&top, "block/zram0/size").show().unwrap(), "2048\n");
    assert_eq!(row(&top, "block/zram0/dev").show().unwrap(), "0:0\n");
    let remove = row(&top, "class/zram-control/hot_remove");
    remove.store("0\n").unwrap();
    assert!(find(&top, "block/zram0").is_none());
    for fault in [size.show().unwrap_err(), size.store("1M").unwrap_err()] {
        assert_eq!(fault.errno, Errno::ENODEV, "{fault}");
    }
    assert!(size.object.attributes().is_empty());
    assert_eq!(row(&top, "class/zram-control/hot_add").show().unwrap(), "0\n");
    assert_eq!(size.show().unwrap_err().errno, Errno::ENODEV, "it is another device");
    assert_eq!(row(&top, "block/zram0/disksize").show().unwrap(), "0\n");
}

#[test]
fn the_module_is_loaded_and_unloaded() {
    let devices = devices();
    let top = tree(&devices);
    let state = "module/zram/initstate";
    assert_eq!(row(&top, state).show().unwrap(), "live\n");
    row(&top, "class/zram-control/load").store("3\n").unwrap();
    assert_eq!(row(&top, "module/zram/parameters/num_devices").show().unwrap(), "3\n");
    assert_eq!(row(&top, "module/zram/refcnt").show().unwrap(), "0\n");
    let user = devices.disk("zram2").unwrap().open();
    assert_eq!(row(&top, "module/zram/refcnt").show().unwrap(), "1\n");
    let unload = row(&top, "class/zram-control/unload");
    assert_eq!(unload.store("1\n").unwrap_err().errno, Errno::EBUSY);
    drop(user);
    for text in ["0", "2", "", "yes"] {
        assert_eq!(unload.store(text).unwrap_err().errno, Errno::EINVAL, "{text}");
    }
    unload.store("1\n").unwrap();
    assert!(find(&top, "block/zram0").is_none() && find(&top, state).is_none());
    assert_eq!(row(&top, "class/zram-control/hot_add").show().unwrap(), "0\n");
    assert_eq!(row(&top, state).show().unwrap(), "live\n", "there is a device");
    let Some(Node::Directory(holders)) = find(&top, "module/zram/holders") else {
        panic!("no directory")
    };
    assert!(holders.names().is_empty());
}

#[test]
fn a_device_is_removed_by_a_number_as_the_kernel_reads_one() {
    let devices = devices();
    let top = tree(&devices);
    let remove = row(&top, "class/zram-control/hot_remove");
    let disk = devices.add(&Add::default()).unwrap();
    for (text, errno) in [
        ("", Errno::EINVAL),
        ("\n", Errno::EINVAL),
        ("foo", Errno::EINVAL),
        (" 0", Errno::EINVAL),
        ("0 ", Errno::EINVAL),
        ("0\n\n", Errno::EINVAL),
        ("0x0", Errno::EINVAL),
        ("-1", Errno::EINVAL),
        ("+-1", Errno::EINVAL),
        ("99999999999", Errno::ERANGE),
        ("7", Errno::ENODEV),
        ("+7\n", Errno::ENODEV),
    ] {
        assert_eq!(remove.store(text).unwrap_err().errno, errno, "{text:?}");
    }
    let user = disk.open();
    assert_eq!(remove.store("0").unwrap_err().errno, Errno::EBUSY);
    drop(user);
    remove.store("+0\n").unwrap();
}

#[test]
fn no_attribute_is_there_twice() {
    let devices = devices();
    devices.add(&Add::default()).unwrap();
    let mut paths: Vec<String> =
        attributes(&*tree(&devices)).into_iter().map(|(path, _)| path).collect();
    paths.sort();
    for pair in paths.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
    let own: Vec<&str> = zram::ATTRIBUTES.iter().map(|row| row.name).collect();
    let twice: Vec<&str> =
        block::ATTRIBUTES.iter().map(|row| row.name).filter(|name| own.contains(name)).collect();
    assert!(twice.is_empty(), "the device has {twice:?} itself now: take them off block::ROWS");
}

#[test]
fn every_device_shows_and_takes_what_its_modes_say() {
    let devices = devices();
    devices.add(&Add::default()).unwrap();
    for (path, attribute) in attributes(&*tree(&devices)) {
        let access = attribute.info.access;
        if !access.readable() && access != Access::ActOnRead {
            assert_eq!(attribute.show().unwrap_err().errno, Errno::EACCES, "{path}");
        }
        if !access.writable() {
            assert_eq!(attribute.store("1").unwrap_err().errno, Errno::EACCES, "{path}");
        }
    }
}

#[test]
fn the_cache_of_swap_devices_is_where_linux_has_it() {
    let devices = devices();
    let top = tree(&devices);
    assert!(find(&top, "fs/cgroup/default").is_none(), "it is made when it is asked for");
    let parameter = |name: &str| row(&top, &format!("module/zswap/parameters/{name}"));
    assert_eq!(parameter("compressor").show().unwrap(), "lz4\n");
    parameter("compressor").store("zstd\n").unwrap();
    assert_eq!(parameter("compressor").show().unwrap(), "zstd\n");
    parameter("max_pool_percent").store("30").unwrap();
    assert_eq!(
        values(&devices, "module/zswap/parameters", &["max_pool_percent".into()]).unwrap()[0].value,
        "30"
    );
    assert_eq!(parameter("max_pool_percent").store("101").unwrap_err().errno, Errno::EINVAL);
    assert_eq!(row(&top, "kernel/debug/zswap/stored_pages").show().unwrap(), "0\n");
    let group = |name: &str| row(&top, &format!("fs/cgroup/default/memory.zswap.{name}"));
    assert_eq!(group("max").show().unwrap(), "max\n");
    group("max").store("1M").unwrap();
    assert_eq!(group("max").show().unwrap(), "1048576\n");
    assert_eq!(group("current").show().unwrap(), "0\n");
    assert!(find(&top, "fs/cgroup/other").is_none());
}

#[test]
fn a_directory_shows_all_of_its_own() {
    let devices = devices();
    devices.machine().swap().unwrap();
    let values = values(&devices, "module/zswap/parameters", &[]).unwrap();
    let value = |name: &str| values.iter().find(|it| it.name == name).map(|it| &*it.value);
    assert_eq!((value("enabled"), value("max_pool_percent")), (Some("Y"), Some("20")));
    assert!(super::values(&devices, "module/zswap/none", &[]).is_err());
    let described = descriptions(&devices, "module/zswap/parameters").unwrap();
    let names: Vec<_> = described.iter().map(|it| &*it.name).collect();
    assert_eq!(names, values.iter().map(|it| &*it.name).collect::<Vec<_>>());
    assert!(descriptions(&devices, "module/zswap/none").is_err());
}

#[test]
fn a_look_at_the_swap_cache_does_not_make_it() {
    let devices = devices();
    let top = tree(&devices);
    let rows = || {
        let rows = attributes(&*top).into_iter().filter(|(_, row)| row.info.access.readable());
        rows.map(|(path, row)| (path, row.show().unwrap())).collect::<Vec<_>>()
    };
    let of_swap = |rows: Vec<(String, String)>| {
        rows.into_iter().filter(|(path, _)| path.contains("zswap/")).collect::<Vec<_>>()
    };
    let before = of_swap(rows());
    assert!(before.len() > 20 && devices.machine().swap_if_made().is_none(), "{before:?}");
    row(&top, "module/zswap/parameters/enabled").store("Y\n").unwrap();
    assert!(devices.machine().swap_if_made().is_some());
    assert_eq!(of_swap(rows()), before);
}

/// The columns of the last line of a table of size classes: zspages, slots, used slots, pages.
fn sums(table: &str) -> [u64; 4] {
    let names = table.lines().next().unwrap().split_whitespace().count();
    assert_eq!(names, 18, "{table}");
    let total = table.lines().last().unwrap().strip_prefix(" Total").unwrap();
    let numbers: Vec<u64> = total.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 15, "{table}");
    [numbers[..11].iter().sum(), numbers[11], numbers[12], numbers[13]]
}

/// A page of which so many bytes do not shrink.
fn page(seed: u8, bytes: usize) -> units::Page {
    let mut page = [7; units::PAGE_SIZE];
    testkit::Rng::new(seed.into()).fill(&mut page[..bytes]);
    page
}

#[test]
fn each_pool_tells_its_size_classes() {
    let devices = devices();
    let top = tree(&devices);
    let disk = devices.add(&Add::default()).unwrap();
    assert!(find(&top, "kernel/debug/zsmalloc/zram0").is_none());
    disk.set_disksize(1 << 20).unwrap();
    let classes = row(&top, "kernel/debug/zsmalloc/zram0/classes");
    assert_eq!(sums(&classes.show().unwrap()), [0; 4]);
    (0..40).for_each(|n| disk.store_page(units::Cpu(0), n, &page(n as u8, 1800)).unwrap());
    let [zspages, slots, used, pages] = sums(&classes.show().unwrap());
    assert_eq!((used, pages * 4096), (40, disk.stats().pool_bytes));
    assert!(zspages > 0 && slots >= used && pages < 40, "{zspages} {slots} {pages}");
    assert!(find(&top, "kernel/debug/zsmalloc/zswap1").is_none());
    devices.machine().swap().unwrap();
    assert_eq!(sums(&row(&top, "kernel/debug/zsmalloc/zswap1/classes").show().unwrap()), [0; 4]);
}
