//! Ranges that are given up or zeroed: fallocate(2) as operations of a device.

use block::{BlockDevice, IoError, Operation, ZeroMode};
use units::{Cpu, PAGE_SHIFT};

/// The loop driver turns discards and unmapping zero writes into `PUNCH_HOLE`, and zero writes
/// that must stay allocated into `ZERO_RANGE` (Linux, drivers/block/loop.c); after each the whole
/// range reads as zeroes (fallocate(2)), which a discard promises for whole pages only.
///
/// The error is a Linux error number.
pub(crate) fn change(
    device: &dyn BlockDevice,
    cpu: Cpu,
    (offset, length): (u64, u64),
    mode: i32,
) -> Result<(), i32> {
    let bytes = device.geometry().bytes;
    let end = offset.checked_add(length).ok_or(libc::EFBIG)?;
    let kept = bytes.saturating_sub(offset).min(length);
    let operation = match mode & !libc::FALLOC_FL_KEEP_SIZE {
        libc::FALLOC_FL_PUNCH_HOLE => {
            let whole_pages = (offset | kept).trailing_zeros() >= PAGE_SHIFT;
            if whole_pages && device.abilities().discard {
                Operation::Discard { offset, length: kept }
            } else {
                Operation::WriteZeroes { offset, length: kept, mode: ZeroMode::MayPunch }
            }
        }
        libc::FALLOC_FL_ZERO_RANGE => {
            if end > bytes && mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
                return Err(libc::ENOSPC);
            }
            Operation::WriteZeroes { offset, length: kept, mode: ZeroMode::KeepAllocated }
        }
        // Space cannot be promised: how much a page will need is known when it is written.
        _ => return Err(libc::EOPNOTSUPP),
    };
    if kept == 0 {
        return Ok(());
    }
    device.submit(cpu, operation).map_err(IoError::errno)
}
