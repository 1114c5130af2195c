//! The protocol of the control socket: one JSON object per line, in both directions.
//!
//! A request is `{"version":1,"command":"get","device":"zram0","attributes":["disksize"]}`. The
//! answer is `{"version":1,"ok":…}` or
//! `{"version":1,"error":{"errno":22,"symbol":"EINVAL","message":"…"}}`. Unknown commands and
//! fields are refused. A path is absolute, and text as [`machine::text_of`] makes it: bytes that
//! are no UTF-8 are characters from U+10FF80 on.

use std::collections::BTreeMap;

use control::{ControlError, Errno};
use host::errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::symbol;
use crate::latency::Latency;
use crate::plan::{Asked, SNAPSHOT};
use crate::swap::report::{PoolReport, SwapReport};
use crate::transport::{Front, SwapTransport};
use crate::zone::ZoneReport;

/// The version of the protocol.
pub const VERSION: u64 = 1;

/// The longest line of a request, in bytes, without its newline. It may be a whole configuration.
pub const LINE_MAX: usize = 1 << 20;

/// Asks for the report of a daemon.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {}

/// Adds a device, under the lowest free number unless it is to have another. Values are text that
/// the attributes check. Without a size the device is not initialised.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Add {
    /// The number it is to have. An older daemon knows no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// The value of `disksize`.
    pub size: Option<String>,
    /// The value of `comp_algorithm`.
    pub algorithm: Option<String>,
    /// The algorithm's level.
    pub level: Option<i32>,
    /// The value of `mem_limit`.
    pub mem_limit: Option<String>,
    /// Other attributes, stored in this order before the size.
    pub attributes: Vec<Attribute>,
    /// Write pages as they are to a backing file that other users may open.
    #[serde(skip_serializing_if = "is_false")]
    pub force: bool,
    /// The absolute path of a file: the device is restored from it if it is there, and saved to it
    /// when the daemon ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Add {
    /// What the device is asked to be, by the names of attributes.
    #[must_use]
    pub fn asked(&self) -> Asked {
        let set = [
            ("disksize", self.size.clone()),
            ("comp_algorithm", self.algorithm.clone()),
            ("level", self.level.map(|level| level.to_string())),
            ("mem_limit", self.mem_limit.clone()),
            (SNAPSHOT, self.snapshot.clone()),
        ];
        let set = set.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let attributes = self.attributes.iter().map(|it| (it.name.clone(), it.value.clone()));
        // It may have a password in it, and is not for devices that outlive the daemon.
        set.chain(attributes.filter(|it| it.0 != "backing_remote")).collect()
    }
}

/// A disk of a configuration, and what is on it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfiguredDisk {
    /// The disk, with its number.
    pub add: Add,
    /// The name of the file system to make.
    pub fs: Option<String>,
    /// The absolute path of the directory to mount it on.
    pub mount: Option<String>,
}

/// Has the daemon follow a configuration that was changed. It takes the part that it serves.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Apply {
    /// How disks are served, each option with `serve/` in front.
    pub serve: Asked,
    /// The disks.
    pub disks: Vec<ConfiguredDisk>,
    /// The swap devices.
    pub swaps: Vec<SwapOn>,
    /// Change nothing, and answer what would be.
    pub dry: bool,
    /// Take down what is not configured any more and nobody uses. Older daemons do not know it.
    #[serde(skip_serializing_if = "is_false")]
    pub remove: bool,
}

/// What became of a configuration, or would.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Applied {
    /// What was changed, in sentences.
    pub changed: Vec<String>,
    /// What is not followed while the devices are there, in sentences.
    pub not_followed: Vec<String>,
    /// What could not be changed, in sentences; it is tried again the next time.
    #[serde(default)]
    pub failed: Vec<String>,
}

/// Names a device to reset or remove.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name, such as `zram0`.
    pub device: String,
    /// Take the device from its users.
    #[serde(default)]
    pub force: bool,
}

/// Reads attributes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Get {
    /// The name of the device.
    pub device: String,
    /// The names of the attributes; all readable ones when empty.
    #[serde(default)]
    pub attributes: Vec<String>,
}

/// Stores an attribute.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The name of the device.
    pub device: String,
    /// The name of the attribute.
    pub attribute: String,
    /// The value, as the user wrote it.
    pub value: String,
}

/// Ends the daemon.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Take devices from their users.
    #[serde(default)]
    pub force: bool,
}

