//! The contents of a page, as a function of its device, its number and its version. Whoever knows
//! these three knows the page, so no copy of it is kept.
//!
//! Six of sixteen pages are same-filled, seven compress well, three do not compress. The first
//! word, the last one and four between them differ from version to version, so that a page of two
//! versions is never right.

use units::PAGE_SIZE;

use super::versions::{Version, ZEROES};

const WORDS: usize = PAGE_SIZE / 8;
/// Pages that compress, to between a tenth and a half of their size.
const TEMPLATES: usize = 16;
/// Bytes where a page that does not compress may begin.
const NOISE: usize = 1 << 16;

/// What pages are made of.
pub struct Contents {
    templates: Vec<[u8; PAGE_SIZE]>,
    noise: Vec<u8>,
}

/// Mixes 64 bits (Sebastiano Vigna's splitmix64).
const fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Contents {
    /// The same in every process.
    pub fn new() -> Contents {
        let mut random = fastrand::Rng::with_seed(6);
        let mut noise = vec![0; NOISE + PAGE_SIZE];
        random.fill(&mut noise);
        let template = |number: usize| {
            let mut page = [0; PAGE_SIZE];
            // Records of a few random bytes and many that repeat.
            for record in page.chunks_mut(64) {
                record.fill_with(|| b"of the page "[random.usize(..12)]);
                let random_bytes = number * 2 + 4;
                random.fill(&mut record[..random_bytes]);
                record[random_bytes..].sort_unstable();
            }
            page
        };
        Contents { templates: (0..TEMPLATES).map(template).collect(), noise }
    }

    /// Makes the page.
    pub fn fill(&self, device: u32, page: u64, version: Version, into: &mut [u8]) {
        if version == 0 || version & ZEROES != 0 {
            into.fill(0);
            return;
        }
        let mix = mixed(mixed(u64::from(device) << 40 ^ page) ^ u64::from(version));
        match mix & 15 {
            // Never zero: that is the page nobody wrote.
            0..=5 => {
                let word = (mix | 1 << 63).to_le_bytes();
                into.as_chunks_mut::<8>().0.fill(word);
                return;
            }
            6..=12 => into.copy_from_slice(&self.templates[(mix >> 4) as usize % TEMPLATES]),
            _ => {
                let from = (mix >> 8) as usize % NOISE;
                into.copy_from_slice(&self.noise[from..from + PAGE_SIZE]);
            }
        }
        let (words, _) = into.as_chunks_mut::<8>();
        words[0] = mix.to_le_bytes();
        words[WORDS - 1] = (!mix).to_le_bytes();
        for number in 1..5 {
            let at = (mix >> (9 * number)) as usize % WORDS;
            words[at] = mix.rotate_left(number).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(contents: &Contents, device: u32, page: u64, version: Version) -> [u8; PAGE_SIZE] {
        let mut made = [0x55; PAGE_SIZE];
        contents.fill(device, page, version, &mut made);
        made
    }

    #[test]
    fn pages_differ_in_device_number_and_version() {
        let contents = Contents::new();
        let mut seen = std::collections::HashSet::new();
        for device in 0..4 {
            for number in 0..40 {
                for version in 1..20 {
                    let made = page(&contents, device, number, version);
                    assert_eq!(made, page(&Contents::new(), device, number, version));
                    assert!(seen.insert(made), "{device} {number} {version}");
                }
            }
        }
        assert!(!seen.contains(&[0; PAGE_SIZE]));
        assert_eq!(page(&contents, 1, 1, 0), [0; PAGE_SIZE]);
        assert_eq!(page(&contents, 1, 1, 7 | ZEROES), [0; PAGE_SIZE]);
    }

    #[test]
    fn a_page_of_two_versions_is_neither() {
        let contents = Contents::new();
        for number in 0..200 {
            let (old, new) = (page(&contents, 0, number, 1), page(&contents, 0, number, 2));
            for cut in (8..PAGE_SIZE).step_by(8) {
                let mut torn = new;
                torn[cut..].copy_from_slice(&old[cut..]);
                assert!(torn != old && torn != new, "page {number}, cut at {cut}");
            }
        }
    }

    #[test]
    fn all_kinds_of_pages_are_there() {
        let contents = Contents::new();
        let mut same = 0;
        for number in 0..160 {
            let made = page(&contents, 0, number, 1);
            same += u32::from(made.chunks(8).all(|word| word == &made[..8]));
        }
        assert!((20..120).contains(&same), "{same} of 160 pages are same-filled");
    }
}
