//! What every codec must do. Each check gives the reason why it failed, so that the tests can also
//! see to it that a wrong codec is refused for the right one.

use std::cell::RefCell;

use testkit::Rng;
use zcomp::{Compressor, Context, Corrupt};

use super::guard::Fenced;
use super::pages::{PAGE_SIZE, Page, pages, random};

type Verdict = Result<(), String>;

/// More than any codec needs: what a stream offers.
const ROOMY: usize = 2 * PAGE_SIZE;
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xc3;

macro_rules! require {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err(format!($($reason)+));
        }
    };
}

/// Runs every check on `codec` with pages made from `seed`.
pub fn conforms(codec: &dyn Compressor, seed: u64) -> Verdict {
    let rng = &mut Rng::new(seed);
    let pages = pages(rng);
    let context = &mut *codec.context().map_err(|error| error.to_string())?;
    for (kind, page) in &pages {
        let of_kind = |verdict: Verdict| verdict.map_err(|reason| format!("{kind}: {reason}"));
        of_kind(round_trip(codec, context, page))?;
        of_kind(tight_room(context, page, rng))?;
        of_kind(damaged(codec, context, page, rng))?;
    }
    junk(codec, context, rng)?;
    keeps_no_memory(codec, &pages, rng)?;
    from_many_threads(codec, &pages)
}

/// Compresses with plenty of room.
pub fn compress(context: &mut dyn Context, page: &Page) -> Result<Vec<u8>, String> {
    let mut into = vec![0; ROOMY];
    let length = context.compress(page, &mut into).ok_or("two pages of room are not enough")?;
    require!(length <= ROOMY, "says it wrote {length} bytes to {ROOMY}");
    require!(length > 0, "says a page takes no bytes");
    into.truncate(length);
    Ok(into)
}

/// A page between guards, full of `fill`.
struct Guarded {
    bytes: Vec<u8>,
}

impl Guarded {
    fn new(length: usize, fill: u8) -> Guarded {
        let mut bytes = vec![GUARD_BYTE; GUARD + length + GUARD];
        bytes[GUARD..GUARD + length].fill(fill);
        Guarded { bytes }
    }

    fn inside(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - GUARD;
        &mut self.bytes[GUARD..end]
    }

    fn intact(&self) -> Verdict {
        let (before, rest) = self.bytes.split_at(GUARD);
        let after = &rest[rest.len() - GUARD..];
        let whole = before.iter().chain(after).all(|&byte| byte == GUARD_BYTE);
        require!(whole, "wrote outside the buffer");
        Ok(())
    }
}

thread_local! {
    static FENCED: RefCell<(Fenced, Fenced)> = RefCell::new((Fenced::new(), Fenced::new()));
}

/// Decompresses twice, over different contents, with and without state, and expects to see the
/// same. The input ends, and the page begins or ends, where memory that can be touched does.
pub fn decompress(
    codec: &dyn Compressor,
    context: &mut dyn Context,
    bytes: &[u8],
) -> Result<Result<Page, Corrupt>, String> {
    FENCED.with_borrow_mut(|(input, target)| {
        let bytes = input.holding(bytes);
        let mut seen: Option<Result<Page, Corrupt>> = None;
        for (fill, bare) in [(0x00, false), (0xff, false), (0x00, true), (0xff, true)] {
            let page = target.page(fill == 0);
            page.fill(fill);
            let result = if bare {
                match codec.decompress_bare(bytes, page) {
                    Some(result) => result,
                    None => continue,
                }
            } else {
                context.decompress(bytes, page)
            };
            let result = result.map(|()| *page);
            match &seen {
                None => seen = Some(result),
                Some(first) => require!(
                    *first == result,
                    "accepted bytes that make part of a page, or not always the same page"
                ),
            }
        }
        seen.ok_or_else(|| "never decompressed".into())
    })
}

fn round_trip(codec: &dyn Compressor, context: &mut dyn Context, page: &Page) -> Verdict {
    let bytes = compress(context, page)?;
    require!(decompress(codec, context, &bytes)? == Ok(*page), "does not come back");
    require!(compress(context, page)? == bytes, "compresses differently the second time");
    Ok(())
}

fn tight_room(context: &mut dyn Context, page: &Page, rng: &mut Rng) -> Verdict {
    let bytes = compress(context, page)?;
    let needed = bytes.len();
    let mut room = vec![needed, needed - 1, 0, needed / 2];
    room.extend((0..8).map(|_| rng.below(needed as u64) as usize));
    for room in room {
        let mut target = Guarded::new(room, 0);
        let length = context.compress(page, target.inside());
        target.intact()?;
        if room == needed {
            require!(length == Some(needed), "does not fit into the {needed} bytes it takes");
            require!(*target.inside() == *bytes, "compresses differently into tight room");
        } else {
            require!(length.is_none(), "says {needed} bytes fit into {room}");
        }
    }
    Ok(())
}

