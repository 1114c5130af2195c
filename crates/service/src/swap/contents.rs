//! Judges from both ends of a store whether it holds something that must not be overwritten.
//!
//! A store is free if its first and last MiB are zero, as those of a new file or a discarded device
//! are. Everything that lives in a store leaves traces there: partition tables, file systems, LVM,
//! md RAID, bcache and ZFS. The store is free too if an earlier swap device labelled it, or if it
//! is a swap area that nobody has swapped to.
//!
//! A label may be older than what is in the store now: mdadm and others write their superblocks
//! beside it. So a labelled store is searched for those (`SIGNATURES`).

use units::PAGE_SIZE;

use super::header;

/// Bytes at each end of a store that are looked at.
pub const END: usize = 1 << 20;

/// The label of a backing store.
pub const LABEL: &str = "rampack backing";
/// How labels of ours begin. The header of the swap device itself has another one, and it too may
/// have been written back to the first page.
const OURS: &[u8] = b"rampack";

/// The contents of a store, by what its ends show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Nothing that would be lost.
    Nothing,
    /// The pages of a swap device of ours that is gone.
    Ours,
    /// Pages of another swap space, or of a suspended machine.
    SwapSpace,
    /// A superblock of this name.
    Known(&'static str),
    /// Other data.
    Data,
}

/// The place of a signature.
enum At {
    /// Bytes from the start of the store.
    Start(usize),
    /// Bytes from the end of the store.
    End(usize),
    /// At the end: the last multiple of this many bytes that leaves as many behind it.
    Multiple(u64),
}

/// Superblocks of programs that leave the first page as it was. libblkid(3) has the same places and
/// bytes.
const SIGNATURES: [(&str, At, &[u8]); 7] = [
    // Metadata 1.2, 1.0 and 0.90, the last in the byte order of x86 and AArch64.
    ("a member of an md RAID", At::Start(4096), &MD),
    ("a member of an md RAID", At::End(8 << 10), &MD),
    ("a member of an md RAID", At::Multiple(64 << 10), &MD),
    ("a bcache device", At::Start(4096 + 24), &BCACHE),
    ("a partition table (GPT)", At::Start(512), b"EFI PART"),
    ("a partition table (GPT)", At::End(512), b"EFI PART"),
    ("a partition table (GPT)", At::End(4096), b"EFI PART"),
];
const MD: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
const BCACHE: [u8; 16] = [
    0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81,
];

/// Judges a store of `bytes` from its first and its last bytes: [`END`] of them, or all if there
/// are fewer.
#[must_use]
pub fn contents(bytes: u64, first: &[u8], last: &[u8]) -> Contents {
    let is_zero = |data: &[u8]| data.iter().all(|byte| *byte == 0);
    if let Some(name) = signature(bytes, first, last) {
        return Contents::Known(name);
    }
    let Some((page, rest)) = first.split_at_checked(PAGE_SIZE) else { return Contents::Data };
    // The first page of a small store is in its end, too.
    let before = bytes.saturating_sub(last.len() as u64);
    let again = (PAGE_SIZE as u64).saturating_sub(before) as usize;
    let is_rest_zero = is_zero(rest) && is_zero(last.get(again..).unwrap_or_default());
    match header::label(page) {
        Some(label) if label.starts_with(OURS) => Contents::Ours,
        Some(_) if is_rest_zero => Contents::Nothing,
        None if is_rest_zero && is_zero(page) => Contents::Nothing,
        _ if header::is_header(page) => Contents::SwapSpace,
        _ => Contents::Data,
    }
}

fn signature(bytes: u64, first: &[u8], last: &[u8]) -> Option<&'static str> {
    let is_there = |at: &At, magic: &[u8]| {
        let found = match *at {
            At::Start(at) => first.get(at..),
            At::End(back) => last.len().checked_sub(back).and_then(|at| last.get(at..)),
            At::Multiple(of) => {
                let place = (bytes / of * of).checked_sub(of);
                let back = place.map_or(usize::MAX, |place| (bytes - place) as usize);
                last.len().checked_sub(back).and_then(|at| last.get(at..))
            }
        };
        found.is_some_and(|found| found.starts_with(magic))
    };
    let found = SIGNATURES.iter().find(|(_, at, magic)| is_there(at, magic));
    found.map(|(name, ..)| *name)
}

#[cfg(test)]
mod tests;