/// Has another program take the place of the daemon's.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upgrade {
    /// The absolute path of the program; without it, what is now at the path of the daemon's.
    pub program: Option<String>,
}

/// How pages lie on the backing device of a swap device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackingLayout {
    /// Each page has a block of its own.
    #[default]
    Pages,
    /// Compressed pages lie one behind the other.
    Log,
}

/// Makes a swap device and has the kernel swap to it. Values are as an administrator writes them.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwapOn {
    /// The number it is to have; without it, the lowest free one. Older daemons do not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// The size; without it, the size of the backing store.
    pub size: Option<String>,
    /// The absolute path of the file or device for writeback.
    pub backing: Option<String>,
    /// Write pages back as they are, not encrypted.
    pub plain_backing: bool,
    /// How pages lie there.
    pub backing_layout: BackingLayout,
    /// The most memory the cache may take: a size, or a percentage such as `20%`.
    pub max_pool: Option<String>,
    /// How the kernel reaches it; without it, the best way here.
    pub transport: Option<SwapTransport>,
    /// What of the kernel is in front of all swap devices of the daemon; older ones do not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front: Option<Front>,
    /// The memory kept ready for the next pages, as a size.
    pub headroom: Option<String>,
    /// Seconds for which a machine is stuck before the OOM killer is called; 0: never.
    pub oom_after: Option<u32>,
    /// Whether old pages are recompressed; without it, they are unless there is a swap device
    /// already, which decides then.
    pub auto: Option<bool>,
    /// The value of the parameter `auto_cpu_percent`.
    pub auto_cpu: Option<u32>,
    /// The value of the parameter `compressor`.
    pub compressor: Option<String>,
    /// The kernel's priority of the device; without it, below all others.
    pub priority: Option<u16>,
    /// Parameters of the cache, stored in this order.
    pub parameters: Vec<Attribute>,
    /// Overwrite the data of the backing store, and serve swap space even within a memory limit.
    pub force: bool,
}

/// Drains a swap device and removes it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapOff {
    /// Its name, such as `swap0`, or the path of its block device; without it, all swap devices.
    pub name: Option<String>,
}

/// Takes a snapshot of a device, or makes a clone. Of a snapshot the answer that it begins and its
/// bytes in [`crate::pieces`] come before the answer of the command.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The name of the device.
    pub device: String,
}

/// What a snapshot has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Taken {
    /// The bytes of the file.
    pub bytes: u64,
    /// The pages in it.
    pub pages: u64,
}

/// Restores a device. After the answer that it begins the client sends the snapshot in
/// [`crate::pieces`]; the answer of the command follows.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restore {
    /// The name of a device without a size; without it, a new device.
    pub device: Option<String>,
}

/// Asks for the attributes of a device.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Describe {
    /// The name of the device.
    pub device: String,
}

/// Asks for the attributes of the control tree.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// Include the values that can be read without a side effect.
    #[serde(default)]
    pub values: bool,
}

/// Asks for what a daemon counts.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {}

/// A request. The name of its command is that of the variant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// See [`Status`]; answered with a [`DaemonReport`].
    Status(Status),
    /// See [`Add`]; answered with a [`DeviceReport`].
    Add(Add),
    /// See [`Device`]; answered with `null`.
    Remove(Device),
    /// See [`Device`]; answered with `null`.
    Reset(Device),
    /// See [`Get`]; answered with a list of [`Attribute`].
    Get(Get),
    /// See [`Set`]; answered with `null`.
    Set(Set),
    /// See [`Describe`]; answered with a list of [`Description`].
    Describe(Describe),
    /// See [`Tree`]; answered with a list of [`TreeAttribute`].
    Tree(Tree),
    /// See [`Metrics`]; answered with a list of [`Metric`].
    Metrics(Metrics),
    /// See [`SwapOn`]; answered with a [`SwapReport`].
    SwapOn(SwapOn),
    /// See [`SwapOff`]; answered with `null` when the kernel has read everything back.
    SwapOff(SwapOff),
    /// See [`Stop`]; answered with `null` when only the process of the daemon is left.
    Stop(Stop),
    /// See [`Apply`]; answered with an [`Applied`].
    Apply(Apply),
    /// See [`Snapshot`]; answered with a [`Taken`].
    Snapshot(Snapshot),
    /// See [`Restore`]; answered with the name of the device.
    Restore(Restore),
    /// See [`Snapshot`]; answered with a [`DeviceReport`] of the clone.
    Clone(Snapshot),
    /// See [`Upgrade`]; answered only if it is refused, else the connection ends.
    Upgrade(Upgrade),
}

