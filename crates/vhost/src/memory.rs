//! Memory that the front end shares.

use std::fs::File;
use std::io::{self, ErrorKind};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use vhost_protocol::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion, VolatileMemory,
};

/// The memory of a machine, by the addresses that its drivers use.
pub(crate) type Guest = GuestMemoryMmap<()>;

/// The memory of a machine.
pub(crate) struct Memory {
    pub(crate) guest: Guest,
    places: Vec<Place>,
}

/// Where the front end has a part of it.
struct Place {
    user: u64,
    guest: u64,
    bytes: u64,
}

pub(crate) fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, text.into())
}

/// The type of hugetlbfs (linux/magic.h).
const HUGETLBFS: u32 = 0x9584_58f6;

/// Checks that the pages of a file will be there, whatever its owner does to it.
fn check_stays(file: &File) -> io::Result<()> {
    // Nothing but a memfd has seals: the questions behind this one no file system of a stranger
    // answers.
    if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Err(invalid(
            "the file may become smaller; it has to be a memfd with F_SEAL_SHRINK",
        ));
    }
    if fstatfs(file)?.f_type as u32 == HUGETLBFS {
        return Err(invalid("the file has huge pages of a pool, which may be empty later"));
    }
    Ok(())
}

/// Maps `bytes` bytes of `file`, from `offset` on. An access to a page that is not there, as beyond
/// the end of the file, would kill this process. So the file is long enough, and unless
/// `may_shrink` it stays so, and takes no pages from a pool.
///
/// # Errors
/// `InvalidInput` for such a file; the error of the system.
pub(crate) fn map(
    file: File,
    offset: u64,
    bytes: u64,
    may_shrink: bool,
) -> io::Result<MmapRegion<()>> {
    if !may_shrink {
        check_stays(&file)?;
    }
    let there = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
    let end = offset.checked_add(bytes).filter(|end| *end <= there);
    let (Some(_), Ok(length)) = (end, usize::try_from(bytes)) else {
        let text = format!("{bytes} bytes from {offset} on are more than the file has, {there}");
        return Err(invalid(text));
    };
    let map = || {
        let mapped = MmapRegion::from_file(FileOffset::new(file, offset), length);
        mapped.map_err(|error| io::Error::other(format!("the memory cannot be mapped: {error}")))
    };
    host::map_of_others(map, |mapped| (mapped.as_ptr(), mapped.size()))
}

impl Memory {
    /// Maps what the front end shares. With `most` it may be so many bytes at most, and cannot
    /// shrink, as for [`map`]: a page that this process touches first counts as its own.
    ///
    /// # Errors
    /// `InvalidInput` for too many bytes and for regions that overlap, and as [`map`].
    pub(crate) fn new(
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        most: Option<u64>,
    ) -> io::Result<Memory> {
        let all = regions.iter().fold(0, |sum: u64, it| sum.saturating_add(it.memory_size));
        if let Some(most) = most.filter(|most| all > *most) {
            let text = format!("{all} bytes are more memory than this machine has, {most}");
            return Err(invalid(text));
        }
        let (mut mapped, mut places) = (Vec::new(), Vec::new());
        for (region, file) in regions.iter().zip(files) {
            let (user, guest, bytes) =
                (region.user_addr, region.guest_phys_addr, region.memory_size);
            let part = map(file, region.mmap_offset, bytes, most.is_none())?;
            let part = GuestRegionMmap::new(part, GuestAddress(guest));
            mapped.push((guest, part.ok_or_else(|| invalid("a region passes the last address"))?));
            places.push(Place { user, guest, bytes });
        }
        mapped.sort_by_key(|(at, _)| *at);
        let mapped = mapped.into_iter().map(|(_, region)| region).collect();
        let guest = Guest::from_regions(mapped).map_err(|error| invalid(error.to_string()))?;
        Ok(Memory { guest, places })
    }

    /// Memory of this process, for tests: the addresses of both sides are the same.
    pub(crate) fn own(bytes: usize) -> Option<Memory> {
        let guest = Guest::from_ranges(&[(GuestAddress(0), bytes)]).ok()?;
        Some(Memory { guest, places: vec![Place { user: 0, guest: 0, bytes: bytes as u64 }] })
    }

    /// The address for drivers of what the front end has at `user`.
    pub(crate) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        self.places.iter().find_map(|place| {
            let offset = user.checked_sub(place.user).filter(|offset| *offset < place.bytes)?;
            Some(GuestAddress(place.guest + offset))
        })
    }
}

/// The length of a mapping in bytes.
pub(crate) fn length(region: &MmapRegion<()>) -> usize {
    VolatileMemory::len(region)
}
