//! What `rampack status --json` prints against its schema: here in full, and in `common` whatever
//! any test asks for.

use std::path::Path;

use cli::columns::{COLUMNS, Column, named};
use cli::schema::{VERSION, of};
use serde_json::{Value, from_str, json};
use service::latency::{BOUNDS, Latency};
use service::protocol::{DaemonReport, DeviceReport};
use service::swap::report::{LogReport, PoolReport, Protection, SwapReport};
use service::zone::ZoneReport;

use crate::common::rampack;

fn all() -> Vec<&'static Column> {
    COLUMNS.iter().collect()
}

/// Why `value` is not what `schema` says. A field that the schema does not know is a fault too.
fn fault(schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(constant) = schema.get("const") {
        return (constant != value).then(|| format!("{at} is {value}, not {constant}"));
    }
    let kinds = &schema["type"];
    let kinds: Vec<&str> = match kinds.as_array() {
        Some(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        None => kinds.as_str().into_iter().collect(),
    };
    let is = |kind: &&str| match *kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{at}: the schema has a type {other:?}"),
    };
    if !kinds.iter().any(is) {
        return Some(format!("{at} is {value}, not {kinds:?}"));
    }
    if let Some(items) = value.as_array() {
        let mut items = items.iter().enumerate();
        return items.find_map(|(n, item)| fault(&schema["items"], item, &format!("{at}[{n}]")));
    }
    let fields = value.as_object()?;
    let mut required =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(name) = required.find(|name| !fields.contains_key(*name)) {
        return Some(format!("{at} has no {name}"));
    }
    fields.iter().find_map(|(name, field)| match schema["properties"].get(name) {
        Some(schema) => fault(schema, field, &format!("{at}.{name}")),
        None => Some(format!("{at}.{name} is not in the schema")),
    })
}

/// Checks what a command line that begins with `status` printed, if that is JSON.
#[track_caller]
pub fn check_status(line: &str, printed: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let has = |names: [&str; 2]| words.iter().position(|word| names.contains(word));
    if words.first() != Some(&"status") || has(["--json", "-J"]).is_none() {
        return;
    }
    let columns = has(["--output", "-o"]).map_or_else(all, |at| named(words[at + 1]).unwrap());
    let value: Value = from_str(printed).unwrap();
    let fault = fault(&of(&columns), &value, "status");
    assert_eq!(fault, None, "rampack {line}: {printed}");
}

/// Reports with everything that there can be, and with as little as there can be.
pub fn reports() -> [DaemonReport; 2] {
    let device = DeviceReport {
        name: "zram0".into(),
        block_device: Some("/dev/loop0".into()),
        nbd: vec!["nbd://localhost/zram0".into()],
        attributes: [("mm_stat".to_string(), "8192 9 4096 0 0 0 0 0 0".to_string())].into(),
        mountpoints: vec!["/mnt".into()],
        refused: Some("it is torn".into()),
        ..DeviceReport::default()
    };
    let swap = SwapReport {
        priority: Some(-1),
        backing: Some("/file".into()),
        log: Some(LogReport::default()),
        protections: vec![Protection { name: "it".into(), had: true, text: "so".into() }],
        notes: vec!["a note".into()],
        ..SwapReport::default()
    };
    let cache = PoolReport {
        stored_pages: 3,
        pool_bytes: 4096,
        headroom_bytes: Some(1),
        ..PoolReport::default()
    };
    let full = DaemonReport {
        rampack: "1.2.3".into(),
        pid: 1,
        root: "/r".into(),
        file: None,
        nbd: vec!["nbd://localhost".into()],
        block_devices: true,
        by_io_uring: false,
        is_abandoned: true,
        is_timed: true,
        devices: vec![device],
        swaps: vec![swap],
        swap_cache: Some(cache),
        zone: ZoneReport { free_blocks: vec![1, 2], ..ZoneReport::default() },
        latencies: vec![Latency {
            device: "zram0".into(),
            operation: "read".into(),
            classes: vec![1; BOUNDS.len() + 1],
            sum: 7,
        }],
    };
    let least = DaemonReport {
        devices: vec![DeviceReport::default()],
        swaps: vec![SwapReport::default()],
        swap_cache: None,
        ..full.clone()
    };
    [full, least]
}

