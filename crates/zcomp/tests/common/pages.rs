//! Pages of the kinds that memory holds.

use testkit::Rng;

pub const PAGE_SIZE: usize = 4096;
pub type Page = [u8; PAGE_SIZE];

const WORDS: &[&str] = &[
    "page",
    "frame",
    "slot",
    "zspage",
    "the",
    "of",
    "and",
    "return",
    "self",
    "fn",
    "let",
    "\n    ",
    "{",
    "}",
    " = ",
    "(",
    ");\n",
    "compressed",
    "memory",
    "0x",
    "block",
    "if",
    "else",
    "match",
];

type Make = fn(&mut Rng) -> Page;

/// One page of each kind, then variations of one byte.
pub fn pages(rng: &mut Rng) -> Vec<(&'static str, Page)> {
    let kinds: [(&'static str, Make); 10] = [
        ("zeros", |_| [0; PAGE_SIZE]),
        ("one byte repeated", |rng| [rng.next_u64() as u8; PAGE_SIZE]),
        ("random", random),
        ("text", text),
        ("half random", half_random),
        ("pointers", pointers),
        ("records", records),
        ("sparse", sparse),
        ("short period", short_period),
        ("ends in a run", ends_in_a_run),
    ];
    let mut pages = Vec::new();
    for (name, make) in kinds {
        pages.push((name, make(rng)));
        let mut changed = make(rng);
        changed[rng.below(PAGE_SIZE as u64) as usize] ^= 1 << rng.below(8);
        pages.push((name, changed));
    }
    let mut last = [0; PAGE_SIZE];
    last[PAGE_SIZE - 1] = 1;
    pages.push(("zeros but the last byte", last));
    pages
}

pub fn random(rng: &mut Rng) -> Page {
    let mut page = [0; PAGE_SIZE];
    rng.fill(&mut page);
    page
}

fn text(rng: &mut Rng) -> Page {
    let mut bytes = Vec::new();
    while bytes.len() < PAGE_SIZE {
        bytes.extend_from_slice(rng.pick(WORDS).as_bytes());
        if rng.one_in(2) {
            bytes.push(b' ');
        }
    }
    bytes[..PAGE_SIZE].try_into().unwrap()
}

fn half_random(rng: &mut Rng) -> Page {
    let mut page = text(rng);
    rng.fill(&mut page[PAGE_SIZE / 2..]);
    page
}

/// Words of a heap: addresses close to each other, small numbers, zeros.
fn pointers(rng: &mut Rng) -> Page {
    let heap = 0x7f00_0000_0000 | (rng.next_u64() & 0xff_ffff_f000);
    words(|_| match rng.below(4) {
        0 => 0,
        1 => rng.below(1000),
        _ => heap + rng.below(1 << 20) / 16 * 16,
    })
}

/// An array of structures: a number, a type's address, a length, flags.
fn records(rng: &mut Rng) -> Page {
    let first = rng.below(1 << 40);
    let types = [0x55aa_1234_5678, 0x55aa_1234_9ab0];
    words(|n| match n % 4 {
        0 => first + n as u64,
        1 => *rng.pick(&types),
        2 => rng.below(64),
        _ => u64::from(rng.one_in(9)),
    })
}

fn sparse(rng: &mut Rng) -> Page {
    let mut page = [0; PAGE_SIZE];
    for _ in 0..20 {
        page[rng.below(PAGE_SIZE as u64) as usize] = rng.next_u64() as u8;
    }
    page
}

fn short_period(rng: &mut Rng) -> Page {
    let period = rng.range(2..40) as usize;
    let pattern = random(rng);
    std::array::from_fn(|n| pattern[n % period])
}

fn ends_in_a_run(rng: &mut Rng) -> Page {
    let mut page = random(rng);
    page[rng.below(PAGE_SIZE as u64) as usize..].fill(0xa5);
    page
}

fn words(mut word: impl FnMut(usize) -> u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    for (n, bytes) in page.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(n).to_le_bytes());
    }
    page
}
