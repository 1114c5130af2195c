//! The first page of a swap area, by which swapon(2) recognises the area (`union swap_header` of
//! Linux). mkswap(8) writes the same header, version 1.

use std::ops::Range;

use control::ControlError;
use units::PAGE_SIZE;

/// The last bytes of the first page of a swap area.
const MAGIC: &[u8; 10] = b"SWAPSPACE2";
/// The offset of the version. Boot loaders may use the bytes before it.
const VERSION: usize = 1024;
const LAST_PAGE: usize = VERSION + 4;
const BAD_PAGES: usize = VERSION + 8;
const UUID: usize = VERSION + 12;
const LABEL: usize = UUID + 16;
/// The most bytes of a label, with the zero that ends it.
pub const LABEL_MAX: usize = 16;

/// The fewest pages of an area, with the header: mkswap(8) makes none smaller.
pub const FEWEST_PAGES: u64 = 10;
/// The most pages of an area: the number of its last page has 32 bits.
pub const MOST_PAGES: u64 = 1 << 32;

/// The header of an area of `pages`; the header is one of them.
///
/// # Errors
/// `EINVAL` for fewer than [`FEWEST_PAGES`], more than [`MOST_PAGES`], or a label that is too long.
pub fn header(pages: u64, uuid: [u8; 16], label: &str) -> Result<[u8; PAGE_SIZE], ControlError> {
    let last = match pages {
        FEWEST_PAGES..=MOST_PAGES => u32::try_from(pages - 1).unwrap_or(u32::MAX),
        _ => {
            let message = format!(
                "a swap area has {} bytes at least and {} at most, not {}",
                FEWEST_PAGES * PAGE_SIZE as u64,
                MOST_PAGES * PAGE_SIZE as u64,
                pages as u128 * PAGE_SIZE as u128
            );
            return Err(ControlError::invalid(message));
        }
    };
    if label.len() >= LABEL_MAX || label.contains('\0') {
        let most = LABEL_MAX - 1;
        return Err(ControlError::invalid(format!("label {label:?} is longer than {most} bytes")));
    }
    let mut page = [0; PAGE_SIZE];
    // In the byte order of the machine, as the kernel reads it. No pages are bad.
    page[VERSION..VERSION + 4].copy_from_slice(&1u32.to_ne_bytes());
    page[LAST_PAGE..LAST_PAGE + 4].copy_from_slice(&last.to_ne_bytes());
    page[UUID..UUID + 16].copy_from_slice(&uuid);
    page[LABEL..LABEL + label.len()].copy_from_slice(label.as_bytes());
    page[PAGE_SIZE - MAGIC.len()..].copy_from_slice(MAGIC);
    Ok(page)
}

/// Is `page` the first page of a swap area?
#[must_use]
pub fn is_header(page: &[u8]) -> bool {
    page.len() == PAGE_SIZE && page.ends_with(MAGIC)
}

/// The label of the swap area whose first page is `page`, if that page holds a header and nothing
/// else, as [`header`] and mkswap(8) write it.
#[must_use]
pub fn label(page: &[u8]) -> Option<&[u8]> {
    let is_zero = |range: Range<usize>| page[range].iter().all(|byte| *byte == 0);
    let is_plain = is_header(page)
        && is_zero(0..VERSION)
        && page[VERSION..LAST_PAGE] == 1u32.to_ne_bytes()
        && is_zero(BAD_PAGES..UUID)
        && is_zero(LABEL + LABEL_MAX..PAGE_SIZE - MAGIC.len());
    let label = &page.get(LABEL..LABEL + LABEL_MAX)?;
    is_plain.then(|| label.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// The sixteen bytes of a uuid, from the text of `/proc/sys/kernel/random/uuid`.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.trim().bytes().filter(|byte| *byte != b'-').collect();
    let mut uuid = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

/// A new uuid, a random one from the kernel; from the time, if the kernel gives none.
#[must_use]
pub fn new_uuid() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    parse_uuid(&text).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap_or_default().as_nanos().to_ne_bytes()
    })
}

#[cfg(test)]
mod tests;
