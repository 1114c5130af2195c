//! The decompressor. Safe Rust throughout: what does not fit is refused.

use units::{PAGE_SIZE, Page};

use crate::Corrupt;

/// What the bytes are read from; reading past the end is an error.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    #[inline(always)]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let bytes = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        self.at += N;
        bytes.copied().ok_or(Corrupt)
    }

    #[inline(always)]
    fn byte(&mut self) -> Result<usize, Corrupt> {
        let byte = self.bytes.get(self.at).copied().ok_or(Corrupt)?;
        self.at += 1;
        Ok(byte.into())
    }

    /// A length whose bits in the instruction are `bits`; none of them set says that more bytes
    /// follow. `most` is what the bits could say.
    #[inline(always)]
    fn length(&mut self, bits: usize, most: usize) -> Result<usize, Corrupt> {
        if bits != 0 { Ok(bits) } else { self.long_length(most) }
    }

    #[inline(never)]
    fn long_length(&mut self, most: usize) -> Result<usize, Corrupt> {
        let mut length = most;
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

/// The page as far as it is written.
struct Output<'a> {
    page: &'a mut Page,
    at: usize,
}

impl Output<'_> {
    #[inline(always)]
    fn literals(&mut self, input: &mut Input<'_>, count: usize) -> Result<(), Corrupt> {
        // Most runs are short: more than is wanted, in one go, where both sides have the room.
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

    #[inline(always)]
    fn copy(&mut self, length: usize, distance: usize) -> Result<(), Corrupt> {
        let from = self.at.checked_sub(distance).ok_or(Corrupt)?;
        let end = self.at + length;
        if end + 32 <= PAGE_SIZE && distance >= 8 {
            let (mut from, mut to) = (from, self.at);
            while to < end {
                let chunk: [u8; 8] = self.page[from..from + 8].try_into().map_err(|_| Corrupt)?;
                self.page[to..to + 8].copy_from_slice(&chunk);
                from += 8;
                to += 8;
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
        // What was copied doubles what can be copied at once.
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

/// How many literals the last instruction brought.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    None,
    Few,
    Many,
}

/// Decompresses exactly `bytes` to a page.
pub(super) fn decompress(bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
    let mut input = Input { bytes, at: 0 };
    let mut output = Output { page, at: 0 };
    let mut runs = false;
    if let [17, version, _, _, _, ..] = bytes {
        runs = match version {
            0 => false,
            1 => true,
            _ => return Err(Corrupt),
        };
        input.at = 2;
    }
    let mut before = Before::None;
    if let Some(&first) = bytes.get(input.at)
        && first > 17
    {
        input.at += 1;
        let count = usize::from(first) - 17;
        output.literals(&mut input, count)?;
        before = if count < 4 { Before::Few } else { Before::Many };
    }
    loop {
        let instruction = input.byte()?;
        let last;
        if instruction >= 64 {
            let high = input.byte()?;
            let distance = (high << 3) + (instruction >> 2 & 7) + 1;
            output.copy((instruction >> 5) + 1, distance)?;
            last = instruction;
        } else if instruction >= 32 {
            let length = 2 + input.length(instruction & 31, 31)?;
            let distance = usize::from(u16::from_le_bytes(input.take()?));
            output.copy(length, (distance >> 2) + 1)?;
            last = distance;
        } else if instruction >= 16 {
            if runs && instruction & 8 != 0 {
                let [low, high, more] = input.take()?;
                if low & 0xfc != 0xfc || high != 0xff {
                    return Err(Corrupt);
                }
                output.zeros((usize::from(more) << 3) + (instruction & 7) + 4)?;
                last = usize::from(low);
            } else {
                // Anything else is from further back than a page is long, or the end.
                let whole = instruction == 0x11
                    && input.take()? == [0, 0]
                    && input.at == bytes.len()
                    && output.at == PAGE_SIZE;
                return if whole { Ok(()) } else { Err(Corrupt) };
            }
        } else if before == Before::None {
            let count = 3 + input.length(instruction, 15)?;
            output.literals(&mut input, count)?;
            before = Before::Many;
            continue;
        } else {
            let back = (input.byte()? << 2) + (instruction >> 2) + 1;
            if before == Before::Few {
                output.copy(2, back)?;
            } else {
                output.copy(3, back + 2048)?;
            }
            last = instruction;
        }
        let count = last & 3;
        before = if count == 0 { Before::None } else { Before::Few };
        if count > 0 {
            output.literals(&mut input, count)?;
        }
    }
}
