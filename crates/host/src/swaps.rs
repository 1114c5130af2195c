//! The swap space that the kernel uses now (proc_swaps(5)).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::mounts::unescape;
use crate::swap::HIGHEST_PRIORITY;

/// A line of `/proc/swaps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Active {
    /// The device or file.
    pub path: PathBuf,
    /// Its size in bytes, without the header.
    pub bytes: u64,
    /// The bytes of it in use.
    pub used: u64,
    /// Areas of higher priority are used first.
    pub priority: i32,
}

/// All swap space of the kernel, for a report: empty if it is not known.
#[must_use]
pub fn all() -> Vec<Active> {
    read().unwrap_or_default()
}

/// All swap space of the kernel, which may have been built without.
///
/// # Errors
/// The error of the system: what is swapped to is not known then.
pub fn read() -> io::Result<Vec<Active>> {
    match fs::read("/proc/swaps") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        text => Ok(parse(&text?)),
    }
}

/// The swap space on `path` and its partitions: the sum of their sizes, and the highest of their
/// priorities.
#[must_use]
pub fn find(path: &Path) -> Option<Active> {
    find_among(all(), path)
}

fn find_among(all: Vec<Active>, path: &Path) -> Option<Active> {
    let mut parts = all.into_iter().filter(|active| is_part(path, &active.path));
    let first = Active { path: path.to_path_buf(), ..parts.next()? };
    Some(parts.fold(first, |sum, part| Active {
        bytes: sum.bytes + part.bytes,
        used: sum.used + part.used,
        priority: sum.priority.max(part.priority),
        ..sum
    }))
}

/// Is `path` the block device `whole`, or one of its partitions (`/dev/ublkb0p1`)?
#[must_use]
pub fn is_part(whole: &Path, path: &Path) -> bool {
    let Some(rest) = path.as_os_str().as_bytes().strip_prefix(whole.as_os_str().as_bytes()) else {
        return false;
    };
    let digits = rest.strip_prefix(b"p").unwrap_or_default();
    rest.is_empty() || (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// The lowest priority above all swap space whose device is gone. The kernel keeps such space until
/// the next boot, and would swap to it first. `None` where there is none.
#[must_use]
pub fn above_dead() -> Option<u16> {
    above_dead_among(&all())
}

fn above_dead_among(all: &[Active]) -> Option<u16> {
    let is_dead = |active: &&Active| active.path.as_os_str().as_bytes().ends_with(b" (deleted)");
    let highest = all.iter().filter(is_dead).map(|active| active.priority).max()?;
    let above = highest.saturating_add(1).max(0);
    Some(u16::try_from(above).unwrap_or(u16::MAX).min(HIGHEST_PRIORITY))
}

/// The lines of `/proc/swaps`. Unknown lines are skipped.
#[must_use]
pub fn parse(text: &[u8]) -> Vec<Active> {
    text.split(|byte| *byte == b'\n').skip(1).filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Active> {
    let fields = line.split(|byte| matches!(byte, b' ' | b'\t'));
    let mut fields = fields.filter(|field| !field.is_empty());
    let path = unescape(fields.next()?);
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let _kind = text()?;
    let (kib, used) = (text()?.parse::<u64>().ok()?, text()?.parse::<u64>().ok()?);
    let priority = text()?.parse().ok()?;
    Some(Active { path, bytes: kib * 1024, used: used * 1024, priority })
}

#[cfg(test)]
mod tests;
