//! The codes of the format, and the pieces of a page that an index names.

use units::Page;

pub(super) const BLOCK: usize = 8;

/// Codes except those of two halves.
pub(super) const OLD_BLOCK: u64 = 25;
pub(super) const REPEAT: u64 = 27;
pub(super) const ZEROS: u64 = 28;
pub(super) const END: u64 = 30;

/// The ways to write a half.
pub(super) const DATA: u64 = 0;
pub(super) const DATA_OLD: u64 = 1;
pub(super) const OLD_DATA: u64 = 2;
pub(super) const OLD_OLD: u64 = 3;
pub(super) const OLD: u64 = 4;
pub(super) const WAYS: u64 = 5;

pub(super) const CODE_BITS: u32 = 5;
pub(super) const REPEAT_BITS: u32 = 6;
pub(super) const CHECKSUM_BITS: u32 = 32;

/// A size of pieces that an index can name.
pub(super) trait Piece {
    /// Bytes of a piece.
    const SIZE: usize;
    /// Bits of an index.
    const BITS: u32;
    /// The distance in bytes that an index reaches back.
    const REACH: usize = Self::SIZE << Self::BITS;

    /// The piece at `at` as a number, its first byte the lowest; 0 outside of the page.
    fn at(page: &Page, at: usize) -> u64;
}

#[inline(always)]
pub(super) fn bytes<const N: usize>(page: &Page, at: usize) -> [u8; N] {
    page.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

pub(super) enum Pair {}
pub(super) enum Four {}
pub(super) enum Eight {}

impl Piece for Pair {
    const SIZE: usize = 2;
    const BITS: u32 = 8;

    #[inline(always)]
    fn at(page: &Page, at: usize) -> u64 {
        u16::from_le_bytes(bytes(page, at)).into()
    }
}

impl Piece for Four {
    const SIZE: usize = 4;
    const BITS: u32 = 9;

    #[inline(always)]
    fn at(page: &Page, at: usize) -> u64 {
        u32::from_le_bytes(bytes(page, at)).into()
    }
}

impl Piece for Eight {
    const SIZE: usize = 8;
    const BITS: u32 = 8;

    #[inline(always)]
    fn at(page: &Page, at: usize) -> u64 {
        u64::from_le_bytes(bytes(page, at))
    }
}