fn damaged(
    codec: &dyn Compressor,
    context: &mut dyn Context,
    page: &Page,
    rng: &mut Rng,
) -> Verdict {
    let bytes = compress(context, page)?;
    let mut lengths = vec![0, bytes.len() - 1];
    lengths.extend((0..24).map(|_| rng.below(bytes.len() as u64) as usize));
    for length in lengths {
        let result = decompress(codec, context, &bytes[..length])?;
        require!(result == Err(Corrupt), "accepted {length} of {} bytes", bytes.len());
    }
    for more in [&[0][..], &[0; 8], &bytes] {
        let result = decompress(codec, context, &[&bytes, more].concat())?;
        require!(result == Err(Corrupt), "accepted {} bytes too many", more.len());
    }
    for _ in 0..48 {
        let mut damaged = bytes.clone();
        for _ in 0..rng.range(1..4) {
            let at = rng.below(damaged.len() as u64) as usize;
            damaged[at] ^= 1 << rng.below(8);
        }
        // Another page may come of it; none of these formats has a checksum.
        let _ = decompress(codec, context, &damaged)?;
    }
    // What happened last must not matter.
    require!(decompress(codec, context, &bytes)? == Ok(*page), "does not come back after damage");
    Ok(())
}

/// Bytes that no compressor made.
fn junk(codec: &dyn Compressor, context: &mut dyn Context, rng: &mut Rng) -> Verdict {
    for round in 0..400 {
        let noise = random(rng);
        let mut junk = noise[..rng.below(PAGE_SIZE as u64) as usize].to_vec();
        if round % 2 == 0 {
            // Mostly small numbers, which headers and lengths are made of.
            junk.iter_mut().for_each(|byte| *byte &= *rng.pick(&[0x0f, 0x03, 0x11, 0xff]));
        }
        let _ = decompress(codec, context, &junk)?;
    }
    for byte in [0x00, 0x01, 0xf0, 0xff] {
        for length in [1, 2, 3, 17, 64, PAGE_SIZE, ROOMY] {
            let _ = decompress(codec, context, &vec![byte; length])?;
        }
    }
    Ok(())
}

/// What a context did before does not change what it does now, and contexts know nothing of each
/// other.
fn keeps_no_memory(codec: &dyn Compressor, pages: &[(&str, Page)], rng: &mut Rng) -> Verdict {
    let make = || codec.context().map_err(|error| error.to_string());
    let (mut one, mut other) = (make()?, make()?);
    for _ in 0..64 {
        let (_, first) = rng.pick(pages);
        let (kind, second) = rng.pick(pages);
        let before = compress(&mut *one, first)?;
        let here = compress(&mut *one, second)?;
        let elsewhere = compress(&mut *other, second)?;
        let fresh = compress(&mut *make()?, second)?;
        require!(
            here == fresh && elsewhere == fresh,
            "{kind}: what a context compressed before shows"
        );
        let back = decompress(codec, &mut *other, &before)?;
        require!(back == Ok(*first), "one context does not read what another wrote");
    }
    Ok(())
}

fn from_many_threads(codec: &dyn Compressor, pages: &[(&str, Page)]) -> Verdict {
    let mut context = codec.context().map_err(|error| error.to_string())?;
    let expected: Vec<Vec<u8>> =
        pages.iter().map(|(_, page)| compress(&mut *context, page)).collect::<Result<_, _>>()?;
    let expected = &expected;
    // Contexts are made here and used there, as streams are.
    let contexts: Vec<_> = (0..4)
        .map(|_| codec.context().map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        let work = |(thread, mut context): (usize, Box<dyn Context>)| {
            scope.spawn(move || -> Verdict {
                for n in 0..2 * pages.len() {
                    let n = (n + thread * 3) % pages.len();
                    let (kind, page) = &pages[n];
                    let bytes = compress(&mut *context, page)?;
                    require!(bytes == expected[n], "{kind}: threads disturb each other");
                    let back = decompress(codec, &mut *context, &bytes)?;
                    require!(back == Ok(*page), "{kind}: threads disturb each other");
                }
                Ok(())
            })
        };
        let threads: Vec<_> = contexts.into_iter().enumerate().map(work).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "panicked")?)
    })
}
