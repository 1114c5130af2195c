//! Finds the wanted pages of a process and takes them.
//!
//! Source: /proc (proc_pid_maps(5), and the kernel document `admin-guide/mm/pagemap.rst`). The
//! wanted pages are those that would go to swap: present, anonymous, in a writable private mapping
//! of no file. Only this process may map the page. That leaves out the shared zero page, which
//! takes no memory of its own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result};
use procfs::process::{MMPermissions, MemoryPageFlags, PageInfo, Process};
use units::PAGE_SIZE;

use crate::interrupt;
use crate::proc_files::kib;

/// Pages whose state is asked for at once.
const ASKED: usize = 1 << 16;

/// Resident bytes of private anonymous memory of a process, read quickly (proc_pid_smaps(5)).
pub fn anonymous_bytes(process: u32) -> Result<u64> {
    kib(&format!("/proc/{process}/smaps_rollup"), "Anonymous").context("its smaps_rollup")
}

/// Waits until every thread of a stopped process stands still.
pub fn wait_until_stopped(process: u32) -> Result<()> {
    interrupt::wait_for("stopping the program", Duration::from_secs(10), || {
        let tasks = Process::new(process as i32)?.tasks().context("its threads")?;
        // A thread may end meanwhile.
        let mut states = tasks.flatten().filter_map(|task| Some(task.stat().ok()?.state));
        Ok(states.all(|state| state == 'T').then_some(()))
    })
}

/// The addresses of all wanted pages of a process now, ascending.
pub fn wanted_pages(process: u32) -> Result<Vec<u64>> {
    let process = Process::new(process as i32)?;
    let maps = process.maps().context("its mappings")?;
    let mut pagemap = process.pagemap().context("its pagemap")?;
    let writable = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE;
    let own = MemoryPageFlags::PRESENT | MemoryPageFlags::MMAP_EXCLUSIVE;
    let is_wanted = |state: &PageInfo| match state {
        PageInfo::MemoryPage(state) => *state & (own | MemoryPageFlags::FILE) == own,
        PageInfo::SwapPage(_) => false,
    };
    let mut addresses = Vec::new();
    for map in maps.iter().filter(|map| map.perms == writable && map.inode == 0) {
        let page = |address: u64| (address / PAGE_SIZE as u64) as usize;
        let (first, end) = (page(map.address.0), page(map.address.1));
        // Programs reserve address space by the gigabyte, so we read the map in pieces.
        for start in (first..end).step_by(ASKED) {
            let states = pagemap.get_range_info(start..(start + ASKED).min(end));
            let pages = (start..).zip(states.context("its pagemap")?);
            let wanted = pages.filter(|(_, state)| is_wanted(state));
            addresses.extend(wanted.map(|(page, _)| (page * PAGE_SIZE) as u64));
        }
    }
    Ok(addresses)
}

/// The contents of up to `most` wanted pages of a stopped process, in the order of their addresses.
/// If there are more, it takes a random choice, the same each time.
pub fn take(process: u32, most: usize) -> Result<Vec<u8>> {
    let memory = format!("/proc/{process}/mem");
    let memory = File::open(&memory).context(memory)?;
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
            // Guard pages and device memory look ordinary but cannot be read: there is nothing.
            Err(error) if [None, Some(nix::libc::EIO)].contains(&error.raw_os_error()) => {}
            Err(error) => return Err(error).context("its memory"),
        }
    }
    Ok(contents)
}

#[cfg(test)]
mod tests;
