//! The control tree of a daemon. It holds the attributes of zram and zswap at the same paths and
//! names as the kernel's sysfs and debugfs, and the attributes of our page allocator. The files,
//! `rampack get`, `set` and `tree` all show this tree.
//!
//! The tree also holds, unlisted, the directories that `rampack exec` mounts over those of the
//! system ([`host`]).

use std::sync::Arc;

use control::tree::{AttributeFile, Attributes, Directory, Fixed, Node, gone};
use control::{Access, Attribute, Bound, ControlError, Errno, Object, ValueKind};
use zram::Disk;

use crate::devices::{Devices, described, device_count};
use crate::protocol::{self, Add, TreeAttribute};

mod block;
mod device;
pub mod host;
mod module;
mod swap;
mod told;
pub mod zone;
mod zsmalloc;

pub use device::object;
use device::{block_directory, debug_directory};
use told::{Told, logged};

/// The whole tree.
#[must_use]
pub fn tree(devices: &Arc<Devices>) -> Arc<dyn Directory> {
    let class: Arc<dyn Object> = Arc::new(Bound::new(devices.clone(), CONTROL));
    let class = Fixed::new().dir("zram-control", Attributes::new(class, |_| true));
    let debug = OfDevices { devices: devices.clone(), make: debug_directory };
    let debug = Fixed::new()
        .dir("rampack", zone::directory(devices))
        .dir("zram", debug)
        .dir("zsmalloc", zsmalloc::directory(devices))
        .dir("zswap", swap::debug(devices));
    let debug = Fixed::new().dir("debug", debug);
    let module = module::directory(devices);
    let module = Fixed::new().dir("zram", module).dir("zswap", swap::module(devices));
    let groups = Fixed::new().dir("cgroup", swap::memcgs(devices));
    let block = OfDevices { devices: devices.clone(), make: block_directory };
    let top = Fixed::new()
        .dir("block", block)
        .dir("class", class)
        .dir("fs", groups)
        .dir("kernel", debug)
        .dir("module", module)
        .hidden(host::PLACE, host::directory(devices));
    Arc::new(Told::new(top, devices))
}

/// The attribute `attribute` of `name`: a device, or the path of a directory of the tree.
///
/// # Errors
/// `ENODEV` or `ENOENT`; the message names what exists.
pub fn attribute(
    devices: &Arc<Devices>,
    name: &str,
    attribute: &str,
) -> Result<AttributeFile, ControlError> {
    if name.contains('/') {
        let found = control::tree::find(&tree(devices), &format!("{name}/{attribute}"));
        if let Some(Node::Attribute(attribute)) = found {
            return Ok(attribute);
        }
    }
    let object = object(devices, &devices.disk(name)?);
    match object.attributes().into_iter().find(|row| row.name == attribute) {
        Some(row) => {
            let file = AttributeFile { object, info: row };
            Ok(logged(file, format!("{name}/{attribute}"), devices))
        }
        None => Err(object.show(attribute).err().unwrap_or_else(|| gone(name))),
    }
}

/// The attributes of the directory at `path`, without those of its subdirectories.
fn directory(devices: &Arc<Devices>, path: &str) -> Option<Vec<AttributeFile>> {
    let Some(Node::Directory(found)) = control::tree::find(&tree(devices), path) else {
        return None;
    };
    let rows = found.names().into_iter().filter_map(|name| match found.get(&name) {
        Some(Node::Attribute(attribute)) => Some(attribute),
        _ => None,
    });
    Some(rows.collect())
}

/// The values of attributes of `name`. Without attributes: all readable ones of the device itself,
/// or all of the directory.
///
/// # Errors
/// As [`attribute`], or the error of an attribute.
pub fn values(
    devices: &Arc<Devices>,
    name: &str,
    attributes: &[String],
) -> Result<Vec<protocol::Attribute>, ControlError> {
    if attributes.is_empty() {
        let rows = if name.contains('/') { directory(devices, name) } else { None };
        let Some(rows) = rows else { return devices.get(name, attributes) };
        let readable = rows.into_iter().filter(|attribute| attribute.info.access.readable());
        let value = |it: AttributeFile| Ok(protocol::Attribute::new(it.info.name, &it.show()?));
        return readable.map(value).collect();
    }
    let value = |wanted: &String| {
        let shown = attribute(devices, name, wanted)?.show()?;
        Ok(protocol::Attribute::new(wanted, &shown))
    };
    attributes.iter().map(value).collect()
}

