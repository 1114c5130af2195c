//! Reads all that was written back, and checks it.

use alloc::{boxed::Box, format, vec::Vec};

use control::{ControlError, Errno};
use pagelog::{AT_ONCE, Backing, StoredAt, Wanted};
use units::{PAGE_SIZE, Page};

use crate::disk::Disk;
use crate::engine::{Engine, Kind};
use crate::ops::write_error::no_memory;
use crate::resources::CPU;

/// What a scrub has found.
#[derive(Default)]
struct Found {
    checked: u64,
    bad: u64,
    /// The block of the first bad page.
    first: Option<u64>,
}

impl Disk {
    /// Reads every page on the backing device and checks that it is as it was written. What no page
    /// names any more is not read. Readers and writers go on meanwhile. Returns the number of pages
    /// that were read. Runs on the calling thread, for as long as it takes to read the device.
    ///
    /// # Errors
    /// `EINVAL` when the device is not initialised; `ENODEV` without a backing device; `ENOTSUP`
    /// when pages are written back without a checksum; `ENOMEM` when there is no memory for a list
    /// of the pages; `EIO` when pages are bad. The message says how many and names the first of
    /// their blocks.
    pub fn scrub(&self) -> Result<u64, ControlError> {
        let engine = self.ready_engine()?;
        let backing = self.backing_of(&engine)?;
        if !backing.is_log() && !self.sealed_backing() {
            let message = format!("pages are written to {} unsealed", backing.path());
            return Err(ControlError::new(Errno::ENOTSUP, message));
        }
        let mut found = Found::default();
        let mut buffers = pages()?;
        for batch in written_back(&engine, self.reach())?.chunks(AT_ONCE) {
            check(&engine, backing, batch, &mut buffers, &mut found);
        }
        match found {
            Found { checked, first: None, .. } => Ok(checked),
            Found { checked, bad, first: Some(first) } => {
                let message = format!(
                    "{bad} of {checked} pages in {} are not as they were written; the first is \
                     block {first}",
                    backing.path()
                );
                Err(ControlError::new(Errno::EIO, message))
            }
        }
    }
}

fn pages() -> Result<Box<[Page]>, ControlError> {
    let mut pages = Vec::new();
    pages.try_reserve_exact(AT_ONCE).map_err(|_| no_memory())?;
    pages.resize(AT_ONCE, [0; PAGE_SIZE]);
    Ok(pages.into_boxed_slice())
}

/// The places of all pages on the backing device and their numbers, in the order of the device.
fn written_back(engine: &Engine, pages: usize) -> Result<Vec<(StoredAt, usize)>, ControlError> {
    let (mut all, mut full) = (Vec::new(), Ok(()));
    engine.each(0..pages, |index, slot| {
        if let Kind::WrittenBack(place) = slot.kind()
            && full.is_ok()
        {
            full = all.try_reserve(1);
            if full.is_ok() {
                all.push((place.at, index));
            }
        }
    });
    full.map_err(|_| no_memory())?;
    all.sort_unstable();
    Ok(all)
}

/// Reads pages that are where they were, and counts them.
fn check(
    engine: &Engine,
    backing: &dyn Backing,
    batch: &[(StoredAt, usize)],
    buffers: &mut [Page],
    found: &mut Found,
) {
    // As long as this reader lives, a place has the bytes of the page that names it now.
    let _reading = backing.reading(CPU);
    let mut wanted = [const { None }; AT_ONCE];
    for (((at, index), into), wanted) in batch.iter().zip(buffers).zip(&mut wanted) {
        match engine.peek(*index).kind() {
            Kind::WrittenBack(place) if place.at == *at => {
                *wanted = Some(Wanted { index: *index, place, into, result: Ok(()) });
            }
            // It was used meanwhile.
            _ => {}
        }
    }
    backing.read(CPU, &mut wanted);
    for Wanted { place, result, .. } in wanted.iter().flatten() {
        found.checked += 1;
        if result.is_err() {
            found.bad += 1;
            found.first.get_or_insert(backing.span(*place).start / PAGE_SIZE as u64);
        }
    }
}
