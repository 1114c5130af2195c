//! Translates fallocate(2) into operations of a device.

use block::{BlockDevice, Context, IoError, Operation, Wait, ZeroMode};
use host::{errno, flags};
use units::PAGE_SHIFT;

/// The most bytes of an operation that a thread carries out which must not wait. A discard goes
/// from page to page: for a terabyte that takes minutes.
const AT_ONCE: u64 = 16 << 20;

/// Has the device carry out an operation, unless it takes long and must not.
pub(crate) fn perform(
    device: &dyn BlockDevice,
    context: Context,
    operation: Operation<'_>,
) -> Result<(), IoError> {
    match operation.range() {
        (_, length) if length > AT_ONCE && context.wait == Wait::No => Err(IoError::WouldBlock),
        _ => device.perform(context, operation),
    }
}

/// The operation for a fallocate(2) of `length` bytes from `offset` on, of which `kept` lie before
/// the end of the device. None if there is nothing to do.
///
/// The loop driver turns discards and unmapping zero writes into `PUNCH_HOLE`, and other zero
/// writes into `ZERO_RANGE` (Linux, drivers/block/loop.c); after each the whole range reads as
/// zeroes (fallocate(2)), which a discard promises for whole pages only. Linux's zram frees the
/// pages of a zero write of either kind (`zram_submit_bio`), and so does this.
///
/// The error is a Linux error number.
pub(crate) fn operation(
    mode: i32,
    (offset, length): (u64, u64),
    kept: u64,
    can_discard: bool,
) -> Result<Option<Operation<'static>>, i32> {
    offset.checked_add(length).ok_or(errno::EFBIG)?;
    let operation = match mode & !flags::FALLOC_FL_KEEP_SIZE {
        flags::FALLOC_FL_PUNCH_HOLE => {
            let whole_pages = (offset | kept).trailing_zeros() >= PAGE_SHIFT;
            if whole_pages && can_discard {
                Operation::Discard { offset, length: kept }
            } else {
                Operation::WriteZeroes { offset, length: kept, mode: ZeroMode::MayPunch }
            }
        }
        flags::FALLOC_FL_ZERO_RANGE => {
            if kept < length && mode & flags::FALLOC_FL_KEEP_SIZE == 0 {
                return Err(errno::ENOSPC);
            }
            Operation::WriteZeroes { offset, length: kept, mode: ZeroMode::MayPunch }
        }
        // Space cannot be reserved: the size of a compressed page is known only when it is written.
        _ => return Err(errno::EOPNOTSUPP),
    };
    Ok((kept > 0).then_some(operation))
}