/// What the attributes of `name` are: of the device itself, or all of the directory.
///
/// # Errors
/// `ENODEV`.
pub fn descriptions(
    devices: &Arc<Devices>,
    name: &str,
) -> Result<Vec<protocol::Description>, ControlError> {
    let rows = if name.contains('/') { directory(devices, name) } else { None };
    let Some(rows) = rows else { return devices.describe(name) };
    Ok(rows.into_iter().map(|it| described(it.info)).collect())
}

/// Every attribute of the tree.
#[must_use]
pub fn listing(devices: &Arc<Devices>, values: bool) -> Vec<TreeAttribute> {
    let row = |(path, attribute): (String, AttributeFile)| {
        let row = attribute.info;
        let shown = values && row.access.readable() && row.access != Access::ReadOwner;
        TreeAttribute {
            path,
            mode: row.access.mode(),
            unit: row.unit.into(),
            help: row.help.into(),
            value: shown
                .then(|| attribute.show().ok())
                .flatten()
                .map(|text| text.trim_end_matches('\n').to_string()),
        }
    };
    control::tree::attributes(&*tree(devices)).into_iter().map(row).collect()
}

/// A directory with one directory for each device.
struct OfDevices {
    devices: Arc<Devices>,
    make: fn(&Arc<Devices>, &Arc<Disk>) -> Node,
}

impl Directory for OfDevices {
    fn names(&self) -> Vec<String> {
        self.devices.machine().disks().iter().map(|disk| disk.name()).collect()
    }

    fn get(&self, name: &str) -> Option<Node> {
        let disks = self.devices.machine().disks();
        let disk = disks.iter().find(|disk| disk.name() == name)?;
        Some((self.make)(&self.devices, disk))
    }
}

/// A whole number as the kernel reads one (`kstrtoint`, base 10): a sign, digits and one newline,
/// nothing else.
///
/// # Errors
/// `EINVAL` for anything else, `ERANGE` when it does not fit.
fn kernel_int(name: &str, text: &str) -> Result<i32, ControlError> {
    let digits = text.strip_suffix('\n').unwrap_or(text);
    let bare = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if bare.is_empty() || !bare.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ControlError::invalid(format!("{name} takes a whole number, not {digits:?}")));
    }
    let too_large =
        |_| ControlError::new(Errno::ERANGE, format!("{digits} is too large for {name}"));
    digits.parse().map_err(too_large)
}

fn remove(devices: &Devices, text: &str) -> Result<(), ControlError> {
    let number = kernel_int("hot_remove", text)?;
    let number = u32::try_from(number)
        .map_err(|_| ControlError::invalid("hot_remove takes the number of a device, from 0 on"))?;
    devices.remove(&format!("zram{number}"), false)
}

fn unload(devices: &Devices, text: &str) -> Result<(), ControlError> {
    match kernel_int("unload", text)? {
        1 => devices.unload(),
        number => Err(ControlError::invalid(format!("unload takes 1, not {number}"))),
    }
}

/// `class/zram-control`.
static CONTROL: &[Attribute<Devices>] = &[
    Attribute {
        name: "hot_add",
        access: Access::ActOnRead,
        unit: "count",
        kind: ValueKind::Plain,
        help: "reading it makes a device and prints its number",
        show: Some(|devices, out| {
            let disk = devices.add(&Add::default())?;
            block::put(out, format_args!("{}\n", disk.id()))
        }),
        store: None,
    },
    Attribute {
        name: "hot_remove",
        access: Access::ActOnWrite,
        unit: "count",
        kind: ValueKind::Plain,
        help: "the number of a device takes it away, if nobody uses it",
        show: None,
        store: Some(remove),
    },
    Attribute {
        name: "load",
        access: Access::ActOnWrite,
        unit: "count",
        kind: ValueKind::Plain,
        help: "a number makes devices until that many exist from zram0 on, as `modprobe zram` does",
        show: None,
        store: Some(|devices, text| devices.load(device_count(text)?)),
    },
    Attribute {
        name: "unload",
        access: Access::ActOnWrite,
        unit: "flag",
        kind: ValueKind::Plain,
        help: "1 removes all devices if none is in use, as `modprobe -r zram` does",
        show: None,
        store: Some(unload),
    },
];

#[cfg(test)]
mod tests;
