//! What `rampack status --json` promises, as a JSON schema.

use serde_json::{Map, Value, json};

use crate::columns::{Cell, Column};

/// The version of the object. Fields may be added to it; one that goes, or changes what it holds,
/// comes with the next version.
pub const VERSION: u64 = 1;

/// A field: its name, its type and its meaning. A type is that of JSON, with `?` if it may be null
/// and `[]` for an array of it.
type Field = (&'static str, &'static str, &'static str);

const DEVICE: &[Field] = &[
    ("block_device", "string?", "the block device the kernel has for it"),
    ("file", "string?", "the file it appears as"),
    ("link", "string?", "the link to the block device, or else to the file"),
    ("nbd", "string[]", "URIs under which NBD clients find it"),
    ("nbd_clients", "integer", "clients connected to it, by NBD or vhost-user"),
    ("vhost_user", "string?", "the socket at which a virtual machine finds it"),
    ("refused", "string?", "why the daemon could not take it over"),
    ("clone_of", "string?", "the device that it is a clone of"),
];

const SWAP: &[Field] = &[
    ("name", "string", "its name"),
    ("block_device", "string", "the block device the kernel swaps to"),
    ("size", "integer", "its size in bytes, the header included"),
    ("active", "boolean", "whether the kernel swaps to it"),
    ("used", "integer", "bytes of it that the kernel has in use"),
    ("priority", "integer?", "the kernel's priority of it"),
    ("backing", "string?", "the file or device for writeback"),
    ("backing_created", "boolean", "whether that file is removed with it"),
    ("cached", "integer", "bytes of its pages in the cache"),
    ("on_disk", "integer", "bytes of its pages on the backing device"),
    ("front", "string?", "what of the kernel takes pages before it, as was asked for"),
    ("frees_by", "string", "the kernel's function that tells of freed pages, or discards"),
    ("frees_lack", "string?", "why it is not told of each freed page"),
    ("freed_pages", "integer", "pages that it was told of one by one"),
    (
        "notes",
        "string[]",
        "what stands in front of it although it should not, and parts not swapped to",
    ),
];

const LOG: &[Field] = &[
    ("capacity", "integer", "bytes that compressed pages may take"),
    ("live", "integer", "bytes that they take"),
    ("written", "integer", "bytes written so far"),
    ("copied", "integer", "bytes of these that were written again to make room"),
];

const SERVING: &[Field] = &[
    ("by", "string", "how the kernel reaches the threads: ublk; loop; or loop, io_uring"),
    ("threads", "integer", "how many there are"),
    ("minor_faults", "integer", "their page faults that needed no read; there should be none"),
    ("major_faults", "integer", "their page faults that needed a read; there should be none"),
];

const PROTECTION: &[Field] = &[
    ("name", "string", "its name"),
    ("had", "boolean", "whether it is in force"),
    ("text", "string", "how it is in force, or what its absence means"),
];

const POOL: &[Field] = &[
    ("compressor", "string", "what new pages are compressed with"),
    ("stored_pages", "integer", "pages in the cache"),
    ("pool_bytes", "integer", "memory that they take"),
    ("limit_bytes", "integer", "memory that they may take"),
    ("ratio", "number?", "bytes of pages per byte of memory"),
    ("written_back_pages", "integer", "pages written back so far"),
    ("through_pages", "integer", "pages sent to devices because the cache did not take them"),
    ("stores", "integer", "pages stored so far"),
    ("loads", "integer", "pages loaded from the cache so far"),
    ("read_back_pages", "integer", "pages read from backing devices so far"),
    ("rejected_pages", "integer", "pages refused so far"),
    ("freed_pages", "integer", "pages dropped because the kernel had freed them"),
    ("warm_pages", "integer", "pages in the cache that were compressed again"),
    ("recompress_age", "integer", "age in seconds at which they are; 0 if they are not"),
    ("late_pages", "integer", "refused pages that came before there was memory for them"),
    ("headroom", "integer?", "bytes of memory ready for the next pages"),
    ("unread_pages", "integer", "pages that could not be read from backing devices"),
    ("changed_pages", "integer", "pages among them that were not as they had been written"),
    ("unwritten_pages", "integer", "pages that could not be written to backing devices"),
    ("waiting_pages", "integer", "pages that backing devices are asked for now"),
    ("silent_seconds", "integer", "for how long a backing device has not answered; 0 below ten"),
];

const ZONE: &[Field] = &[
    ("design", "string", "how memory is allocated"),
    ("allocated_bytes", "integer", "allocated to what is stored"),
    ("cached_bytes", "integer", "in the pcp lists of CPUs"),
    ("free_bytes", "integer", "free"),
    ("managed_bytes", "integer", "asked of the system so far, all of the above included"),
    ("free_blocks", "integer[]", "free blocks by order"),
    ("returned_blocks", "integer", "blocks of 2 MiB given back to the system so far"),
    ("bad_frees", "integer", "frees of what was not allocated; any but 0 is a bug"),
];

const DAEMON: &[Field] = &[
    ("rampack", "string", "the version of its program"),
    ("pid", "integer", "its process"),
    ("root", "string", "its root directory"),
    ("nbd", "string[]", "the addresses at which it serves NBD"),
    ("by_io_uring", "boolean", "whether requests to files and loop devices come by io_uring"),
    ("abandoned", "boolean", "whether the service manager is gone that kept its devices"),
];

fn typed(name: &str) -> Value {
    if let Some(items) = name.strip_suffix("[]") {
        return json!({ "type": "array", "items": typed(items) });
    }
    match name.strip_suffix('?') {
        Some(name) => json!({ "type": [name, "null"] }),
        None => json!({ "type": name }),
    }
}

/// An object with these fields and `others`, all of which it always has.
fn object(fields: &[Field], others: Vec<(String, Value)>) -> Value {
    let mut properties = Map::new();
    for (name, kind, meaning) in fields {
        let mut field = typed(kind);
        field["description"] = (*meaning).into();
        properties.insert((*name).into(), field);
    }
    properties.extend(others);
    let required: Vec<&String> = properties.keys().collect();
    json!({ "type": "object", "required": required, "properties": properties })
}

fn list(items: &Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// The same, or null.
fn optional(mut object: Value) -> Value {
    object["type"] = json!(["object", "null"]);
    object
}

fn column(column: &Column) -> (String, Value) {
    let mut field = typed(match column.example() {
        Cell::Bytes(_) | Cell::Count(_) => "integer",
        Cell::Ratio(_) => "number?",
        Cell::Text(_) => "string?",
    });
    field["description"] = column.help.into();
    (column.key(), field)
}

/// The schema of what `rampack status --json` prints with these columns.
#[must_use]
pub fn of(columns: &[&Column]) -> Value {
    let device = object(DEVICE, columns.iter().map(|it| column(it)).collect());
    let swap = vec![
        ("log".to_string(), optional(object(LOG, Vec::new()))),
        ("serving".to_string(), object(SERVING, Vec::new())),
        ("protections".to_string(), list(&object(PROTECTION, Vec::new()))),
    ];
    let parts = vec![
        ("version".to_string(), json!({ "const": VERSION })),
        ("devices".to_string(), list(&device)),
        ("swaps".to_string(), list(&object(SWAP, swap))),
        ("swap_cache".to_string(), optional(object(POOL, Vec::new()))),
        ("zone".to_string(), object(ZONE, Vec::new())),
    ];
    let mut schema = object(DAEMON, parts);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = format!("rampack status --json, version {VERSION}").into();
    schema
}
