//! The compressor: one pass, with a table of the last place of each four bytes.
//!
//! Its main cost is mispredicted branches: where the next match is, how long it is, how many
//! literals come before it. So it avoids branches where it can: it makes both forms of a copy,
//! writes more literals than exist, and compares sixteen bytes at a time. The rest of the cost is
//! clearing the table. The table has 4096 places of two bytes (liblzo2's has 16384), because a page
//! has no more places.

use units::{PAGE_SIZE, Page};

/// Room for any page. No instruction is longer than the bytes it stands for, except one byte in 255
/// of long literals. The rest is for both ends, and for writes beyond the counted bytes.
pub(super) const BOUND: usize = PAGE_SIZE + PAGE_SIZE / 16;

const HASH_BITS: u32 = 12;
/// After this place, eight bytes can no longer be loaded.
const LAST_START: usize = PAGE_SIZE - 8;

/// The last place in the page of each hash.
pub(super) struct Table([u16; 1 << HASH_BITS]);

impl Table {
    pub(super) fn new() -> Table {
        Table([0; 1 << HASH_BITS])
    }
}

#[inline(always)]
fn load<const N: usize>(page: &Page, at: usize) -> [u8; N] {
    page.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

#[inline(always)]
fn load32(page: &Page, at: usize) -> u32 {
    u32::from_le_bytes(load(page, at))
}

#[inline(always)]
fn load64(page: &Page, at: usize) -> u64 {
    u64::from_le_bytes(load(page, at))
}

/// The number of equal bytes at `here` and at the earlier place `there`.
#[inline(always)]
fn same(page: &Page, mut here: usize, mut there: usize) -> usize {
    let start = here;
    while here <= PAGE_SIZE - 16 {
        let one = u128::from_le_bytes(load(page, here));
        let differing = one ^ u128::from_le_bytes(load(page, there));
        if differing != 0 {
            return here - start + (differing.trailing_zeros() / 8) as usize;
        }
        here += 16;
        there += 16;
    }
    while here < PAGE_SIZE && page[here] == page[there] {
        here += 1;
        there += 1;
    }
    here - start
}

/// The number of zeros from `here` on, at most `limit`.
#[inline(always)]
fn zeros(page: &Page, here: usize, limit: usize) -> usize {
    let end = (here + limit).min(PAGE_SIZE);
    let mut at = here;
    while at + 8 <= end {
        let word = load64(page, at);
        if word != 0 {
            return at - here + (word.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < end && page[at] == 0 {
        at += 1;
    }
    at - here
}

/// The written output.
struct Encoded<'a> {
    bytes: &'a mut [u8; BOUND],
    length: usize,
    /// The byte whose two lowest bits give the number of literals after the last instruction; 0
    /// before the first instruction.
    literals_at: usize,
}

impl Encoded<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.length..self.length + N].copy_from_slice(&bytes);
        self.length += N;
    }

    /// Writes a length that did not fit into its instruction: a zero for each 255, then the rest, 1
    /// to 255.
    #[inline(never)]
    fn put_length(&mut self, mut length: usize) {
        while length > 255 {
            self.put([0]);
            length -= 255;
        }
        self.put([length as u8]);
    }

    /// Writes the literals `page[from..to]`.
    ///
    /// The processor cannot predict their number, so zero to three literals take one path.
    #[inline(always)]
    fn literals(&mut self, page: &Page, from: usize, to: usize) {
        let count = to - from;
        if count <= 3 && self.literals_at != 0 && from + 4 <= PAGE_SIZE {
            self.bytes[self.literals_at] |= count as u8;
            self.overwrite::<4>(load(page, from));
            self.length += count;
            return;
        }
        if count <= 16 && from + 16 <= PAGE_SIZE {
            let token = if self.literals_at == 0 { 17 + count } else { count - 3 };
            self.put([token as u8]);
            self.overwrite::<16>(load(page, from));
            self.length += count;
            return;
        }
        self.any_literals(page, from, to);
    }

    /// Writes many literals, or literals at the end of the page.
    #[inline(never)]
    fn any_literals(&mut self, page: &Page, from: usize, to: usize) {
        let count = to - from;
        if self.literals_at != 0 && count <= 3 {
            self.bytes[self.literals_at] |= count as u8;
        } else if self.literals_at == 0 && count <= 238 {
            self.put([17 + count as u8]);
        } else if count <= 18 {
            self.put([count as u8 - 3]);
        } else {
            self.put([0]);
            self.put_length(count - 18);
        }
        self.bytes[self.length..self.length + count].copy_from_slice(&page[from..to]);
        self.length += count;
    }

    /// Writes bytes without counting them. The caller counts those it wants, and the next write
    /// overwrites the rest.
    #[inline(always)]
    fn overwrite<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.length..self.length + N].copy_from_slice(&bytes);
    }

    /// Writes a copy of `length` bytes, at least 4, from `distance` bytes back.
    #[inline(always)]
    fn copy(&mut self, length: usize, distance: usize) {
        let back = distance as u32 - 1;
        if length <= 33 {
            let short = length as u32;
            // The code makes both forms and takes one, which is faster than a misprediction.
            let near = (short.wrapping_sub(1) << 5 | (back & 7) << 2) & 0xff | back >> 3 << 8;
            let far = 0x20 | (short - 2) | back << 10;
            let is_near = length <= 8 && distance <= 2048;
            let (form, bytes) = if is_near { (near, 2) } else { (far, 3) };
            self.overwrite(form.to_le_bytes());
            self.length += bytes;
        } else {
            self.put([0x20]);
            self.put_length(length - 33);
            self.put(((back << 2) as u16).to_le_bytes());
        }
        self.literals_at = self.length - 2;
    }

    /// Writes a run of 4 to [`LONGEST_RUN`] zeros.
    #[inline(always)]
    fn zeros(&mut self, run: usize) {
        let more = run - SHORTEST_RUN;
        self.literals_at = self.length + 1;
        self.put([0x18 | (more & 7) as u8, 0xfc, 0xff, (more >> 3) as u8]);
    }
}

