//! The inode numbers of a tree's nodes, and its open files.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    state: Mutex<NodeNumbers>,
}

struct NodeNumbers {
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
        Inodes { state: Mutex::new(NodeNumbers { next: TOP + 1, inodes, names: HashMap::new() }) }
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
    /// A directory with its names at the open, so that a listing in parts shows one moment. It
    /// keeps no entry alive.
    Directory(Arc<dyn Directory>, Vec<String>),
    /// An attribute, and its value at the last read from offset 0.
    Attribute(AttributeFile, Mutex<Option<Vec<u8>>>),
    /// An empty file.
    Nothing,
}

/// The most files that one user other than the owner of the tree may have open: each takes memory
/// of the daemon.
pub(crate) const MOST: usize = 1024;

/// The open files, by handle.
pub(crate) struct Handles {
    owner: u32,
    state: Mutex<Opened>,
}

struct Opened {
    next: u64,
    files: HashMap<u64, (u32, Arc<Open>)>,
    /// How many of them each user has.
    counts: HashMap<u32, usize>,
}

impl Handles {
    /// No open file; `owner` may open any number.
    pub(crate) fn new(owner: u32) -> Handles {
        let state = Opened { next: 1, files: HashMap::new(), counts: HashMap::new() };
        Handles { owner, state: Mutex::new(state) }
    }

    /// The handle of a file that `user` opens; None if the user has too many.
    pub(crate) fn add(&self, user: u32, open: Open) -> Option<u64> {
        let mut state = self.state.lock();
        let count = state.counts.entry(user).or_default();
        if *count >= MOST && user != self.owner {
            return None;
        }
        *count += 1;
        let handle = state.next;
        state.next += 1;
        state.files.insert(handle, (user, Arc::new(open)));
        Some(handle)
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<Open>> {
        self.state.lock().files.get(&handle).map(|(_, open)| open.clone())
    }

    /// Has somebody a private directory open? Only the owner can.
    pub(crate) fn has_private(&self) -> bool {
        let is_private = |(_, open): &(u32, Arc<Open>)| match &**open {
            Open::Directory(directory, _) => directory.is_private(),
            _ => false,
        };
        self.state.lock().files.values().any(is_private)
    }

    pub(crate) fn remove(&self, handle: u64) {
        let mut state = self.state.lock();
        let removed = state.files.remove(&handle);
        if let Some((user, _)) = &removed
            && let Entry::Occupied(mut count) = state.counts.entry(*user)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(state);
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
    fn a_user_has_so_many_files_open_and_the_owner_any_number() {
        let handles = Handles::new(7);
        let first = handles.add(1000, Open::Nothing).unwrap();
        for _ in 1..MOST {
            handles.add(1000, Open::Nothing).unwrap();
        }
        assert_eq!(handles.add(1000, Open::Nothing), None);
        for _ in 0..=MOST {
            handles.add(7, Open::Nothing).unwrap();
        }
        let other = handles.add(1001, Open::Nothing).unwrap();
        handles.remove(first);
        handles.remove(first);
        assert!(handles.get(first).is_none() && handles.get(other).is_some());
        handles.add(1000, Open::Nothing).unwrap();
        assert_eq!(handles.add(1000, Open::Nothing), None);
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
