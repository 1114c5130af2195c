//! What a server offers.

use core::fmt;
use std::sync::Arc;

use block::BlockDevice;

/// How an export presents itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// Its name: at most 4096 bytes.
    pub name: String,
    /// A line for people; may be empty. At most 4096 bytes.
    pub description: String,
}

/// Why an export cannot be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// There is none of this name.
    Unknown,
    /// It exists but is not to be had now; says why.
    Refused(String),
    /// The server is going away.
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

/// The exports of a server. Called by every connection's thread, during negotiation only.
pub trait Exports: Send + Sync {
    /// All of them; the first is the default, which clients ask for by the empty name.
    fn list(&self) -> Vec<ExportInfo>;

    /// The device of an export; `name` is never empty unless an export is named so. It judges the
    /// ranges of requests, for it may be resized while clients believe the size they were told.
    /// The connection keeps what is returned until it ends, so it may carry a guard.
    ///
    /// # Errors
    /// [`OpenError`], which the client is told.
    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError>;
}

/// A single export.
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
