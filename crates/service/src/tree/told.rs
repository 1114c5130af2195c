//! The tree with a log of the stores that were refused. A program that writes to a file gets an
//! error number alone; the log has the whole sentence. A store is a change of the devices.

use std::sync::Arc;

use control::tree::{AttributeFile, Directory, Node};
use control::{Absolute, AttributeInfo, ControlError, Object, without_secrets};

use crate::devices::Devices;
use crate::failure::shown;

/// The attribute whose values may be or hold secrets, also where they are no URIs.
const REMOTE: &str = "backing_remote";
/// The most characters of a value that the log shows.
const SHOWN: usize = 80;

/// A directory whose attributes log refused stores.
pub(super) struct Told {
    directory: Arc<dyn Directory>,
    /// Its path, empty or with a slash at its end.
    path: String,
    devices: Arc<Devices>,
}

impl Told {
    /// The whole tree below `top`.
    pub(super) fn new(top: impl Directory + 'static, devices: &Arc<Devices>) -> Told {
        Told { directory: Arc::new(top), path: String::new(), devices: devices.clone() }
    }
}

impl Directory for Told {
    fn names(&self) -> Vec<String> {
        self.directory.names()
    }

    fn get(&self, name: &str) -> Option<Node> {
        let devices = &self.devices;
        Some(match self.directory.get(name)? {
            Node::Directory(directory) => {
                let path = format!("{}{name}/", self.path);
                Node::Directory(Arc::new(Told { directory, path, devices: devices.clone() }))
            }
            Node::Attribute(file) => {
                Node::Attribute(logged(file, format!("{}{name}", self.path), devices))
            }
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
pub(super) fn logged(file: AttributeFile, path: String, devices: &Arc<Devices>) -> AttributeFile {
    let AttributeFile { object, info } = file;
    let devices = devices.clone();
    AttributeFile { object: Arc::new(Logged { object, path, devices }), info }
}

struct Logged {
    object: Arc<dyn Object>,
    path: String,
    devices: Arc<Devices>,
}

impl Object for Logged {
    fn attributes(&self) -> Vec<AttributeInfo> {
        self.object.attributes()
    }

    fn show(&self, name: &str) -> Result<String, ControlError> {
        self.object.show(name)
    }

    fn store(&self, name: &str, value: &str) -> Result<(), ControlError> {
        let under_way = self.devices.changes().begin();
        let stored = under_way.and_then(|_under_way| self.object.store(name, value));
        stored.inspect_err(|error| self.tell(name, value, error))
    }

    fn with_absolute_paths(
        &self,
        name: &str,
        value: &str,
        absolute: &mut Absolute<'_>,
    ) -> Result<String, ControlError> {
        let made = self.object.with_absolute_paths(name, value, absolute);
        made.inspect_err(|error| self.tell(name, value, error))
    }
}

impl Logged {
    fn tell(&self, name: &str, value: &str, error: &ControlError) {
        let (path, why) = (&self.path, masked(&error.to_string()));
        if name == REMOTE {
            tracing::info!("{path}: refused: {why}");
            return;
        }
        let text = masked(value.strip_suffix('\n').unwrap_or(value));
        let told: String = text.chars().take(SHOWN).collect();
        let more = if told.len() < text.len() { "…" } else { "" };
        tracing::info!("{path}: refused {told:?}{more}: {why}");
    }
}

/// `text` without the secrets of URIs in it.
fn masked(text: &str) -> String {
    let (text, is_end) = (shown(text), |c: char| c.is_whitespace() || c == '"');
    let masked = |part: &str| {
        let word = part.trim_end_matches(is_end);
        let bare = match (word.contains("://"), word.split_once(':'), word.rsplit_once('@')) {
            (true, ..) => without_secrets(word),
            // A URI that a client took for a path has lost a slash.
            (false, Some((before, _)), Some((_, host))) => format!("{before}:…@{host}"),
            _ => word.to_owned(),
        };
        bare + &part[word.len()..]
    };
    text.split_inclusive(is_end).map(masked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_uris_are_not_told() {
        let text = "backing_dev: \"redis://me:word@host:1/2?password=p\" is none\nredis://:x@h";
        let told = masked(text);
        assert_eq!(told, "backing_dev: \"redis://…@host:1/2?password=…\" is none\nredis://…@h");
        assert_eq!(masked("/a/redis:/me:word@host:1/2"), "/a/redis:…@host:1/2");
        assert_eq!(masked("algo=zstd  a\u{10ffff}"), "algo=zstd  a\u{fffd}");
    }
}
