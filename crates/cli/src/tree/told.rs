//! The tree with a log of the stores that were refused. A program that writes to a file gets an
//! error number alone; the log has the whole sentence.

use std::sync::Arc;

use rampack::control::tree::{AttributeFile, Directory, Node};
use rampack::control::{AttributeInfo, ControlError, Object};

/// The most characters of a value that the log shows.
const SHOWN: usize = 80;

/// A directory whose attributes log refused stores.
pub(super) struct Told {
    directory: Arc<dyn Directory>,
    /// Its path, empty or with a slash at its end.
    path: String,
}

impl Told {
    /// The whole tree below `top`.
    pub(super) fn new(top: impl Directory + 'static) -> Told {
        Told { directory: Arc::new(top), path: String::new() }
    }
}

impl Directory for Told {
    fn names(&self) -> Vec<String> {
        self.directory.names()
    }

    fn get(&self, name: &str) -> Option<Node> {
        Some(match self.directory.get(name)? {
            Node::Directory(directory) => {
                let path = format!("{}{name}/", self.path);
                Node::Directory(Arc::new(Told { directory, path }))
            }
            Node::Attribute(file) => Node::Attribute(logged(file, format!("{}{name}", self.path))),
            node => node,
        })
    }

    fn identity(&self) -> u64 {
        self.directory.identity()
    }

    fn is_private(&self) -> bool {
        self.directory.is_private()
    }
}

/// `file`, whose refused stores are logged under the name `path`.
pub(super) fn logged(file: AttributeFile, path: String) -> AttributeFile {
    let AttributeFile { object, info } = file;
    AttributeFile { object: Arc::new(Logged { object, path }), info }
}

struct Logged {
    object: Arc<dyn Object>,
    path: String,
}

impl Object for Logged {
    fn attributes(&self) -> Vec<AttributeInfo> {
        self.object.attributes()
    }

    fn show(&self, name: &str) -> Result<String, ControlError> {
        self.object.show(name)
    }

    fn store(&self, name: &str, value: &str) -> Result<(), ControlError> {
        self.object.store(name, value).inspect_err(|error| {
            let text = value.strip_suffix('\n').unwrap_or(value);
            let shown: String = text.chars().take(SHOWN).collect();
            let more = if shown.len() < text.len() { "…" } else { "" };
            tracing::info!("{}: refused {shown:?}{more}: {error}", self.path);
        })
    }
}
