//! The values of options: each is checked here before the command runs.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use rampack::units::parse_size;

use crate::columns;
use crate::failure::sentence;
use crate::filesystem;
use crate::machine::{ALGORITHMS, DEFAULT_ALGORITHM};
use crate::protocol::Attribute;

/// Parses an attribute and its value.
pub(super) fn assignment(text: &str) -> Result<Attribute, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok(Attribute { name: name.to_string(), value: value.to_string() })
        }
        _ => Err("it is not ATTRIBUTE=VALUE".to_string()),
    }
}

/// A valid size, with the text that the user wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Size {
    /// The text of the option.
    pub text: String,
    /// The size in bytes.
    pub bytes: u64,
}

/// Parses a size.
pub(super) fn size(text: &str) -> Result<Size, String> {
    match parse_size(text) {
        Ok(bytes) => Ok(Size { text: text.to_string(), bytes }),
        Err(error) => Err(format!("{error} (EINVAL)")),
    }
}

/// Parses the size of a device, which is not 0.
pub(super) fn disk_size(text: &str) -> Result<Size, String> {
    let size = size(text)?;
    if size.bytes == 0 {
        return Err("a device cannot be of size 0; write for example 512M or 4G (EINVAL)".into());
    }
    Ok(size)
}

/// The help of an option that names an algorithm.
pub(super) fn algorithm_help() -> String {
    let (known, default) = (ALGORITHMS.join(", "), DEFAULT_ALGORITHM);
    format!("The compression algorithm: {known} [default: {default}]")
}

/// Checks the name of an algorithm.
pub(super) fn algorithm(text: &str) -> Result<String, String> {
    if ALGORITHMS.contains(&text) {
        return Ok(text.to_string());
    }
    let known = ALGORITHMS.join(" ");
    Err(format!("no algorithm {text:?}; there are: {known} (EINVAL)"))
}

/// The columns that the user chose.
#[derive(Clone)]
pub struct ColumnNames(pub Vec<&'static columns::Column>);

impl fmt::Debug for ColumnNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|column| column.name)).finish()
    }
}

/// Checks the name of a file system.
pub(super) fn fs_name(text: &str) -> Result<String, String> {
    match filesystem::kind(text) {
        Ok(kind) => Ok(kind.name.to_string()),
        Err(fault) => Err(sentence(&fault)),
    }
}

/// Parses names of columns of `rampack status`.
pub(super) fn column_names(text: &str) -> Result<ColumnNames, String> {
    columns::named(text).map(ColumnNames)
}

/// Parses an address to listen on.
pub(super) fn tcp_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |why: String| {
        format!("{text:?} is no address: {why}; write PORT, HOST:PORT or [IPV6]:PORT (EINVAL)")
    };
    let port = text.strip_prefix(':').unwrap_or(text);
    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        let port = port.parse().map_err(|_| wrong("a port is at most 65535".into()))?;
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    if !text.starts_with('[') && text.matches(':').count() > 1 {
        return Err(wrong(
            "an IPv6 address needs brackets, for its end and the port look alike".into(),
        ));
    }
    let mut found = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("the name has no address".into()))
}

/// Checks a size or a percentage.
pub(super) fn pool_size(text: &str) -> Result<String, String> {
    match text.strip_suffix('%') {
        Some(number) if number.parse().is_ok_and(|percent: u8| (1..=100).contains(&percent)) => {}
        Some(_) => return Err("a percentage is 1% to 100% (EINVAL)".into()),
        None => {
            disk_size(text)?;
        }
    }
    Ok(text.to_string())
}
