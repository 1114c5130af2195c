//! What Linux shows of a loaded module: `/sys/module/zram`, and its line in `/proc/modules`.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use control::tree::{Attributes, Directory, Fixed, Node};
use control::{Access, Attribute, Bound, Object, ValueKind};

use super::block::put;
use crate::devices::Devices;

/// The file that is mounted over [`LIST`].
pub const MODULES: &str = "modules";
/// The name of the module.
const ZRAM: &str = "zram";
/// A directory that stays empty: no module needs this one.
const HOLDERS: &str = "holders";
/// The kernel's list of modules.
const LIST: &str = "/proc/modules";

/// `module/zram`. It is empty while the module does not count as loaded.
pub(super) fn directory(devices: &Arc<Devices>) -> impl Directory + 'static {
    let object: Arc<dyn Object> = Arc::new(Bound::new(devices.clone(), ATTRIBUTES));
    Module { rows: Attributes::new(object, |_| true), devices: devices.clone() }
}

struct Module {
    rows: Attributes,
    devices: Arc<Devices>,
}

impl Directory for Module {
    fn names(&self) -> Vec<String> {
        if !self.devices.is_loaded() {
            return Vec::new();
        }
        let mut names = self.rows.names();
        names.push(HOLDERS.into());
        names
    }

    fn get(&self, name: &str) -> Option<Node> {
        match name {
            _ if !self.devices.is_loaded() => None,
            HOLDERS => Some(Node::Directory(Arc::new(Fixed::new()))),
            _ => self.rows.get(name),
        }
    }
}

static ATTRIBUTES: &[Attribute<Devices>] = &[
    Attribute {
        name: "coresize",
        access: Access::Read,
        unit: "bytes",
        kind: ValueKind::Plain,
        help: "0: it takes no memory of the kernel's modules",
        show: Some(|_, out| put(out, format_args!("0\n"))),
        store: None,
    },
    Attribute {
        name: "initstate",
        access: Access::Read,
        unit: "text",
        kind: ValueKind::Plain,
        help: "live: the module counts as loaded",
        show: Some(|_, out| put(out, format_args!("live\n"))),
        store: None,
    },
    Attribute {
        name: "refcnt",
        access: Access::Read,
        unit: "count",
        kind: ValueKind::Plain,
        help: "how many devices are in use; while one is, unloading is refused",
        show: Some(|devices, out| put(out, format_args!("{}\n", devices.count_used()))),
        store: None,
    },
    Attribute {
        name: "parameters/num_devices",
        access: Access::Read,
        unit: "count",
        kind: ValueKind::Plain,
        help: "how many devices there are",
        show: Some(|devices, out| put(out, format_args!("{}\n", devices.machine().disks().len()))),
        store: None,
    },
];

/// The list of modules, which is mounted over the kernel's.
pub(super) fn modules(devices: &Arc<Devices>) -> Arc<dyn Object> {
    Arc::new(Bound::new(devices.clone(), LISTS))
}

static LISTS: &[Attribute<Devices>] = &[Attribute {
    name: MODULES,
    access: Access::Read,
    unit: "text",
    kind: ValueKind::Plain,
    help: "the system's modules, with rampack's zram in the place of the kernel's",
    show: Some(|devices, out| {
        let kernels = fs::read_to_string(LIST).unwrap_or_default();
        let used = devices.is_loaded().then(|| devices.count_used());
        put(out, format_args!("{}", list(&kernels, used)))
    }),
    store: None,
}];

/// The kernel's list without its zram. If our zram is loaded, its line comes first; `used` is the
/// number of its devices in use. Addresses are zeroes: the kernel shows them to root alone, and it
/// would take the daemon for the reader.
fn list(kernels: &str, used: Option<usize>) -> String {
    const ADDRESS: &str = "0x0000000000000000";
    let mut text = String::new();
    if let Some(used) = used {
        let _ = writeln!(text, "{ZRAM} 0 {used} - Live {ADDRESS}");
    }
    for line in kernels.lines() {
        let mut words = line.split(' ');
        if words.next() == Some(ZRAM) {
            continue;
        }
        let words = line.split(' ').map(|it| if it.starts_with("0x") { ADDRESS } else { it });
        let _ = writeln!(text, "{}", words.collect::<Vec<_>>().join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::list;

    const KERNELS: &str = "zram 45056 1 - Live 0xffffffffc0a13000\n\
                           zsmalloc 40960 1 zram, Live 0xffffffffc0a08000\n\
                           tls 155648 0 - Live 0xffffffffc0a00000 (OE)\n";

    #[test]
    fn our_zram_is_in_the_place_of_the_kernels() {
        let expected = "zram 0 2 - Live 0x0000000000000000\n\
                        zsmalloc 40960 1 zram, Live 0x0000000000000000\n\
                        tls 155648 0 - Live 0x0000000000000000 (OE)\n";
        assert_eq!(list(KERNELS, Some(2)), expected);
        let (_, others) = expected.split_once('\n').unwrap();
        assert_eq!(list(KERNELS, None), others);
        assert_eq!(list("", None), "");
    }
}
