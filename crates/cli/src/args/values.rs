//! The values of options: each is checked here before the command runs.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use clap::builder::{
    OsStringValueParser, PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser,
};
use control::{ControlError, text_of};
use host::total_memory;
use units::{SizeError, evaluate_size, parse_size};
use zram::{ATTRIBUTES, with_absolute_paths};
use zswap::PARAMETERS;

use crate::columns;
use service::engine::{ALGORITHMS, DEFAULT_ALGORITHM};
use service::failure::{failed, sentence};
use service::filesystem;
use service::protocol::{Attribute, BackingLayout};
use service::transport::{Front, SwapTransport, Transport};

/// A value of an option, its names and its help. The names stand between bars; only the first is
/// shown.
type Choice<T> = (&'static str, T, &'static str);

/// The values of `--transport`.
pub(super) const TRANSPORTS: &[Choice<Transport>] = &[
    ("auto", Transport::Auto, "A block device if this machine and user allow one, and also NBD"),
    (
        "fuse",
        Transport::Fuse,
        "A file through FUSE, and for root a block device (loop), without NBD",
    ),
    ("fuse-classic", Transport::FuseClassic, "The same, with requests by /dev/fuse"),
    (
        "fuse-io-uring",
        Transport::FuseRing,
        "The same, with requests by io_uring (Linux 6.14); by /dev/fuse where that cannot be",
    ),
    ("nbd", Transport::Nbd, "Only NBD, on a Unix socket"),
    (
        "ublk",
        Transport::Ublk,
        "A block device by the driver ublk (Linux 6.4), and also NBD. Its size cannot change",
    ),
];

/// The values of `--transport` of a swap device.
pub(super) const SWAP_TRANSPORTS: &[Choice<SwapTransport>] = &[
    ("ublk", SwapTransport::Ublk, "The driver ublk: it needs no memory for a request"),
    (
        "fuse|loop",
        SwapTransport::Loop,
        "A loop device on a file through FUSE, by io_uring where the kernel can (Linux 6.14) and \
         the device need not outlive the daemon",
    ),
    ("fuse-classic", SwapTransport::LoopClassic, "The same, by /dev/fuse"),
    (
        "fuse-io-uring",
        SwapTransport::LoopRing,
        "The same, by io_uring; by /dev/fuse where it cannot",
    ),
];

/// The values of `--front` of a swap device.
pub(super) const FRONTS: &[Choice<Front>] = &[("zswap", Front::Zswap, "The kernel's zswap")];

/// The values of an option that is on or off.
pub(super) const SWITCH: &[Choice<bool>] = &[("on", true, ""), ("off", false, "")];

/// The values of `--backing-layout` of a swap device.
pub(super) const LAYOUTS: &[Choice<BackingLayout>] = &[
    ("pages", BackingLayout::Pages, "Each page has a block of its own"),
    ("log", BackingLayout::Log, "Compressed pages lie one behind the other"),
];

/// Parses the name of one of `values`.
pub(super) fn one_of<T: Copy + Send + Sync>(
    values: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let named = values.iter().map(|(names, _, help)| {
        let mut names = names.split('|');
        PossibleValue::new(names.next().unwrap_or_default()).aliases(names).help(*help)
    });
    PossibleValuesParser::new(named).try_map(|name| {
        let found = values.iter().find(|value| value.0.split('|').any(|it| it == name));
        found.map(|value| value.1).ok_or("it is none of them")
    })
}

/// Parses a whole number in `range`.
pub(super) fn number<T>(range: RangeInclusive<T>) -> impl TypedValueParser<Value = T>
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    StringValueParser::new().try_map(move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("a whole number from {least} to {most} is allowed (EINVAL)"))
    })
}

/// Parses the number of a user.
pub(super) fn user(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        let most = u32::MAX;
        format!(
            "a whole number from 0 to {most} is allowed; `id --user {text}` may tell it (EINVAL)"
        )
    })
}

/// A path for the daemon, which may have another working directory.
pub(crate) fn absolute(path: &Path) -> String {
    machine::text_of(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
}

/// An attribute and its value. The daemon may have another working directory, so relative paths in
/// the value become absolute here. A value in bytes may be an expression.
pub(crate) fn attribute(name: &[u8], value: &[u8]) -> Result<Attribute, ControlError> {
    let (name, value) = (text_of(name), text_of(value));
    let last = name.rsplit('/').next().unwrap_or_default();
    let value = with_absolute_paths(last, &value, &mut |path| {
        let made = std::path::absolute(machine::path_of(path));
        made.map(|path| machine::text_of(&path)).map_err(|error| failed(path, &error))
    })?;
    let value = match is_in_bytes(last) {
        true => sized(&value).map_err(|error| ControlError::invalid(error.to_string()))?.text,
        false => value,
    };
    Ok(Attribute { value, name })
}

/// Is this the name of an attribute of a disk, or of a parameter of the swap cache, in bytes?
fn is_in_bytes(name: &str) -> bool {
    let disk = ATTRIBUTES.iter().map(|row| (row.name, row.unit));
    let cache = PARAMETERS.iter().map(|row| (row.name, row.unit));
    disk.chain(cache).any(|row| row == (name, "bytes"))
}

/// An attribute and its value, as `ATTRIBUTE=VALUE`; `None` for text of another form.
pub(super) fn assigned(text: &OsStr) -> Result<Option<Attribute>, ControlError> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
    at.map(|at| attribute(&bytes[..at], &bytes[at + 1..])).transpose()
}

/// Parses an attribute and its value.
pub(super) fn assignment() -> impl TypedValueParser<Value = Attribute> {
    OsStringValueParser::new().try_map(|text| {
        let assigned = assigned(&text).map_err(|error| sentence(&error))?;
        assigned.ok_or_else(|| "it is not ATTRIBUTE=VALUE".to_string())
    })
}

/// A valid size, with the text that the user wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Size {
    /// The text of the option; of an expression what it comes to.
    pub text: String,
    /// The size in bytes.
    pub bytes: u64,
}

fn sized(text: &str) -> Result<Size, SizeError> {
    let bytes = evaluate_size(text, total_memory)?;
    let text = if parse_size(text).is_ok() { text.to_string() } else { bytes.to_string() };
    Ok(Size { text, bytes })
}

/// Parses a size.
pub(super) fn size(text: &str) -> Result<Size, String> {
    sized(text).map_err(|error| format!("{error} (EINVAL)"))
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
    let level = match text.split_once(':') {
        Some((name, level)) if ALGORITHMS.contains(&name) => {
            format!("; a disk has its level by `--algorithm {name} --level {level}`")
        }
        _ => String::new(),
    };
    Err(format!("no algorithm {text:?}; there are: {known}{level} (EINVAL)"))
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
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err("a percentage is 1% to 100% (EINVAL)".into());
        }
        _ => return Ok(disk_size(text)?.text),
    }
    Ok(text.to_string())
}
