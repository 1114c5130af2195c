//! The control tree of a daemon: where sysfs and debugfs have the attributes of the kernel's zram
//! and zswap, with the same names, and beside them those of our page allocator. Files,
//! `rampack get`, `set` and `tree` all show this one.
//!
//! What `rampack exec` lays over the directories of the system is in it too, unlisted ([`host`]).

use std::sync::Arc;

use control::tree::{Attribute, Directory, Fixed, Node, Rows, gone};
use control::{Access, Bound, Errno, Fault, Object, Row, RowInfo};
use zram::Disk;

use crate::devices::Devices;
use crate::protocol::{self, Add, TreeRow};

mod block;
pub mod host;
mod swap;
pub mod zone;

use block::BlockView;

/// Rows of a device that debugfs has, not sysfs.
const DEBUG: [&str; 1] = ["block_state"];

/// The whole tree.
#[must_use]
pub fn tree(devices: &Arc<Devices>) -> Arc<dyn Directory> {
    let class: Arc<dyn Object> = Arc::new(Bound::new(devices.clone(), CONTROL));
    let module: Arc<dyn Object> = Arc::new(Bound::new(devices.clone(), MODULE));
    let class = Fixed::new().dir("zram-control", Rows::new(class, |_| true));
    let debug = OfDevices { devices: devices.clone(), make: debug_directory };
    let debug = Fixed::new()
        .dir("rampack", zone::directory(devices))
        .dir("zram", debug)
        .dir("zswap", swap::debug(devices));
    let debug = Fixed::new().dir("debug", debug);
    let module = Fixed::new().dir("parameters", Rows::new(module, |_| true));
    let module = Fixed::new().dir("zram", module).dir("zswap", swap::module(devices));
    let groups = Fixed::new().dir("cgroup", swap::tenants(devices));
    let block = OfDevices { devices: devices.clone(), make: block_directory };
    let top = Fixed::new()
        .dir("block", block)
        .dir("class", class)
        .dir("fs", groups)
        .dir("kernel", debug)
        .dir("module", module)
        .hidden(host::PLACE, host::directory(devices));
    Arc::new(top)
}

/// The attributes of a device: its own, and what the system's block layer says of any.
#[must_use]
pub fn object(devices: &Arc<Devices>, disk: &Arc<Disk>) -> Arc<dyn Object> {
    let (devices, disk) = (devices.clone(), disk.clone());
    let view = Arc::new(BlockView { devices: devices.clone(), disk: disk.clone() });
    let system = Bound::new(view, block::ROWS);
    Arc::new(DeviceObject { own: zram::attributes(disk.clone()), system, devices, disk })
}

/// The attribute `attribute` of `name`: a device, or the path of a directory of the tree.
///
/// # Errors
/// `ENODEV` or `ENOENT`, naming what there is.
pub fn attribute(devices: &Arc<Devices>, name: &str, attribute: &str) -> Result<Attribute, Fault> {
    if name.contains('/') {
        let found = control::tree::find(&tree(devices), &format!("{name}/{attribute}"));
        if let Some(Node::Row(attribute)) = found {
            return Ok(attribute);
        }
    }
    let object = object(devices, &devices.disk(name)?);
    match object.rows().into_iter().find(|row| row.name == attribute) {
        Some(row) => Ok(Attribute { object, row }),
        None => Err(object.show(attribute).err().unwrap_or_else(|| gone(name))),
    }
}

/// The attributes of the directory at `path`, none of those below it.
fn directory(devices: &Arc<Devices>, path: &str) -> Option<Vec<Attribute>> {
    let Some(Node::Directory(found)) = control::tree::find(&tree(devices), path) else {
        return None;
    };
    let rows = found.names().into_iter().filter_map(|name| match found.get(&name) {
        Some(Node::Row(attribute)) => Some(attribute),
        _ => None,
    });
    Some(rows.collect())
}

/// The values of attributes of `name`; without attributes, all of a device's own that can be read,
/// or all in a directory.
///
/// # Errors
/// As [`attribute`], or what an attribute refuses.
pub fn values(
    devices: &Arc<Devices>,
    name: &str,
    attributes: &[String],
) -> Result<Vec<protocol::Attribute>, Fault> {
    if attributes.is_empty() {
        let rows = if name.contains('/') { directory(devices, name) } else { None };
        let Some(rows) = rows else { return devices.get(name, attributes) };
        let readable = rows.into_iter().filter(|attribute| attribute.row.access.readable());
        let value = |attribute: Attribute| {
            let value = attribute.show()?.trim_end_matches('\n').to_string();
            Ok(protocol::Attribute { name: attribute.row.name.to_string(), value })
        };
        return readable.map(value).collect();
    }
    let value = |wanted: &String| {
        let value = attribute(devices, name, wanted)?.show()?;
        let value = value.trim_end_matches('\n').to_string();
        Ok(protocol::Attribute { name: wanted.clone(), value })
    };
    attributes.iter().map(value).collect()
}

