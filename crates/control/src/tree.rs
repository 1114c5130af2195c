//! The control tree: directories of attributes; objects come and go in it.
//!
//! A frontend renders the tree (as files, as a list, as JSON) and adds nothing to it. Each access
//! asks the directory again, so its contents may change at any moment.

use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use crate::{Absolute, AttributeInfo, ControlError, Errno, Object};

/// An entry of a directory.
#[derive(Clone)]
pub enum Node {
    /// A directory.
    Directory(Arc<dyn Directory>),
    /// One attribute.
    Attribute(AttributeFile),
    /// A symbolic link to this text.
    Link(String),
    /// A device file.
    Device(DeviceNode),
    /// An empty file, used as a mount point.
    Place,
}

/// An attribute of an object.
#[derive(Clone)]
pub struct AttributeFile {
    /// The object.
    pub object: Arc<dyn Object>,
    /// The attribute; its name may begin with directories.
    pub info: AttributeInfo,
}

impl AttributeFile {
    /// The value, with its newline.
    ///
    /// # Errors
    /// As [`Object::show`].
    pub fn show(&self) -> Result<String, ControlError> {
        self.object.show(self.info.name)
    }

    /// Sets the value that somebody wrote whose working directory makes relative paths `absolute`.
    ///
    /// # Errors
    /// As [`Object::store`], and [`Object::with_absolute_paths`].
    pub fn store_by(&self, value: &str, absolute: &mut Absolute<'_>) -> Result<(), ControlError> {
        let value = self.object.with_absolute_paths(self.info.name, value, absolute)?;
        self.store(&value)
    }

    /// Sets the value.
    ///
    /// # Errors
    /// As [`Object::store`].
    pub fn store(&self, value: &str) -> Result<(), ControlError> {
        self.object.store(self.info.name, value)
    }
}

/// A file that names a device of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceNode {
    /// True for a block device, false for a character device.
    pub block: bool,
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Its owner: user and group.
    pub owner: (u32, u32),
}

/// A directory. Any number of threads may call it at once.
pub trait Directory: Send + Sync {
    /// The listed names, each once.
    fn names(&self) -> Vec<String>;

    /// The entry of a name, listed or not.
    fn get(&self, name: &str) -> Option<Node>;

    /// A number that no other object has while this one lives. It tells apart two objects that have
    /// the same name one after the other. A permanent directory has 0.
    fn identity(&self) -> u64 {
        0
    }

    /// May only the owner of the tree look into it?
    fn is_private(&self) -> bool {
        false
    }
}

/// A directory whose names never change.
#[derive(Default)]
pub struct Fixed {
    listed: Vec<(String, Node)>,
    hidden: Vec<(String, Node)>,
    is_private: bool,
}

impl Fixed {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Fixed {
        Fixed::default()
    }

    /// Adds a name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, node: Node) -> Fixed {
        self.listed.push((name.into(), node));
        self
    }

    /// Adds a directory.
    #[must_use]
    pub fn dir(self, name: impl Into<String>, directory: impl Directory + 'static) -> Fixed {
        self.with(name, Node::Directory(Arc::new(directory)))
    }

    /// Adds a directory that is found by its name, but not listed.
    #[must_use]
    pub fn hidden(mut self, name: impl Into<String>, directory: impl Directory + 'static) -> Fixed {
        self.hidden.push((name.into(), Node::Directory(Arc::new(directory))));
        self
    }

    /// Only the owner of the tree may look into it.
    #[must_use]
    pub fn private(self) -> Fixed {
        Fixed { is_private: true, ..self }
    }
}

impl Directory for Fixed {
    fn names(&self) -> Vec<String> {
        self.listed.iter().map(|(name, _)| name.clone()).collect()
    }

    fn get(&self, name: &str) -> Option<Node> {
        let mut all = self.listed.iter().chain(&self.hidden);
        all.find(|(known, _)| known == name).map(|(_, node)| node.clone())
    }

    fn is_private(&self) -> bool {
        self.is_private
    }
}

/// The attributes of an object as a directory. An attribute called `queue/rotational` is the file
/// `rotational` in the directory `queue`.
pub struct Attributes {
    object: Arc<dyn Object>,
    choose: fn(&str) -> bool,
    /// The first part of the attributes' names; empty or ends with a slash.
    prefix: String,
    identity: u64,
}

impl Attributes {
    /// The attributes of `object` whose names `choose` accepts.
    pub fn new(object: Arc<dyn Object>, choose: fn(&str) -> bool) -> Attributes {
        Attributes { object, choose, prefix: String::new(), identity: 0 }
    }

    /// Sets the number of an object that comes and goes; see [`Directory::identity`].
    #[must_use]
    pub fn identified(self, identity: u64) -> Attributes {
        Attributes { identity, ..self }
    }

    fn chosen(&self) -> impl Iterator<Item = (&'static str, AttributeInfo)> {
        let attributes = self.object.attributes().into_iter();
        let (choose, prefix) = (self.choose, self.prefix.clone());
        attributes
            .filter(move |attribute| choose(attribute.name))
            .filter_map(move |attribute| Some((attribute.name.strip_prefix(&*prefix)?, attribute)))
    }
}

impl Directory for Attributes {
    fn names(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let first = |name: &'static str| name.split('/').next().unwrap_or(name);
        let names = self.chosen().map(|(name, _)| first(name));
        names.filter(|name| seen.insert(*name)).map(ToString::to_string).collect()
    }

    fn get(&self, name: &str) -> Option<Node> {
        if let Some((_, attribute)) = self.chosen().find(|(known, _)| *known == name) {
            return Some(Node::Attribute(AttributeFile {
                object: self.object.clone(),
                info: attribute,
            }));
        }
        let below = format!("{name}/");
        self.chosen().find(|(known, _)| known.starts_with(&below))?;
        Some(Node::Directory(Arc::new(Attributes {
            object: self.object.clone(),
            choose: self.choose,
            prefix: format!("{}{below}", self.prefix),
            identity: 0,
        })))
    }

    fn identity(&self) -> u64 {
        self.identity
    }
}

/// The entry at `path` below `top`; `top` itself for an empty path.
#[must_use]
pub fn find(top: &Arc<dyn Directory>, path: &str) -> Option<Node> {
    let mut node = Node::Directory(top.clone());
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let Node::Directory(directory) = &node else { return None };
        node = directory.get(part)?;
    }
    Some(node)
}

/// Every listed attribute below `top` with its path, in the order of each directory.
#[must_use]
pub fn attributes(top: &dyn Directory) -> Vec<(String, AttributeFile)> {
    let mut found = Vec::new();
    walk(top, "", &mut found);
    found
}

fn walk(directory: &dyn Directory, path: &str, found: &mut Vec<(String, AttributeFile)>) {
    for name in directory.names() {
        let path = match path {
            "" => name.clone(),
            _ => format!("{path}/{name}"),
        };
        match directory.get(&name) {
            Some(Node::Directory(below)) => walk(&*below, &path, found),
            Some(Node::Attribute(attribute)) => found.push((path, attribute)),
            _ => {}
        }
    }
}

/// The error for an object that was removed while its attributes were open.
#[must_use]
pub fn gone(name: &str) -> ControlError {
    ControlError::new(Errno::ENODEV, format!("{name} has been removed"))
}
