//! Finds the wanted pages of a process and takes them.
//!
//! Source: /proc (proc_pid_maps(5), and the kernel document `admin-guide/mm/pagemap.rst`). The
//! wanted pages are those that would go to swap: present, anonymous, in a writable private mapping
//! of no file. Only this process may map the page. That leaves out the shared zero page, which
//! takes no memory of its own.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result};
use units::PAGE_SIZE;

use crate::interrupt;
use crate::proc_files::kib;

/// Bits of an entry of /proc/PID/pagemap.
const PRESENT: u64 = 1 << 63;
const FILE_OR_SHARED: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

/// Resident bytes of private anonymous memory of a process, read quickly (proc_pid_smaps(5)).
pub fn anonymous_bytes(process: u32) -> Result<u64> {
    kib(&format!("/proc/{process}/smaps_rollup"), "Anonymous").context("its smaps_rollup")
}

/// Waits until every thread of a stopped process stands still.
pub fn wait_until_stopped(process: u32) -> Result<()> {
    interrupt::wait_for("stopping the program", Duration::from_secs(10), || {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).context("its threads")?;
        for task in tasks {
            // A thread may end meanwhile.
            let Ok(status) = fs::read_to_string(task?.path().join("stat")) else { continue };
            // The state follows the name, which is in parentheses (proc_pid_stat(5)).
            let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            if state != Some('T') {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
}

/// The private, anonymous, writable address ranges in the text of /proc/PID/maps.
fn wanted_ranges(maps: &str) -> Vec<(u64, u64)> {
    let range = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let permissions = fields.next()?;
        let inode = fields.nth(2)?;
        let wanted = permissions == "rw-p" && inode == "0";
        let number = |text| u64::from_str_radix(text, 16).ok();
        wanted.then_some((number(from)?, number(to)?))
    };
    maps.lines().filter_map(range).collect()
}

/// Whether an entry of /proc/PID/pagemap is a wanted page.
fn is_wanted(entry: u64) -> bool {
    entry & PRESENT != 0 && entry & FILE_OR_SHARED == 0 && entry & EXCLUSIVE != 0
}

/// The addresses of all wanted pages of a process now, ascending.
pub fn wanted_pages(process: u32) -> Result<Vec<u64>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).context("its mappings")?;
    let pagemap = open(process, "pagemap")?;
    let mut addresses = Vec::new();
    // Programs reserve address space by the gigabyte, so we read the map in pieces.
    let mut entries = vec![0; 8192 * size_of::<u64>()];
    for (from, to) in wanted_ranges(&maps) {
        let (mut page, end) = (from / PAGE_SIZE as u64, to / PAGE_SIZE as u64);
        while page < end {
            let length = (((end - page) as usize) * size_of::<u64>()).min(entries.len());
            let entries = &mut entries[..length];
            let offset = page * size_of::<u64>() as u64;
            pagemap.read_exact_at(entries, offset).context("its pagemap")?;
            for entry in entries.as_chunks().0 {
                if is_wanted(u64::from_ne_bytes(*entry)) {
                    addresses.push(page * PAGE_SIZE as u64);
                }
                page += 1;
            }
        }
    }
    Ok(addresses)
}

fn open(process: u32, name: &str) -> Result<File> {
    let path = format!("/proc/{process}/{name}");
    File::open(&path).context(path)
}

/// The contents of up to `most` wanted pages of a stopped process, in the order of their addresses.
/// If there are more, it takes a random choice, the same each time.
pub fn take(process: u32, most: usize) -> Result<Vec<u8>> {
    let memory = open(process, "mem")?;
    let mut addresses = wanted_pages(process)?;
    if addresses.len() > most {
        fastrand::Rng::with_seed(most as u64).shuffle(&mut addresses);
        addresses.truncate(most);
        addresses.sort_unstable();
    }

    let mut contents = Vec::with_capacity(addresses.len() * PAGE_SIZE);
    let mut page = [0; PAGE_SIZE];
    for address in addresses {
        match memory.read_exact_at(&mut page, address) {
            Ok(()) => contents.extend_from_slice(&page),
            // Guard pages and device memory look ordinary but cannot be read.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) if error.raw_os_error() == Some(nix::libc::EIO) => {}
            Err(error) => return Err(error).context("its memory"),
        }
    }
    Ok(contents)
}

#[cfg(test)]
mod tests;
