//! `kernel/debug/zsmalloc`: the size classes of each pool, in the columns of the kernel's debugfs.

use std::fmt::Write;
use std::sync::Arc;

use control::tree::{Attributes, Directory, Node};
use control::{Access, Attribute, Bound, ValueKind};
use zram::{Disk, SizeClasses};
use zswap::Zswap;

use super::block::put;
use crate::devices::Devices;
use crate::engine::Machine;

/// The name of the cache's pool, as the kernel names its first one.
const CACHE: &str = "zswap1";

/// A directory for each pool: of the devices that have a size, under their names, and of the cache
/// once there is one. Clones have the pool of their origin.
pub(super) struct Pools {
    machine: Arc<Machine>,
}

/// `kernel/debug/zsmalloc`.
pub(super) fn directory(devices: &Arc<Devices>) -> Pools {
    Pools { machine: devices.machine().clone() }
}

/// Who has a pool.
enum Owner {
    Disk(Arc<Disk>),
    Cache(Arc<Zswap>),
}

impl Owner {
    fn size_classes(&self) -> SizeClasses {
        match self {
            Owner::Disk(disk) => disk.size_classes(),
            Owner::Cache(zswap) => zswap.size_classes(),
        }
    }
}

static ATTRIBUTES: &[Attribute<Owner>] = &[Attribute {
    name: "classes",
    access: Access::ReadOwner,
    unit: "text",
    kind: ValueKind::Plain,
    help: "a line for each size class: zspages by fullness, slots, pages",
    show: Some(|owner, out| put(out, format_args!("{}", table(&owner.size_classes())))),
    store: None,
}];

impl Directory for Pools {
    fn names(&self) -> Vec<String> {
        let disks = self.machine.disks().into_iter().filter(|disk| disk.bytes() > 0);
        let cache = self.machine.swap_if_made().map(|_| CACHE.to_owned());
        disks.map(|disk| disk.name()).chain(cache).collect()
    }

    fn get(&self, name: &str) -> Option<Node> {
        let owner = match name {
            CACHE => Owner::Cache(self.machine.swap_if_made()?.clone()),
            _ => {
                let mut disks = self.machine.disks().into_iter();
                Owner::Disk(disks.find(|disk| disk.name() == name && disk.bytes() > 0)?)
            }
        };
        let rows = Bound::new(Arc::new(owner), ATTRIBUTES);
        Some(Node::Directory(Arc::new(Attributes::new(Arc::new(rows), |_| true))))
    }
}

/// The table, with its sums at the end.
fn table(classes: &SizeClasses) -> String {
    let mut text = format!(" {:>5} {:>5}", "class", "size");
    for percent in [10, 20, 30, 40, 50, 60, 70, 80, 90, 99, 100] {
        let _ = write!(text, " {:>9}", format!("{percent}%"));
    }
    let names = ["obj_allocated", "obj_used", "pages_used", "pages_per_zspage", "freeable"];
    let [allocated, used, pages, chain, freeable] = names;
    let _ = writeln!(text, " {allocated:>13} {used:>10} {pages:>10} {chain:>16} {freeable:>8}");
    let (mut zspages, mut sums) = ([0; 11], [0; 4]);
    for (n, (class, fullness)) in classes.iter().enumerate() {
        let _ = write!(text, " {n:>5} {:>5}", class.slot);
        for (sum, count) in zspages.iter_mut().zip(fullness) {
            *sum += count;
            let _ = write!(text, " {count:>9}");
        }
        // What compaction can free are whole zspages.
        let slots = (class.chain * units::PAGE_SIZE / class.slot) as u64;
        let freeable = class.holes / slots * class.chain as u64;
        let row = [class.objects + class.holes, class.objects, class.frames, freeable];
        sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
        let [allocated, used, pages, freeable] = row;
        let chain = class.chain;
        let _ = writeln!(text, " {allocated:>13} {used:>10} {pages:>10} {chain:>16} {freeable:>8}");
    }
    let _ = write!(text, "\n {:>5} {:>5}", "Total", "");
    for count in zspages {
        let _ = write!(text, " {count:>9}");
    }
    let [allocated, used, pages, freeable] = sums;
    let _ = writeln!(text, " {allocated:>13} {used:>10} {pages:>10} {:>16} {freeable:>8}", "");
    text
}
