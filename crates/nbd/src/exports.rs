//! The exports of a server.

use core::fmt;
use std::sync::Arc;

use block::BlockDevice;

/// The name and the description of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// Its name: at most 4096 bytes.
    pub name: String,
    /// A line for a person; may be empty. At most 4096 bytes.
    pub description: String,
}

/// Why an export cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// No export has this name.
    Unknown,
    /// The export exists but cannot be opened now; the text is the reason.
    Refused(String),
    /// The server is shutting down.
    ShuttingDown,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Unknown => f.write_str("no export has this name"),
            OpenError::Refused(why) => f.write_str(why),
            OpenError::ShuttingDown => f.write_str("the server is shutting down"),
        }
    }
}

impl core::error::Error for OpenError {}

/// The exports of a server. The thread of every connection calls it, during negotiation only;
/// several threads may call it at once.
pub trait Exports: Send + Sync {
    /// All exports. The first is the default: a client asks for it by the empty name.
    fn list(&self) -> Vec<ExportInfo>;

    /// The device of an export; `name` is empty only if an export has the empty name. The device
    /// checks the range of each request, because it may be resized after the client learned its
    /// size. The connection keeps the returned device until it ends, so the device may carry a
    /// guard.
    ///
    /// # Errors
    /// [`OpenError`]; the server reports it to the client.
    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError>;
}

/// A list of one export.
pub struct One {
    info: ExportInfo,
    device: Arc<dyn BlockDevice>,
}

impl One {
    /// Offers `device` as `name`.
    #[must_use]
    pub fn new(name: &str, description: &str, device: Arc<dyn BlockDevice>) -> One {
        let info = ExportInfo { name: name.to_string(), description: description.to_string() };
        One { info, device }
    }
}

impl Exports for One {
    fn list(&self) -> Vec<ExportInfo> {
        vec![self.info.clone()]
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError> {
        if name == self.info.name { Ok(self.device.clone()) } else { Err(OpenError::Unknown) }
    }
}
