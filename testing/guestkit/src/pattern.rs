//! The contents of a page: a function of a seed, the page's number and the pass. So a check needs
//! no memory except the page itself.

/// 64-bit words of a page.
pub const WORDS: usize = 512;

/// A page.
pub type Page = [u64; WORDS];

/// How well a page compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The same eight bytes, repeated.
    SameFilled,
    /// Random bytes, which do not shrink.
    Random,
    /// One half is random.
    Half,
    /// A fifth is random.
    Fifth,
}

/// Mixes the bits of `x`: the first number of the generator with that seed.
#[must_use]
pub fn mix(x: u64) -> u64 {
    fastrand::Rng::with_seed(x).u64(..)
}

/// The kind of page `number`. Of eight pages one is same-filled, one is random, four compress to a
/// half and two to a fifth.
#[must_use]
pub fn kind(seed: u64, number: u64) -> Kind {
    match mix(number ^ seed) % 8 {
        0 => Kind::SameFilled,
        1 => Kind::Random,
        2..=5 => Kind::Half,
        _ => Kind::Fifth,
    }
}

/// Writes the contents of page `number` after pass `pass`. Pass 0 is the first fill.
pub fn fill(page: &mut Page, seed: u64, number: u64, pass: u64) {
    let hash = mix(seed ^ mix(number.wrapping_mul(0x0100_0193).wrapping_add(pass)));
    let random = match kind(seed, number) {
        Kind::SameFilled => return page.fill(hash),
        Kind::Random => WORDS,
        Kind::Half => WORDS / 2,
        Kind::Fifth => 96,
    };
    page[0] = number;
    page[1] = pass;
    let mut numbers = fastrand::Rng::with_seed(hash);
    for word in &mut page[2..random] {
        *word = numbers.u64(..);
    }
    for (at, word) in page.iter_mut().enumerate().skip(random) {
        *word = hash.wrapping_add(at as u64 & 7);
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Page, WORDS, fill, kind};

    fn page(seed: u64, number: u64, pass: u64) -> Page {
        let mut page = [0; WORDS];
        fill(&mut page, seed, number, pass);
        page
    }

    #[test]
    fn pages_differ_by_seed_number_and_pass() {
        assert_eq!(page(1, 2, 3), page(1, 2, 3));
        for number in 0..64 {
            let one = page(1, number, 0);
            assert_ne!(one, page(2, number, 0), "page {number}");
            assert_ne!(one, page(1, number + 1, 0), "page {number}");
            assert_ne!(one, page(1, number, 1), "page {number}");
        }
    }

    #[test]
    fn kinds_come_in_their_shares_and_stay() {
        let mut count = [0; 4];
        for number in 0..8000 {
            count[kind(7, number) as usize] += 1;
        }
        assert!((850..1150).contains(&count[0]), "{count:?}");
        assert!((850..1150).contains(&count[1]), "{count:?}");
        assert!((3700..4300).contains(&count[2]), "{count:?}");
        assert!((1800..2200).contains(&count[3]), "{count:?}");
    }

    #[test]
    fn kinds_hold_what_they_say() {
        let distinct = |wanted: Kind| {
            let number = (0..).find(|number| kind(1, *number) == wanted).unwrap();
            let mut words = page(1, number, 5).to_vec();
            words.sort_unstable();
            words.dedup();
            words.len()
        };
        assert_eq!(distinct(Kind::SameFilled), 1);
        assert_eq!(distinct(Kind::Random), 512);
        assert_eq!(distinct(Kind::Half), 256 + 8);
        assert_eq!(distinct(Kind::Fifth), 96 + 8);
    }
}