/// The names of all commands.
pub const COMMANDS: [&str; 17] = [
    "status", "add", "remove", "reset", "get", "set", "describe", "tree", "metrics", "swap_on",
    "swap_off", "stop", "apply", "upgrade", "snapshot", "restore", "clone",
];

/// One attribute and its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value as the row shows it, without the last newline.
    pub value: String,
}

impl Attribute {
    /// The attribute `name` with this value, without its last newline.
    #[must_use]
    pub fn new(name: &str, value: &str) -> Attribute {
        Attribute { name: name.to_owned(), value: value.trim_end_matches('\n').to_owned() }
    }
}

/// One attribute and its description.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// The mode bits of the kernel's file.
    pub mode: u32,
    /// The unit of its value.
    pub unit: String,
    /// A text that explains it.
    pub help: String,
}

/// One attribute of the control tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeAttribute {
    /// Its path, such as `block/zram0/disksize`.
    pub path: String,
    /// The mode bits of its file.
    pub mode: u32,
    /// The unit of its value.
    pub unit: String,
    /// A text that explains it.
    pub help: String,
    /// Its value without the last newline, if the client asked for it and it can be read now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A number that a daemon counts, for each of what it counts it of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Metric {
    /// Its name, in the manner of Prometheus, with its unit: `rampack_zram_disksize_bytes`.
    pub name: String,
    /// Its kind.
    pub kind: MetricKind,
    /// A text that explains it.
    pub help: String,
    /// Its values.
    pub samples: Vec<Sample>,
}

/// The kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    /// It rises and falls.
    Gauge,
    /// It only rises.
    Counter,
    /// How many of its values are in each of several ranges.
    Histogram,
}

/// A value of a metric.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// What it is of: names such as `device`, and what they are.
    pub labels: Vec<(String, String)>,
    /// The value; of a histogram the sum of all values.
    pub value: f64,
    /// Of a histogram: bounds, and how many values are not above each; all values at last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(f64, u64)>,
}

/// The report of a daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DaemonReport {
    /// The version of its program.
    pub rampack: String,
    /// Its process id.
    pub pid: u32,
    /// Its root directory.
    pub root: String,
    /// The file of its own that it follows, if there is one.
    pub file: Option<String>,
    /// The addresses at which it serves NBD. `/NAME` is added for one device.
    pub nbd: Vec<String>,
    /// Do its devices get block devices?
    pub block_devices: bool,
    /// Do the requests to their files, and so to their loop devices, come by io_uring?
    #[serde(default)]
    pub by_io_uring: bool,
    /// Is the service manager gone that kept its devices? They end with its process then.
    #[serde(default)]
    pub is_abandoned: bool,
    /// Its devices, by number.
    pub devices: Vec<DeviceReport>,
    /// Its swap devices, by number.
    #[serde(default)]
    pub swaps: Vec<SwapReport>,
    /// The cache that its swap devices share, while there are any.
    pub swap_cache: Option<PoolReport>,
    /// The page allocator of its devices and its cache.
    #[serde(default)]
    pub zone: ZoneReport,
    /// How long requests took, where they were timed.
    #[serde(default)]
    pub latencies: Vec<Latency>,
    /// Are requests timed now?
    #[serde(default)]
    pub is_timed: bool,
}

/// The report of a device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// The block device the kernel has for it, if any.
    pub block_device: Option<String>,
    /// The file it appears as, if any.
    pub file: Option<String>,
    /// The link to the block device, or else to the file.
    pub link: Option<String>,
    /// URIs under which NBD clients find it; none before it has a size.
    pub nbd: Vec<String>,
    /// Clients connected to it now, by NBD or vhost-user.
    pub nbd_clients: u64,
    /// The socket at which a virtual machine finds it, if there is one.
    pub vhost_user: Option<String>,
    /// Its mount points; `[SWAP]` when it is swap space.
    pub mountpoints: Vec<String>,
    /// Its readable attributes, as the rows show them.
    pub attributes: BTreeMap<String, String>,
    /// Why the daemon could not take it over. It has no attributes then, and stays until removed.
    pub refused: Option<String>,
    /// The name of the device that it is a clone of, if it is one.
    pub clone_of: Option<String>,
}

