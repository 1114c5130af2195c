//! The directories that `rampack exec` mounts over those of the system. They hold the system's own
//! entries without its zram, and our devices.
//!
//! The system's entries are read again at each access, so every program sees at once which devices
//! come and go, in the system and here.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;

use control::tree::{Attributes, DeviceNode, Directory, Fixed, Node};
use zram::Disk;

use super::device::block_directory;
pub use super::module::MODULES;
use super::module::modules;
use crate::devices::Devices;
use crate::mounts::node_of;

/// The unlisted directory that holds them.
pub const PLACE: &str = ".exec";

/// Mounted over `/dev`.
pub const DEV: &str = "dev";
/// Mounted over `/sys/block`.
pub const BLOCK: &str = "block";
/// Mounted over `/sys/class/block`.
pub const CLASS_BLOCK: &str = "class-block";
/// Mounted over `/sys/dev/block`.
pub const NUMBERS: &str = "numbers";
/// A directory with one file, which is mounted over `/proc/modules`.
pub const PROC: &str = "proc";
/// An empty directory: the mount point of a directory in memory with the system's own programs for
/// modules.
pub const PROGRAMS: &str = "programs";
/// An empty directory: the mount point of the system's own `/dev`.
pub const REAL_DEV: &str = "real-dev";
/// An empty directory: the mount point of the system's own `/sys`.
pub const REAL_SYS: &str = "real-sys";

/// Makes the unlisted directory [`PLACE`]. It is for root alone: a listing of it costs as much as
/// one of the system's `/dev`, and other users need none. What `rampack exec` mounts from it has
/// the modes of the entries themselves.
pub(super) fn directory(devices: &Arc<Devices>) -> Fixed {
    let over =
        |path: &str, rule: Rule| Over { real: PathBuf::from(path), devices: devices.clone(), rule };
    Fixed::new()
        .dir(DEV, over("/dev", Rule::Nodes))
        .dir(BLOCK, over("/sys/block", Rule::Directories))
        .dir(CLASS_BLOCK, over("/sys/class/block", Rule::Links))
        .dir(NUMBERS, over("/sys/dev/block", Rule::Numbers))
        .dir(PROC, Attributes::new(modules(devices), |_| true))
        .dir(PROGRAMS, Fixed::new())
        .dir(REAL_DEV, Fixed::new())
        .dir(REAL_SYS, Fixed::new())
        .private()
}

/// How our devices appear in a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// `zramN`: device files.
    Nodes,
    /// `zramN`: their attributes.
    Directories,
    /// `zramN`: links to `/sys/block/zramN`.
    Links,
    /// `MAJOR:MINOR`: links to `/sys/block/zramN`.
    Numbers,
}

/// A directory of the system with our devices in it.
struct Over {
    real: PathBuf,
    devices: Arc<Devices>,
    rule: Rule,
}

/// Has `name` the form of `zram0`? Partitions and other entries of the kernel's zram count too.
#[must_use]
pub fn is_zram(name: &str) -> bool {
    name.strip_prefix("zram").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

impl Over {
    /// Our devices that the system can reach, with their nodes.
    fn ours(&self) -> Vec<(Arc<Disk>, DeviceNode)> {
        let disks = self.devices.machine().disks().into_iter();
        disks.filter_map(|disk| self.devices.node(&disk).map(|node| (disk, node))).collect()
    }

    fn our_name(&self, disk: &Disk, node: &DeviceNode) -> String {
        match self.rule {
            Rule::Numbers => format!("{}:{}", node.major, node.minor),
            _ => disk.name(),
        }
    }

    fn our_node(&self, disk: &Arc<Disk>, node: DeviceNode) -> Node {
        match self.rule {
            Rule::Nodes => Node::Device(node),
            Rule::Directories => block_directory(&self.devices, disk),
            Rule::Links | Rule::Numbers => Node::Link(format!("../../block/{}", disk.name())),
        }
    }

    /// Is `name` an entry of the system to hide: its zram, or the loop device of one of our
    /// devices?
    fn is_hidden(&self, name: &str, ours: &[(Arc<Disk>, DeviceNode)]) -> bool {
        match self.rule {
            Rule::Nodes => is_zram(name),
            Rule::Directories | Rule::Links => {
                let is_ours = |number: u32| ours.iter().any(|(_, node)| node.minor == number);
                let number = name.strip_prefix("loop").and_then(|number| number.parse().ok());
                is_zram(name) || number.is_some_and(is_ours)
            }
            Rule::Numbers => {
                let target = fs::read_link(self.real.join(name)).unwrap_or_default();
                target.file_name().and_then(|name| name.to_str()).is_some_and(is_zram)
            }
        }
    }

    fn theirs(&self, name: &str) -> Option<Node> {
        let path = self.real.join(name);
        let found = fs::symlink_metadata(&path).ok()?;
        let kind = found.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(&path).ok()?;
            return target.to_str().map(|target| Node::Link(target.to_owned()));
        }
        if kind.is_dir() {
            return Some(Node::Directory(Arc::new(Fixed::new())));
        }
        if kind.is_block_device() || kind.is_char_device() {
            return Some(Node::Device(node_of(&found)));
        }
        Some(Node::Place)
    }
}

impl Directory for Over {
    fn names(&self) -> Vec<String> {
        let ours = self.ours();
        let mut names: Vec<String> =
            ours.iter().map(|(disk, node)| self.our_name(disk, node)).collect();
        for entry in fs::read_dir(&self.real).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !self.is_hidden(&name, &ours) && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn get(&self, name: &str) -> Option<Node> {
        let ours = self.ours();
        if let Some((disk, node)) = ours.iter().find(|(d, node)| self.our_name(d, node) == name) {
            return Some(self.our_node(disk, *node));
        }
        if name.contains('/') || name == ".." || self.is_hidden(name, &ours) {
            return None;
        }
        self.theirs(name)
    }
}
