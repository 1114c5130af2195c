//! The columns of `rampack status`, each defined once: its name, meaning and source.

use std::fmt::Write;

use host::printable;
use serde_json::{Map, Value};
use units::human;

use crate::table;
use service::protocol::DeviceReport;

/// What a cell holds.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// A number of bytes.
    Bytes(u64),
    /// A number of something else.
    Count(u64),
    /// A quotient; `None` when it is undefined.
    Ratio(Option<f64>),
    /// Text; may be empty.
    Text(String),
}

/// A column.
pub struct Column {
    /// Its heading. Its key in JSON is that in lower case, with `_` for `-`.
    pub name: &'static str,
    /// Its meaning.
    pub help: &'static str,
    value: fn(&DeviceReport) -> Cell,
}

impl Column {
    /// Its key in JSON.
    #[must_use]
    pub fn key(&self) -> String {
        self.name.to_ascii_lowercase().replace('-', "_")
    }

    /// What its cells hold.
    pub(crate) fn example(&self) -> Cell {
        (self.value)(&DeviceReport::default())
    }
}

/// All columns: those of zramctl in its order, and RATIO.
pub const COLUMNS: [Column; 12] = [
    Column {
        name: "NAME",
        help: "the device's name in rampack, and the name of its NBD export",
        value: |device| Cell::Text(device.name.clone()),
    },
    Column {
        name: "DISKSIZE",
        help: "the size of the device (disksize); 0 before it has one",
        value: |device| Cell::Bytes(number(device, "disksize")),
    },
    Column {
        name: "DATA",
        help: "the uncompressed size of what is stored: pages written and not discarded \
               (orig_data_size)",
        value: |device| Cell::Bytes(memory(device, 0)),
    },
    Column {
        name: "COMPR",
        help: "the compressed size of DATA (compr_data_size)",
        value: |device| Cell::Bytes(memory(device, 1)),
    },
    Column {
        name: "ALGORITHM",
        help: "the compression algorithm (the one in brackets in comp_algorithm)",
        value: |device| Cell::Text(algorithm(device)),
    },
    Column {
        name: "STREAMS",
        help: "the number of pages that can be compressed at once (max_comp_streams)",
        value: |device| Cell::Count(number(device, "max_comp_streams")),
    },
    Column {
        name: "ZERO-PAGES",
        help: "same-filled pages, which need only their slot (the sixth number of mm_stat)",
        value: |device| Cell::Count(memory(device, 5)),
    },
    Column {
        name: "TOTAL",
        help: "the memory that COMPR uses, with fragmentation (mem_used_total)",
        value: |device| Cell::Bytes(memory(device, 2)),
    },
    Column {
        name: "MEM-LIMIT",
        help: "the limit of TOTAL (mem_limit); 0 is no limit",
        value: |device| Cell::Bytes(memory(device, 3)),
    },
    Column {
        name: "MEM-USED",
        help: "the highest TOTAL so far (mem_used_max)",
        value: |device| Cell::Bytes(memory(device, 4)),
    },
    Column {
        name: "RATIO",
        help: "DATA divided by TOTAL, without the pages of DATA that were written back; empty \
               while nothing else is stored",
        value: |device| Cell::Ratio(ratio(device)),
    },
    Column {
        name: "MOUNTPOINT",
        help: "where the device is mounted, or [SWAP]; empty when the kernel does not use it",
        value: |device| Cell::Text(device.mountpoints.join(",")),
    },
];

/// The columns named in `text`, separated by commas.
///
/// # Errors
/// A message with the unknown name, and the names of all columns.
pub fn named(text: &str) -> Result<Vec<&'static Column>, String> {
    let find = |name: &str| {
        let name = name.trim();
        COLUMNS.iter().find(|column| column.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let known: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
            format!("no column {name:?}; there are: {} (EINVAL)", known.join(","))
        })
    };
    text.split(',').map(find).collect()
}

