//! The decompressor, in safe Rust: it refuses every input that does not fit.

use units::{PAGE_SIZE, Page};

use crate::Corrupt;

/// The input; a read past the end is an error.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    /// The next `N` bytes, if they exist. The position stays.
    #[inline(always)]
    fn next<const N: usize>(&self) -> Option<&[u8; N]> {
        self.bytes.get(self.at..).and_then(<[u8]>::first_chunk)
    }

    #[inline(always)]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let bytes = self.next().copied().ok_or(Corrupt);
        self.at += N;
        bytes
    }

    #[inline(always)]
    fn byte(&mut self) -> Result<usize, Corrupt> {
        let byte = self.bytes.get(self.at).copied().ok_or(Corrupt)?;
        self.at += 1;
        Ok(byte.into())
    }

    /// The part of a length that does not fit in its instruction: 255 for each zero, and the byte
    /// after the zeros.
    #[inline(never)]
    fn length(&mut self) -> Result<usize, Corrupt> {
        let mut length = 0;
        loop {
            match self.byte()? {
                0 => length += 255,
                last => return Ok(length + last),
            }
            if length > PAGE_SIZE {
                return Err(Corrupt);
            }
        }
    }
}

/// The written part of the page.
struct Decoded<'a> {
    page: &'a mut Page,
    at: usize,
}

impl Decoded<'_> {
    #[inline(always)]
    fn literals(&mut self, input: &mut Input<'_>, count: usize) -> Result<(), Corrupt> {
        // Most runs are short. If both sides have room, one copy moves more than needed.
        if count <= 16 {
            let from = input.bytes.get(input.at..).and_then(|rest| rest.first_chunk::<16>());
            let to = self.page.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut::<16>());
            if let (Some(from), Some(to)) = (from, to) {
                *to = *from;
                input.at += count;
                self.at += count;
                return Ok(());
            }
        }
        let from = input.bytes.get(input.at..).and_then(|rest| rest.get(..count)).ok_or(Corrupt)?;
        let to = self.page.get_mut(self.at..).and_then(|rest| rest.get_mut(..count));
        to.ok_or(Corrupt)?.copy_from_slice(from);
        input.at += count;
        self.at += count;
        Ok(())
    }

    /// Copies at most three literals, which follow most instructions. Zero literals take the same
    /// path.
    #[inline(always)]
    fn few_literals(&mut self, input: &mut Input<'_>, count: usize) -> Result<(), Corrupt> {
        let from = input.bytes.get(input.at..).and_then(|rest| rest.first_chunk::<4>());
        let to = self.page.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut::<4>());
        if let (Some(from), Some(to)) = (from, to) {
            *to = *from;
            input.at += count;
            self.at += count;
            return Ok(());
        }
        self.literals(input, count)
    }

    /// Copies `length` bytes, at least 2, from `distance` bytes back.
    #[inline(always)]
    fn copy(&mut self, length: usize, distance: usize) -> Result<(), Corrupt> {
        let from = self.at.checked_sub(distance).ok_or(Corrupt)?;
        let end = self.at + length;
        if end + 8 <= PAGE_SIZE && distance >= 8 {
            let (mut from, mut to) = (from, self.at);
            loop {
                let chunk: [u8; 8] = self.page[from..from + 8].try_into().map_err(|_| Corrupt)?;
                self.page[to..to + 8].copy_from_slice(&chunk);
                from += 8;
                to += 8;
                if to >= end {
                    break;
                }
            }
            self.at = end;
            return Ok(());
        }
        self.copy_slowly(from, end)
    }

    #[inline(never)]
    fn copy_slowly(&mut self, from: usize, end: usize) -> Result<(), Corrupt> {
        let distance = self.at - from;
        if end > PAGE_SIZE {
            return Err(Corrupt);
        }
        // Each copy doubles the length of the next one.
        let mut known = distance;
        while self.at < end {
            let some = known.min(end - self.at);
            self.page.copy_within(from..from + some, self.at);
            self.at += some;
            known += some;
        }
        Ok(())
    }

    fn zeros(&mut self, run: usize) -> Result<(), Corrupt> {
        let to = self.page.get_mut(self.at..).and_then(|rest| rest.get_mut(..run));
        to.ok_or(Corrupt)?.fill(0);
        self.at += run;
        Ok(())
    }
}

/// Decompresses exactly `bytes` to a page.
pub(super) fn decompress(bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
    let mut input = Input { bytes, at: 0 };
    let mut output = Decoded { page, at: 0 };
    let mut runs = false;
    if let [17, version, _, _, _, ..] = bytes {
        runs = match version {
            0 => false,
            1 => true,
            _ => return Err(Corrupt),
        };
        input.at = 2;
    }
    // The number of literals of the last instruction; 4 for more than 3.
    let mut state = 0;
    if let Some(&first) = bytes.get(input.at)
        && first > 17
    {
        input.at += 1;
        let count = usize::from(first) - 17;
        output.literals(&mut input, count)?;
        state = count.min(4);
    }
    loop {
        // Nearly all instructions have one of two forms, in an order that the processor cannot
        // predict. The code reads both forms and takes one. The end marker follows them at least,
        // so four bytes exist.
        if let Some(&[first, second, third, _]) = input.next()
            && first > 32
        {
            let (first, second) = (usize::from(first), usize::from(second));
            // Length, distance less one, bytes of the instruction, literals that follow it.
            let near = ((first >> 5) + 1, second << 3 | first >> 2 & 7, 2, first & 3);
            let far = ((first & 31) + 2, usize::from(third) << 6 | second >> 2, 3, second & 3);
            let (length, back, bytes, count) = if first >= 64 { near } else { far };
            input.at += bytes;
            output.copy(length, back + 1)?;
            output.few_literals(&mut input, count)?;
            state = count;
            continue;
        }
        let instruction = input.byte()?;
        let last;
        if instruction == 32 {
            let length = 33 + input.length()?;
            let distance = usize::from(u16::from_le_bytes(input.take()?));
            output.copy(length, (distance >> 2) + 1)?;
            last = distance;
        } else if instruction > 32 {
            return Err(Corrupt);
        } else if instruction >= 16 {
            if runs && instruction & 8 != 0 {
                let [low, high, more] = input.take()?;
                if low & 0xfc != 0xfc || high != 0xff {
                    return Err(Corrupt);
                }
                output.zeros((usize::from(more) << 3) + (instruction & 7) + 4)?;
                last = usize::from(low);
            } else {
                // This is the end; any other instruction reaches further back than a page is long.
                let whole = instruction == 0x11
                    && input.take()? == [0, 0]
                    && input.at == bytes.len()
                    && output.at == PAGE_SIZE;
                return if whole { Ok(()) } else { Err(Corrupt) };
            }
        } else if state == 0 {
            let count = if instruction > 0 { 3 + instruction } else { 18 + input.length()? };
            output.literals(&mut input, count)?;
            state = 4;
            continue;
        } else {
            let back = (input.byte()? << 2) + (instruction >> 2) + 1;
            if state < 4 {
                output.copy(2, back)?;
            } else {
                output.copy(3, back + 2048)?;
            }
            last = instruction;
        }
        state = last & 3;
        output.few_literals(&mut input, state)?;
    }
}
