//! The inode numbers of a tree's nodes, and its open files.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use control::tree::{AttributeFile, Directory, Node};
use sync::Mutex;

/// The number of the root directory.
pub(crate) const TOP: u64 = 1;

struct Inode {
    parent: u64,
    name: String,
    node: Node,
    /// The kernel's lookup count: lookups minus forgets.
    lookups: u64,
}

/// The numbers of nodes. Each number is used once: a new node under an old name is another file.
pub(crate) struct Inodes {
    state: Mutex<State>,
}

struct State {
    next: u64,
    inodes: HashMap<u64, Inode>,
    names: HashMap<(u64, String), u64>,
}

/// Tells two nodes of one kind apart. The kernel keeps the device number of a device file from its
/// first lookup, so another device number is another file.
fn identity(node: &Node) -> u64 {
    match node {
        Node::Directory(directory) => directory.identity(),
        Node::Device(it) => (u64::from(it.major) << 32) | u64::from(it.minor),
        _ => 0,
    }
}

/// The kind of a node; another kind is another type of file.
fn kind(node: &Node) -> (Discriminant<Node>, bool) {
    (discriminant(node), matches!(node, Node::Device(it) if it.block))
}

impl Inodes {
    pub(crate) fn new(top: Arc<dyn Directory>) -> Inodes {
        let top =
            Inode { parent: TOP, name: String::new(), node: Node::Directory(top), lookups: 1 };
        let inodes = HashMap::from([(TOP, top)]);
        Inodes { state: Mutex::new(State { next: TOP + 1, inodes, names: HashMap::new() }) }
    }

    pub(crate) fn node(&self, number: u64) -> Option<Node> {
        self.state.lock().inodes.get(&number).map(|inode| inode.node.clone())
    }

    /// Counts a lookup: the reply tells the kernel that `name` in directory `parent` is `node`.
    pub(crate) fn remember(&self, parent: u64, name: &str, node: &Node) -> u64 {
        let mut state = self.state.lock();
        let key = (parent, name.to_owned());
        if let Some(number) = state.names.get(&key).copied()
            && let Some(inode) = state.inodes.get_mut(&number)
            && kind(&inode.node) == kind(node)
            && identity(&inode.node) == identity(node)
        {
            inode.node = node.clone();
            inode.lookups += 1;
            return number;
        }
        let number = state.next;
        state.next += 1;
        let inode = Inode { parent, name: name.to_owned(), node: node.clone(), lookups: 1 };
        state.inodes.insert(number, inode);
        state.names.insert(key, number);
        number
    }

    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        let mut state = self.state.lock();
        let Some(inode) = state.inodes.get_mut(&number).filter(|_| number != TOP) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if inode.lookups > 0 {
            return;
        }
        let Some(inode) = state.inodes.remove(&number) else { return };
        let key = (inode.parent, inode.name);
        if state.names.get(&key) == Some(&number) {
            state.names.remove(&key);
        }
    }

    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.state.lock().inodes.len()
    }
}

/// An open file or directory.
pub(crate) enum Open {
    /// A directory as it was at its open, so that a listing in parts shows one moment.
    Directory(Vec<(String, Node)>),
    /// An attribute, and its value at the last read from offset 0.
    Attribute(AttributeFile, Mutex<Option<Vec<u8>>>),
    /// An empty file.
    Nothing,
}

/// The open files, by handle.
pub(crate) struct Handles {
    state: Mutex<(u64, HashMap<u64, Arc<Open>>)>,
}

impl Handles {
    pub(crate) fn new() -> Handles {
        Handles { state: Mutex::new((1, HashMap::new())) }
    }

    pub(crate) fn add(&self, open: Open) -> u64 {
        let mut state = self.state.lock();
        let handle = state.0;
        state.0 += 1;
        state.1.insert(handle, Arc::new(open));
        handle
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<Open>> {
        self.state.lock().1.get(&handle).cloned()
    }

    pub(crate) fn remove(&self, handle: u64) {
        let removed = self.state.lock().1.remove(&handle);
        // This may drop the last reference to an object: it happens without the lock.
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::tree::{DeviceNode, Fixed};

    struct Numbered(u64);
    impl Directory for Numbered {
        fn names(&self) -> Vec<String> {
            Vec::new()
        }
        fn get(&self, _: &str) -> Option<Node> {
            None
        }
        fn identity(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_device_file_of_another_number_is_another_file() {
        let inodes = Inodes::new(Arc::new(Fixed::new()));
        let node = |block, minor| {
            Node::Device(DeviceNode { block, major: 7, minor, mode: 0o600, owner: (0, 0) })
        };
        let first = inodes.remember(TOP, "zram0", &node(true, 1));
        assert_eq!(inodes.remember(TOP, "zram0", &node(true, 1)), first);
        let second = inodes.remember(TOP, "zram0", &node(true, 2));
        assert_ne!(first, second);
        assert_ne!(inodes.remember(TOP, "zram0", &node(false, 2)), second);
    }

    #[test]
    fn one_object_keeps_its_number_and_another_gets_a_new_one() {
        let inodes = Inodes::new(Arc::new(Fixed::new()));
        let node = |identity| Node::Directory(Arc::new(Numbered(identity)));
        let first = inodes.remember(TOP, "zram0", &node(1));
        assert_eq!(inodes.remember(TOP, "zram0", &node(1)), first);
        let second = inodes.remember(TOP, "zram0", &node(2));
        assert_ne!(first, second);
        assert!(inodes.node(first).is_some(), "the kernel may still ask for it");
        let link = inodes.remember(TOP, "zram0", &Node::Link("x".into()));
        assert_ne!(link, second);
        inodes.forget(first, 1);
        assert!(inodes.node(first).is_some());
        inodes.forget(first, 1);
        assert!(inodes.node(first).is_none());
        inodes.forget(second, 1);
        assert_eq!(inodes.remember(TOP, "zram0", &Node::Link("y".into())), link);
        inodes.forget(link, 2);
        inodes.forget(TOP, 9);
        assert_eq!(inodes.known(), 1, "the top stays");
    }
}
