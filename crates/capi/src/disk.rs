//! Disks.
//!
//! # Why unsafe
//! C calls the functions, with pointers.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use rampack::{DiskOptions, PAGE_SIZE};

use crate::call::{Failure, call};
use crate::caller::{Growing, algorithm, bytes, bytes_mut, fill, of, options, put};
use crate::calls::Owner;
use crate::instance::Rampack;

/// A compressed disk of this process. Any number of threads may use it at once.
pub struct RampackDisk {
    pub(crate) disk: rampack::Disk,
    _pressure: Arc<Owner>,
}

/// The options of a disk.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RampackDiskOptions {
    /// `sizeof(struct rampack_disk_options)`.
    pub struct_size: usize,
    /// Such as "lz4" or "zstd:9"; `NULL`: lz4.
    pub algorithm: *const c_char,
    /// The most bytes of memory for its pages; 0: no limit.
    pub mem_limit: u64,
}

// SAFETY: numbers and a pointer, the first of them the size.
unsafe impl Growing for RampackDiskOptions {
    const DEFAULT: Self =
        RampackDiskOptions { struct_size: size_of::<Self>(), algorithm: ptr::null(), mem_limit: 0 };
}

/// What a disk has and takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RampackDiskStats {
    /// `sizeof(struct rampack_disk_stats)`; then the bytes that were filled.
    pub struct_size: usize,
    /// Pages with contents, same-filled ones among them.
    pub pages: u64,
    /// Pages filled with one pattern of eight bytes.
    pub same_filled: u64,
    /// Pages that did not shrink.
    pub incompressible: u64,
    /// Bytes of all compressed pages.
    pub compressed_bytes: u64,
    /// Bytes of memory that the disk takes, tables among them.
    pub memory_bytes: u64,
    /// The most memory that its pages took so far.
    pub peak_bytes: u64,
    /// Pages that could not be read or written, and requests past the end.
    pub failed: u64,
    /// Its limit; 0 for none.
    pub mem_limit: u64,
}

// SAFETY: numbers, the first of them the size.
unsafe impl Growing for RampackDiskStats {
    const DEFAULT: Self = RampackDiskStats {
        struct_size: 0,
        pages: 0,
        same_filled: 0,
        incompressible: 0,
        compressed_bytes: 0,
        memory_bytes: 0,
        peak_bytes: 0,
        failed: 0,
        mem_limit: 0,
    };
}

/// Makes a disk of `size` bytes, rounded up to pages. It takes memory as it is written; what was
/// not written reads as zeroes. `settings` may be `NULL`.
///
/// Errors: `-EINVAL` for a size of 0 or an option that is not allowed, `-ENOMEM`.
///
/// # Safety
/// `settings` is `NULL`, or as long as it says, and its algorithm a text or `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_disk_new(
    rampack: Option<&Rampack>,
    size: u64,
    settings: *const RampackDiskOptions,
    made: Option<&mut MaybeUninit<Box<RampackDisk>>>,
) -> c_int {
    call(|| {
        let rampack = of(rampack, "rampack")?;
        // SAFETY: as the caller says.
        let settings = unsafe { options(settings, "settings")? };
        // SAFETY: as the caller says.
        let algorithm = unsafe { algorithm(settings.algorithm)? };
        let options = DiskOptions::new(size).algorithm(algorithm).mem_limit(settings.mem_limit);
        let (disk, _pressure) = (rampack.rampack.disk(options)?, rampack.pressure.clone());
        put(made, "made", Box::new(RampackDisk { disk, _pressure }))
    })
}

/// Ends a disk, and frees what is in it; `NULL` is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_disk_free(disk: Option<Box<RampackDisk>>) {
    call(|| {
        drop(disk);
        Ok(())
    });
}

/// Its size in bytes; 0 for `NULL`.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_disk_size(disk: Option<&RampackDisk>) -> u64 {
    let mut size = 0;
    call(|| {
        size = of(disk, "disk")?.disk.size();
        Ok(())
    });
    size
}

/// Reads `length` bytes from `offset` on.
///
/// Errors: `-EINVAL` past the end; `-EIO` if what is stored does not decompress.
///
/// # Safety
/// There are so many bytes at `into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_disk_read(
    disk: Option<&RampackDisk>,
    offset: u64,
    into: *mut c_void,
    length: usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
        let into = unsafe { bytes_mut(into, length, "into")? };
        Ok(of(disk, "disk")?.disk.read_at(offset, into)?)
    })
}

/// Writes `length` bytes from `offset` on. Whole pages are quicker than parts.
///
/// Errors: `-EINVAL` past the end, `-ENOSPC` at the limit, `-ENOMEM`; pages before the one that
/// failed are written.
///
/// # Safety
/// There are so many bytes at `from`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_disk_write(
    disk: Option<&RampackDisk>,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
        let from = unsafe { bytes(from, length, "from")? };
        Ok(of(disk, "disk")?.disk.write_at(offset, from)?)
    })
}

/// Frees `length` bytes from `offset` on, both multiples of `RAMPACK_PAGE_SIZE`. They read as
/// zeroes afterwards.
///
/// Errors: `-EINVAL` past the end or for a part of a page; nothing has changed then.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_disk_discard(
    disk: Option<&RampackDisk>,
    offset: u64,
    length: u64,
) -> c_int {
    call(|| {
        let disk = of(disk, "disk")?;
        let page = PAGE_SIZE as u64;
        if !offset.is_multiple_of(page) || !length.is_multiple_of(page) {
            let message = format!("{offset} and {length} are not both multiples of {page}");
            return Err(Failure::invalid(message));
        }
        Ok(disk.disk.discard(offset / page, length / page)?)
    })
}

/// Sets the limit of its memory in bytes; 0 for none. What is stored stays.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_disk_set_limit(disk: Option<&RampackDisk>, bytes: u64) -> c_int {
    call(|| {
        of(disk, "disk")?.disk.set_mem_limit(bytes);
        Ok(())
    })
}

/// Moves what is stored together, and gives memory back to the system. `freed` may be `NULL`.
///
/// Errors: `-EBUSY` while another thread does so.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_disk_compact(
    disk: Option<&RampackDisk>,
    freed: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    call(|| {
        let bytes = of(disk, "disk")?.disk.compact()?;
        if let Some(freed) = freed {
            freed.write(bytes);
        }
        Ok(())
    })
}

/// The statistics of a disk now.
///
/// # Safety
/// `stats` is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_disk_get_stats(
    disk: Option<&RampackDisk>,
    stats: *mut RampackDiskStats,
) -> c_int {
    call(|| {
        let now = of(disk, "disk")?.disk.stats();
        let filled = RampackDiskStats {
            struct_size: 0,
            pages: now.pages,
            same_filled: now.same_filled,
            incompressible: now.incompressible,
            compressed_bytes: now.compressed_bytes,
            memory_bytes: now.memory_bytes,
            peak_bytes: now.peak_bytes,
            failed: now.failed,
            mem_limit: now.mem_limit,
        };
        // SAFETY: as the caller says.
        unsafe { fill(stats, "stats", filled) }
    })
}