pub(crate) fn number(device: &DeviceReport, attribute: &str) -> u64 {
    let text = device.attributes.get(attribute);
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// A number of `mm_stat`. All of them were read at once, so they are consistent.
pub(crate) fn memory(device: &DeviceReport, column: usize) -> u64 {
    let text = device.attributes.get("mm_stat");
    let field = text.and_then(|text| text.split_ascii_whitespace().nth(column));
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Pages that are on the backing device.
pub(crate) fn backed_pages(device: &DeviceReport) -> u64 {
    let text = device.attributes.get("bd_stat");
    let field = text.and_then(|text| text.split_ascii_whitespace().next());
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

pub(crate) fn algorithm(device: &DeviceReport) -> String {
    let text = device.attributes.get("comp_algorithm");
    let selected = text.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0));
    selected.unwrap_or_default().to_string()
}

/// Bytes stored per byte of memory, if any are stored.
pub(crate) fn ratio(device: &DeviceReport) -> Option<f64> {
    // Pages that were written back take no memory. They tell nothing about the compression of the
    // rest.
    let backed = backed_pages(device).saturating_mul(4096);
    let (data, total) = (memory(device, 0).saturating_sub(backed), memory(device, 2));
    (data > 0 && total > 0).then(|| data as f64 / total as f64)
}

impl Cell {
    fn text(&self, exact: bool) -> String {
        match self {
            Cell::Bytes(bytes) if exact => bytes.to_string(),
            Cell::Bytes(bytes) => human(*bytes).to_string(),
            Cell::Count(count) => count.to_string(),
            Cell::Ratio(ratio) => ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            Cell::Text(text) => printable(text),
        }
    }

    fn json(self) -> Value {
        match self {
            Cell::Bytes(number) | Cell::Count(number) => number.into(),
            Cell::Ratio(ratio) => {
                ratio.map_or(Value::Null, |r| ((r * 100.0).round() / 100.0).into())
            }
            Cell::Text(text) if text.is_empty() => Value::Null,
            Cell::Text(text) => text.into(),
        }
    }

    fn right(&self) -> bool {
        !matches!(self, Cell::Text(_))
    }
}

/// How a table is printed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Style {
    /// Bytes as plain numbers.
    pub exact: bool,
    /// One space between columns and no padding; `-` for an empty cell, so that every line has as
    /// many words.
    pub raw: bool,
    /// No first line with names.
    pub headless: bool,
}

/// The table of `devices`, ending in a newline unless it is empty.
#[must_use]
pub fn table(devices: &[DeviceReport], columns: &[&Column], style: Style) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    if !style.headless {
        lines.push(columns.iter().map(|column| column.name.to_string()).collect());
    }
    for device in devices {
        let cell = |column: &&Column| match (column.value)(device).text(style.exact) {
            text if !style.raw => text,
            text if text.is_empty() => "-".to_string(),
            text => text.replace(' ', "\\x20"),
        };
        lines.push(columns.iter().map(cell).collect());
    }
    if style.raw {
        return lines.iter().map(|line| line.join(" ") + "\n").collect();
    }
    table::text(&lines, " ", |n| columns[n].example().right())
}

/// `device` as an object: its columns (bytes as numbers), and how to reach it.
#[must_use]
pub fn object(device: &DeviceReport, columns: &[&Column]) -> Value {
    let mut object = Map::new();
    for column in columns {
        object.insert(column.key(), (column.value)(device).json());
    }
    object.insert("block_device".into(), device.block_device.clone().into());
    object.insert("file".into(), device.file.clone().into());
    object.insert("link".into(), device.link.clone().into());
    object.insert("nbd".into(), device.nbd.clone().into());
    object.insert("nbd_clients".into(), device.nbd_clients.into());
    object.insert("vhost_user".into(), device.vhost_user.clone().into());
    object.insert("refused".into(), device.refused.clone().into());
    object.insert("clone_of".into(), device.clone_of.clone().into());
    Value::Object(object)
}

/// The letters of a help line beside the name of the column.
const HELP_WIDTH: usize = 66;

/// The meaning of the columns, for `--help`.
#[must_use]
pub fn help() -> String {
    let mut text = String::from("Columns:\n");
    for column in &COLUMNS {
        let _ = write!(text, "  {:<11}", column.name);
        let mut width = 0;
        for word in column.help.split(' ') {
            if width + word.len() >= HELP_WIDTH {
                let _ = write!(text, "\n  {:<11}", "");
                width = 0;
            }
            let _ = write!(text, " {word}");
            width += word.len() + 1;
        }
        text.push('\n');
    }
    text.push_str(
        "\nSizes are in units of 1024 (K M G T P E); --bytes prints them exactly. Names in \
         brackets are the attributes that `rampack get` prints.",
    );
    text
}

#[cfg(test)]
mod tests;
