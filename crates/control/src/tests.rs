use crate::*;
use alloc::{string::ToString, sync::Arc};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Thing(AtomicU64);

static ROWS: &[Row<Thing>] = &[
    Row {
        name: "level",
        access: Access::ReadWrite,
        unit: "count",
        help: "how high",
        show: Some(|t, out| {
            let _ = writeln!(out, "{}", t.0.load(Relaxed));
            Ok(())
        }),
        store: Some(|t, text| {
            let value = text.trim().parse().map_err(|_| Fault::invalid("level takes a number"))?;
            t.0.store(value, Relaxed);
            Ok(())
        }),
    },
    Row {
        name: "reset",
        access: Access::ActOnWrite,
        unit: "text",
        help: "start again",
        show: None,
        store: Some(|t, _| {
            t.0.store(0, Relaxed);
            Ok(())
        }),
    },
];

fn thing() -> Bound<Thing> {
    Bound::new(Arc::new(Thing(AtomicU64::new(7))), ROWS)
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
    let fault = thing.show("depth").unwrap_err();
    assert_eq!(fault.errno, Errno::ENOENT);
    assert!(fault.to_string().contains("level reset"), "{fault}");
    assert_eq!(thing.show("reset").unwrap_err().errno, Errno::EACCES);
}

#[test]
fn modes_are_the_kernels() {
    assert_eq!(Access::Read.mode(), 0o444);
    assert_eq!(Access::ActOnRead.mode(), 0o400);
    assert_eq!(Errno::EBUSY.name(), "EBUSY");
}