/// Every attribute of the tree.
#[must_use]
pub fn listing(devices: &Arc<Devices>, values: bool) -> Vec<TreeRow> {
    let row = |(path, attribute): (String, Attribute)| {
        let row = attribute.row;
        let shown = values && row.access.readable() && row.access != Access::ReadOwner;
        TreeRow {
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

/// Is it a row of debugfs?
fn is_debug(name: &str) -> bool {
    DEBUG.contains(&name)
}

fn identity(disk: &Arc<Disk>) -> u64 {
    Arc::as_ptr(disk).addr() as u64
}

fn block_directory(devices: &Arc<Devices>, disk: &Arc<Disk>) -> Node {
    let rows = Rows::new(object(devices, disk), |name| !is_debug(name)).identified(identity(disk));
    Node::Directory(Arc::new(block::BlockDirectory { rows }))
}

fn debug_directory(devices: &Arc<Devices>, disk: &Arc<Disk>) -> Node {
    let rows = Rows::new(object(devices, disk), is_debug).identified(identity(disk));
    Node::Directory(Arc::new(rows))
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

/// A device's rows. Values go through [`Devices`], so that the frontends follow. Nothing is left of
/// it once the device has been removed.
struct DeviceObject {
    own: Bound<Disk>,
    system: Bound<BlockView>,
    devices: Arc<Devices>,
    disk: Arc<Disk>,
}

impl DeviceObject {
    fn is_own(&self, name: &str) -> bool {
        self.own.rows().iter().any(|row| row.name == name)
    }
}

impl Object for DeviceObject {
    fn rows(&self) -> Vec<RowInfo> {
        if !self.devices.is_present(&self.disk) {
            return Vec::new();
        }
        let mut rows = self.own.rows();
        rows.extend(self.system.rows());
        rows
    }

    fn show(&self, name: &str) -> Result<String, Fault> {
        if !self.devices.is_present(&self.disk) {
            return Err(gone(&self.disk.name()));
        }
        // An unknown name is one of the device's own attributes that is not there.
        match self.system.rows().iter().any(|row| row.name == name) && !self.is_own(name) {
            true => self.system.show(name),
            false => self.own.show(name),
        }
    }

    fn store(&self, name: &str, value: &str) -> Result<(), Fault> {
        match self.system.rows().iter().any(|row| row.name == name) && !self.is_own(name) {
            true => {
                self.devices.check_present(&self.disk).and_then(|()| self.system.store(name, value))
            }
            false => self.devices.set_on(&self.disk, name, value),
        }
    }
}

/// A whole number as the kernel reads one (`kstrtoint`, base 10): a sign, digits and one newline,
/// nothing else.
///
/// # Errors
/// `EINVAL` for anything else, `ERANGE` when it does not fit.
fn kernel_int(name: &str, text: &str) -> Result<i32, Fault> {
    let digits = text.strip_suffix('\n').unwrap_or(text);
    let bare = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if bare.is_empty() || !bare.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Fault::invalid(format!("{name} takes a whole number, not {digits:?}")));
    }
    let too_large = |_| Fault::new(Errno::ERANGE, format!("{digits} is too large for {name}"));
    digits.parse().map_err(too_large)
}

fn remove(devices: &Devices, text: &str) -> Result<(), Fault> {
    let number = kernel_int("hot_remove", text)?;
    let number = u32::try_from(number)
        .map_err(|_| Fault::invalid("hot_remove takes the number of a device, from 0 on"))?;
    devices.remove_number(number)
}

/// `class/zram-control`.
static CONTROL: &[Row<Devices>] = &[
    Row {
        name: "hot_add",
        access: Access::ActOnRead,
        unit: "count",
        help: "reading it makes a device and prints its number",
        show: Some(|devices, out| {
            let disk = devices.add(&Add::default())?;
            block::put(out, format_args!("{}\n", disk.id()))
        }),
        store: None,
    },
    Row {
        name: "hot_remove",
        access: Access::ActOnWrite,
        unit: "count",
        help: "the number of a device takes it away, if nobody uses it",
        show: None,
        store: Some(remove),
    },
];

/// `module/zram/parameters`.
static MODULE: &[Row<Devices>] = &[Row {
    name: "num_devices",
    access: Access::Read,
    unit: "count",
    help: "how many devices there are",
    show: Some(|devices, out| {
        block::put(out, format_args!("{}\n", devices.machine().disks().len()))
    }),
    store: None,
}];

#[cfg(test)]
mod tests;