#[test]
fn every_report_is_what_the_schema_says() {
    let schema = of(&all());
    for report in reports() {
        let value = cli::commands::status_object(&report, &all());
        assert_eq!(fault(&schema, &value, "status"), None, "{value:#}");
    }
    let value = cli::commands::status_object(&reports()[0], &all());
    for (change, expected) in [
        (("/pid", json!("1")), "status.pid is \"1\""),
        (("/version", json!(VERSION + 1)), "status.version"),
        (("/devices/0/ratio", json!("x")), "status.devices[0].ratio"),
        (("/swaps/0/log/live", json!(1.5)), "status.swaps[0].log.live"),
        (("/zone", json!({})), "status.zone has no "),
        (("/swap_cache/new", json!(1)), "status.swap_cache.new is not in the schema"),
    ] {
        let (mut value, (place, new)) = (value.clone(), change);
        let (parent, name) = place.rsplit_once('/').unwrap();
        value.pointer_mut(parent).unwrap()[name] = new;
        let found = fault(&schema, &value, "status").expect(place);
        assert!(found.starts_with(expected), "{found}");
    }
    let columns = named("name,data").unwrap();
    let value = cli::commands::status_object(&reports()[0], &columns);
    assert_eq!(fault(&of(&columns), &value, "status"), None);
    assert!(fault(&schema, &value, "status").is_some_and(|fault| fault.contains("has no")));
}

/// What programs rely on in `before` and `after` does not keep.
fn broken(before: &Value, after: &Value, at: &str) -> Option<String> {
    let kinds = |schema: &Value| match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    let (old, new) = (kinds(before), kinds(after));
    if new.iter().any(|kind| !old.contains(kind)) {
        return Some(format!("{at} is {new:?} where it was {old:?}"));
    }
    if before.get("items").is_some() {
        return broken(&before["items"], &after["items"], &format!("{at}[]"));
    }
    let fields = before["properties"].as_object()?;
    fields.iter().find_map(|(name, field)| {
        let at = format!("{at}.{name}");
        let is_there = after["required"].as_array().is_some_and(|it| it.contains(&json!(name)));
        match after["properties"].get(name) {
            Some(after) if is_there => broken(field, after, &at),
            _ => Some(format!("{at} is gone")),
        }
    })
}

#[test]
fn a_field_goes_only_with_the_version() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("../../docs/reference/status.schema.json");
    let said = rampack("status --schema");
    assert_eq!(said.code, 0, "{}", said.err);
    let made: Value = from_str(&said.out).unwrap();
    assert_eq!(made, of(&all()));
    if let Ok(before) = std::fs::read_to_string(&path) {
        let before: Value = from_str(&before).unwrap();
        if before["properties"]["version"] == made["properties"]["version"] {
            let broken = broken(&before, &made, "status");
            assert_eq!(broken, None, "schema::VERSION must rise for this");
        }
    }
    if std::env::var_os("RAMPACK_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, &said.out).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, said.out, "RAMPACK_GOLDEN=write makes it anew, to be looked at");
}

#[test]
fn what_programs_rely_on_is_told_from_what_is_new() {
    let schema = of(&all());
    let with = |place: &str, new: Option<Value>| {
        let mut schema = schema.clone();
        let (parent, name) = place.rsplit_once('/').unwrap();
        let parent = schema.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match new {
            Some(new) => parent.insert(name.into(), new),
            None => parent.remove(name),
        };
        schema
    };
    let broken = |after: &Value| broken(&schema, after, "status");
    assert_eq!(broken(&schema), None);
    let integer = json!({ "type": "integer" });
    assert_eq!(broken(&with("/properties/zone/properties/new", Some(integer))), None);
    let gone = broken(&with("/properties/zone/properties/design", None));
    assert_eq!(gone.as_deref(), Some("status.zone.design is gone"));
    let text = Some(json!({ "type": "string" }));
    let other = broken(&with("/properties/devices/items/properties/ratio", text));
    assert!(other.is_some_and(|it| it.starts_with("status.devices[].ratio is")));
    // A program that expects no null breaks on one.
    let null = Some(json!({ "type": ["string", "null"] }));
    assert!(broken(&with("/properties/root", null)).is_some());
}
