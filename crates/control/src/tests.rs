use crate::tree::{Attributes, Directory, Fixed, Node};
use crate::*;
use alloc::{string::ToString, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Thing(AtomicU64);

static ATTRIBUTES: &[Attribute<Thing>] = &[
    Attribute {
        name: "level",
        access: Access::ReadWrite,
        unit: "count",
        kind: ValueKind::Plain,
        help: "how high",
        show: Some(|t, out| {
            let _ = writeln!(out, "{}", t.0.load(Relaxed));
            Ok(())
        }),
        store: Some(|t, text| {
            let value =
                text.trim().parse().map_err(|_| ControlError::invalid("level takes a number"))?;
            t.0.store(value, Relaxed);
            Ok(())
        }),
    },
    Attribute {
        name: "reset",
        access: Access::ActOnWrite,
        unit: "text",
        kind: ValueKind::Plain,
        help: "start again",
        show: None,
        store: Some(|t, _| {
            t.0.store(0, Relaxed);
            Ok(())
        }),
    },
    Attribute {
        name: "queue/depth",
        access: Access::Read,
        unit: "count",
        kind: ValueKind::Plain,
        help: "how deep",
        show: Some(|_, out| {
            let _ = writeln!(out, "64");
            Ok(())
        }),
        store: None,
    },
];

fn thing() -> Bound<Thing> {
    Bound::new(Arc::new(Thing(AtomicU64::new(7))), ATTRIBUTES)
}

#[test]
fn rows_show_and_store() {
    let thing = thing();
    assert_eq!(thing.show("level").unwrap(), "7\n");
    thing.store("level", "9\n").unwrap();
    assert_eq!(thing.show("level").unwrap(), "9\n");
    assert_eq!(thing.store("level", "x").unwrap_err().errno, Errno::EINVAL);
    assert_eq!(thing.show("level").unwrap(), "9\n");
    thing.store("reset", "1").unwrap();
    assert_eq!(thing.show("level").unwrap(), "0\n");
}

#[test]
fn wrong_names_and_directions_are_told() {
    let thing = thing();
    let error = thing.show("depth").unwrap_err();
    assert_eq!(error.errno, Errno::ENOENT);
    assert!(error.to_string().contains("level reset queue/depth"), "{error}");
    assert_eq!(thing.show("reset").unwrap_err().errno, Errno::EACCES);
}

#[test]
fn modes_are_the_kernels() {
    assert_eq!(Access::Read.mode(), 0o444);
    assert_eq!([Access::ReadOwner.mode(), Access::ActOnRead.mode()], [0o400; 2]);
    assert!(Access::ReadOwner.readable() && !Access::ActOnRead.readable());
    assert_eq!(Errno::EBUSY.name(), "EBUSY");
}

fn files() -> Arc<dyn Directory> {
    let object: Arc<dyn Object> = Arc::new(thing());
    let all = Attributes::new(object.clone(), |_| true).identified(7);
    let one = Attributes::new(object, |name| name == "queue/depth");
    Arc::new(Fixed::new().dir("all", all).hidden("one", one).with("link", Node::Link("all".into())))
}

#[test]
fn a_tree_is_walked_by_its_listed_names() {
    let paths: Vec<_> = tree::attributes(&*files()).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["all/level", "all/reset", "all/queue/depth"]);
    assert_eq!(files().names(), ["all", "link"]);
    let Some(Node::Directory(all)) = tree::find(&files(), "/all/") else { panic!("no directory") };
    assert_eq!(all.names(), ["level", "reset", "queue"]);
    assert_eq!(all.identity(), 7);
    let Some(Node::Directory(one)) = tree::find(&files(), "one") else { panic!("hidden is found") };
    assert_eq!(one.names(), ["queue"]);
}

#[test]
fn a_row_is_found_by_its_path() {
    let Some(Node::Attribute(depth)) = tree::find(&files(), "all/queue/depth") else {
        panic!("no attribute")
    };
    assert_eq!((depth.info.name, &*depth.show().unwrap()), ("queue/depth", "64\n"));
    assert_eq!(depth.store("1").unwrap_err().errno, Errno::EACCES);
    for nothing in ["all/queue/depth/x", "all/queu", "all/depth", "al", "one/level", "link/level"] {
        assert!(tree::find(&files(), nothing).is_none(), "{nothing}");
    }
}

#[test]
fn switches_are_read_as_the_kernel_reads_them() {
    for yes in ["1", "y", "Y\n", "yes please", "true", "T", "on", "ON\n", "oN", "100"] {
        assert_eq!(parse_switch("it", yes), Ok(true), "{yes:?}");
    }
    for no in ["0", "n", "N\n", "never", "false", "F", "off", "OFF\n", "of", "01"] {
        assert_eq!(parse_switch("it", no), Ok(false), "{no:?}");
    }
    for bad in ["", "\n", "2", "o", "other", " 1", "-1", "enabled"] {
        let error = parse_switch("it", bad).unwrap_err();
        assert_eq!(error.errno, Errno::EINVAL, "{bad:?}");
        assert!(error.message.starts_with("it takes Y or N"), "{}", error.message);
    }
}
