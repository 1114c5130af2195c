//! The checksum at the end of the format, computed eight bytes at a time.

use units::Page;

const POLYNOMIAL: u32 = 0x04c1_1db7;

/// The effect of a byte on the checksum, for each number of bytes that follow it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum >> 31 == 1 { sum << 1 ^ POLYNOMIAL } else { sum << 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut after = 1;
    while after < 8 {
        let mut byte = 0;
        while byte < 256 {
            let sum = tables[after - 1][byte];
            tables[after][byte] = sum << 8 ^ tables[0][(sum >> 24) as usize];
            byte += 1;
        }
        after += 1;
    }
    tables
}

/// The checksum of a page.
pub(super) fn checksum(page: &Page) -> u32 {
    let mut sum = 0u32;
    for block in page.as_chunks::<8>().0 {
        let mut block = *block;
        for (byte, old) in block.iter_mut().zip(sum.to_be_bytes()) {
            *byte ^= old;
        }
        sum = 0;
        for (table, byte) in TABLES.iter().rev().zip(block) {
            sum ^= table[usize::from(byte)];
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeros before the text change nothing in a sum that begins with 0. The catalogue of CRCs
    /// knows this one as CRC-32/CKSUM, where it is inverted in the end.
    #[test]
    fn the_check_value_of_the_catalogue() {
        let mut page: Page = [0; 4096];
        page[4096 - 9..].copy_from_slice(b"123456789");
        assert_eq!(!checksum(&page), 0x765e_7680);
    }
}