/// The number of zeros that one instruction can write.
const SHORTEST_RUN: usize = 4;
const LONGEST_RUN: usize = 2047 + SHORTEST_RUN;

/// Shorter runs are written as copies of earlier zeros, which take two or three bytes rather than
/// four. The kernel's codec writes a run from four zeros on: it makes three bytes in a hundred more
/// of a heap, for a few percent less time.
const WORTH_A_RUN: usize = 12;

/// Compresses `page` into the beginning of `into`, and returns the number of bytes.
#[inline]
pub(super) fn compress<const RLE: bool>(
    page: &Page,
    table: &mut Table,
    into: &mut [u8; BOUND],
) -> Option<usize> {
    let table = &mut table.0;
    table.fill(0);
    let mut output = Encoded { bytes: into, length: 0, literals_at: 0 };
    if RLE {
        output.put([17, 1]);
    }
    // The beginning of the literals that are not yet written. The first byte is always a literal:
    // no byte before it can be copied.
    let mut pending = 0;
    let mut here = 1;
    'page: loop {
        let (length, there);
        loop {
            if here > LAST_START {
                break 'page;
            }
            let bytes = load32(page, here);
            if RLE && bytes == 0 {
                let run = zeros(page, here, LONGEST_RUN);
                if run >= WORTH_A_RUN {
                    output.literals(page, pending, here);
                    output.zeros(run);
                    here += run;
                    pending = here;
                    continue;
                }
            }
            let place = &mut table[(bytes.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize];
            let seen = usize::from(*place);
            *place = here as u16;
            if load32(page, seen) == bytes {
                length = 4 + same(page, here + 4, seen + 4);
                there = seen;
                break;
            }
            here += 1 + ((here - pending) >> 5);
        }
        let distance = here - there;
        output.literals(page, pending, here);
        output.copy(length, distance);
        here += length;
        pending = here;
    }
    output.literals(page, pending, PAGE_SIZE);
    output.put([0x11, 0, 0]);
    Some(output.length)
}