/// Parses a request from one line, with or without its newline. Pure; takes any bytes.
///
/// # Errors
/// `E2BIG` for a line that is too long, otherwise `EINVAL`; its message names what is known.
pub fn parse_message(line: &[u8]) -> Result<Request, ControlError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if line.len() > LINE_MAX {
        return Err(too_long());
    }
    let mut fields: Map<String, Value> = serde_json::from_slice(line).map_err(|e| {
        ControlError::invalid(format!("a request is one JSON object on one line: {e}"))
    })?;
    match fields.remove("version") {
        Some(version) if version.as_u64() == Some(VERSION) => {}
        Some(version) => {
            let version = shortened(&version.to_string(), 64);
            let message = format!("version {version} is not spoken here; this is {VERSION}");
            return Err(ControlError::invalid(message));
        }
        None => {
            return Err(ControlError::invalid(format!(
                "\"version\" is missing; this is {VERSION}"
            )));
        }
    }
    let known = || COMMANDS.join(", ");
    let command = match fields.remove("command") {
        Some(Value::String(command)) => command,
        Some(_) => {
            return Err(ControlError::invalid(format!("\"command\" is text, one of: {}", known())));
        }
        None => {
            return Err(ControlError::invalid(format!(
                "\"command\" is missing; one of: {}",
                known()
            )));
        }
    };
    if !COMMANDS.contains(&&*command) {
        let message = format!("no command {:?}; there are: {}", shortened(&command, 64), known());
        return Err(ControlError::invalid(message));
    }
    let request = Map::from_iter([(command.clone(), Value::Object(fields))]);
    serde_json::from_value(Value::Object(request)).map_err(|error| {
        let error = shortened(&error.to_string(), 512);
        ControlError::invalid(format!("command {command:?}: {error}"))
    })
}

/// The refusal of a line longer than [`LINE_MAX`].
#[must_use]
pub fn too_long() -> ControlError {
    ControlError::new(Errno::E2BIG, format!("a request is at most {LINE_MAX} bytes long"))
}

/// The first letters of the text of a client, so that an answer can repeat it.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// The line of a request. It has no field that is not set: an older daemon may not know it.
#[must_use]
pub fn request_line(request: &Request) -> String {
    let is_set =
        |value: &Value| !value.is_null() && value.as_array().is_none_or(|it| !it.is_empty());
    let mut line = Map::from_iter([("version".to_owned(), VERSION.into())]);
    if let Ok(Value::Object(request)) = serde_json::to_value(request) {
        for (command, fields) in request {
            line.insert("command".into(), command.into());
            let Value::Object(fields) = fields else { continue };
            line.extend(fields.into_iter().filter(|(_, value)| is_set(value)));
        }
    }
    format!("{}\n", Value::Object(line))
}

/// The line of an answer.
#[must_use]
pub fn reply_line(result: &Result<Value, ControlError>) -> String {
    let reply = match result {
        Ok(value) => serde_json::json!({ "version": VERSION, "ok": value }),
        Err(error) => serde_json::json!({
            "version": VERSION,
            "error": {
                "errno": error.errno.0,
                "symbol": symbol(error.errno),
                "message": error.message,
            },
        }),
    };
    format!("{reply}\n")
}

/// Parses an answer: a value of the type that belongs to the request, or the daemon's error.
///
/// # Errors
/// The daemon's error, or `EPROTO` for an answer that cannot be understood.
pub fn parse_reply<T: DeserializeOwned>(line: &[u8]) -> Result<T, ControlError> {
    #[derive(Deserialize)]
    struct Refused {
        errno: i32,
        message: String,
    }
    let strange = |why: String| {
        let message =
            format!("the daemon's answer cannot be understood: {why}; is it of another version?");
        ControlError::new(Errno(errno::EPROTO), message)
    };
    let mut reply: Map<String, Value> =
        serde_json::from_slice(line).map_err(|e| strange(e.to_string()))?;
    if let Some(error) = reply.remove("error") {
        let refusal: Refused = serde_json::from_value(error).map_err(|e| strange(e.to_string()))?;
        return Err(ControlError::new(Errno(refusal.errno), refusal.message));
    }
    let value = reply.remove("ok").ok_or_else(|| strange("neither ok nor error".into()))?;
    serde_json::from_value(value).map_err(|e| strange(e.to_string()))
}

#[cfg(test)]
mod tests;
