//! The targets that feed decoders. One feeds all codecs at once. The others feed one family each,
//! so that a fuzzer that has learnt one format spends no time on the others.

use std::cell::RefCell;
use std::sync::Arc;

use units::{PAGE_SIZE, Page};
use zcomp::{
    Compressor, Context, DEFLATE, Deflate, EIGHT42, EXTENT_PAGES, Eight42, LZ4, LZ4HC, LZO,
    LZO_RLE, Lz4, Lz4hc, Lzo, LzoRle, Packer, Params, ZSTD, Zstd,
};

/// A codec with a context of this thread.
struct Codec {
    compressor: Box<dyn Compressor>,
    context: Box<dyn Context>,
}

thread_local! {
    static PACKER: RefCell<(Box<dyn Packer>, Box<dyn Context>)> = RefCell::new(packer());
    static CODECS: RefCell<Vec<Codec>> = RefCell::new(codecs());
}

/// Text that pages of these targets are likely to contain.
const DICTIONARY: &[u8] = b".owner = THIS_MODULE, static const struct block_device_operations";

/// Every codec, and again with a dictionary if the codec takes one.
fn codecs() -> Vec<Codec> {
    let plain = &Params::default();
    let fast = &Params::at_level(-5);
    let helped = &Params { dictionary: Some(Arc::from(DICTIONARY)), ..Params::default() };
    const GOOD: &str = "good parameters";
    let compressors: [Box<dyn Compressor>; 11] = [
        Box::new(LzoRle::new(plain).expect(GOOD)),
        Box::new(Lzo::new(plain).expect(GOOD)),
        Box::new(Lz4::new(plain).expect(GOOD)),
        Box::new(Lz4::new(helped).expect(GOOD)),
        Box::new(Lz4hc::new(plain).expect(GOOD)),
        Box::new(Lz4hc::new(helped).expect(GOOD)),
        Box::new(Zstd::new(plain).expect(GOOD)),
        Box::new(Zstd::new(fast).expect(GOOD)),
        Box::new(Zstd::new(helped).expect(GOOD)),
        Box::new(Deflate::new(plain).expect(GOOD)),
        Box::new(Eight42::new(plain).expect(GOOD)),
    ];
    let ready = |compressor: Box<dyn Compressor>| {
        let context = compressor.context().expect("memory for a context");
        Codec { compressor, context }
    };
    compressors.into_iter().map(ready).collect()
}

/// What packs pages, and what reads them.
fn packer() -> (Box<dyn Packer>, Box<dyn Context>) {
    let zstd = Zstd::new(&Params::default()).expect("good parameters");
    let packer = zstd.packer().expect("memory for a packer").expect("zstd packs pages");
    (packer, zstd.context().expect("memory for a context"))
}

/// Runs `work` on each codec with one of these names.
fn each(names: &[&str], mut work: impl FnMut(&mut Codec)) {
    CODECS.with_borrow_mut(|codecs| {
        let named = |codec: &&mut Codec| names.contains(&codec.compressor.name());
        codecs.iter_mut().filter(named).for_each(&mut work);
    });
}

const ALL: &[&str] = &[LZO_RLE, LZO, LZ4, LZ4HC, ZSTD, DEFLATE, EIGHT42];
const LZO_FAMILY: &[&str] = &[LZO_RLE, LZO];
const LZ4_FAMILY: &[&str] = &[LZ4, LZ4HC];

/// Gives the bytes to each decoder as compressed data, and to one codec as a page to compress.
///
/// Garbage must give an error. A page must come back unchanged, even if the buffer for its
/// compressed form was small.
pub fn decompress(input: &[u8]) {
    each(ALL, |codec| decode(codec, input));
    // The sum of the bytes chooses the codec, because a compression takes much longer than a
    // refusal of garbage.
    let sum = input.iter().map(|byte| usize::from(*byte)).sum::<usize>();
    CODECS.with_borrow_mut(|codecs| {
        let chosen = sum % codecs.len().max(1);
        if let Some(codec) = codecs.get_mut(chosen) {
            there_and_back(codec, input);
        }
    });
}

/// Gives the bytes to lzo and lzo-rle, which read one format.
pub fn decompress_lzo(input: &[u8]) {
    each(LZO_FAMILY, |codec| decode(codec, input));
}

/// Gives the bytes to lz4 and lz4hc, with a dictionary and without.
pub fn decompress_lz4(input: &[u8]) {
    each(LZ4_FAMILY, |codec| decode(codec, input));
}

/// Gives the bytes to zstd, with a dictionary and without: as a page, and as each page of extents.
pub fn decompress_zstd(input: &[u8]) {
    each(&[ZSTD], |codec| {
        decode(codec, input);
        decode_parts(codec, input);
    });
}

/// Decompresses each page of extents of every length, over different contents. The result must be
/// the same, and that of an extent of one page must be the page.
fn decode_parts(Codec { context, .. }: &mut Codec, input: &[u8]) {
    for count in 1..=EXTENT_PAGES {
        for part in 0..count {
            let mut read = |fill| {
                let mut page = [fill; PAGE_SIZE];
                context.decompress_part(input, (part, count), &mut page).map(|()| page)
            };
            let (first, second) = (read(0), read(0xff));
            assert!(first == second, "page {part} of {count}: not always the same result");
            let mut alone = [0; PAGE_SIZE];
            if let (1, Ok(page)) = (count, first)
                && context.decompress(input, &mut alone).is_ok()
            {
                assert!(alone == page, "an extent of one page is not that page");
            }
        }
    }
}

/// Packs pages that repeat the bytes here and there, and then the first of them. Each page must
/// come out of the extents as it was.
pub fn pack_pages(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else { return };
    let step = usize::from(first);
    let byte = |at: usize| rest.get((at + at / 97 * step) % rest.len().max(1)).copied();
    let pages: Vec<u8> =
        (0..EXTENT_PAGES * PAGE_SIZE).map(|at| byte(at).unwrap_or_default()).collect();
    PACKER.with_borrow_mut(|(packer, context)| {
        let mut room = vec![0; 2 * pages.len()];
        for count in [EXTENT_PAGES, 1 + step % EXTENT_PAGES] {
            let packed = &pages[..count * PAGE_SIZE];
            let length = packer.compress(packed, &mut room).expect("there is room");
            for (part, before) in packed.chunks(PAGE_SIZE).enumerate() {
                let mut page = [0; PAGE_SIZE];
                let read = context.decompress_part(&room[..length], (part, count), &mut page);
                assert!(read.is_ok() && page == before, "page {part} of {count}");
            }
        }
    });
}

/// Gives the bytes to deflate.
pub fn decompress_deflate(input: &[u8]) {
    each(&[DEFLATE], |codec| decode(codec, input));
}

/// Gives the bytes to 842.
pub fn decompress_842(input: &[u8]) {
    each(&[EIGHT42], |codec| decode(codec, input));
}

/// Decompresses over different contents, with and without state. The result must be the same, and
/// the bytes around the page must stay unchanged.
fn decode(Codec { compressor, context }: &mut Codec, input: &[u8]) {
    let name = compressor.name();
    let mut seen: Option<Result<Page, zcomp::Corrupt>> = None;
    for (fill, bare) in [(0x00, false), (0xff, false), (0x5a, true)] {
        let mut memory = [0xa5; 3 * PAGE_SIZE];
        let (before, rest) = memory.split_at_mut(PAGE_SIZE);
        let (page, after) = rest.split_first_chunk_mut::<PAGE_SIZE>().expect("two pages");
        page.fill(fill);
        let result = match bare {
            false => context.decompress(input, page),
            true => match compressor.decompress_bare(input, page) {
                Some(result) => result,
                None => continue,
            },
        };
        let result = result.map(|()| *page);
        let outside = before.iter().chain(&*after).all(|byte| *byte == 0xa5);
        assert!(outside, "{name}: wrote outside of the page");
        if let Some(seen) = &seen {
            assert!(*seen == result, "{name}: not always the same result");
        }
        seen = Some(result);
    }
}

/// Compresses a page made of `input` into a large and into a small buffer, and decompresses it.
fn there_and_back(Codec { compressor, context }: &mut Codec, input: &[u8]) {
    let name = compressor.name();
    let original = page_of(input);
    let mut page = [0; PAGE_SIZE];
    let mut room = [0; PAGE_SIZE + 512];
    // A codec must refuse a short buffer or stay within it. The bytes behind it must stay
    // unchanged.
    let short = input.len() % PAGE_SIZE;
    for length in [room.len(), short] {
        room.fill(0xa5);
        if let Some(written) = context.compress(&original, &mut room[..length]) {
            assert!(written <= length, "{name}: {written} bytes in {length}");
            let result = context.decompress(&room[..written], &mut page);
            assert!(result.is_ok() && page == original, "{name}: a different page");
        }
        assert!(room[length..].iter().all(|byte| *byte == 0xa5), "{name}: past the room");
    }
}

/// A page that repeats the input.
fn page_of(input: &[u8]) -> Page {
    let mut page = [0; PAGE_SIZE];
    if !input.is_empty() {
        for (byte, from) in page.iter_mut().zip(input.iter().cycle()) {
            *byte = *from;
        }
    }
    page
}

/// The compressed forms of some pages by these codecs.
fn made_by(names: &[&str]) -> Vec<Vec<u8>> {
    let text = page_of(b"static const struct block_device_operations zram_devops = {\n\t.owner");
    let mut counts = [0; PAGE_SIZE];
    for (index, byte) in counts.iter_mut().enumerate() {
        *byte = (index * index / 7) as u8;
    }
    let mut numbers = [0; PAGE_SIZE];
    for (index, place) in numbers.chunks_exact_mut(8).enumerate() {
        place[..3].copy_from_slice(&[index as u8, (index % 5) as u8, 7]);
    }
    let mut half = text;
    half[PAGE_SIZE / 2..].fill(0);
    let mut seeds = Vec::new();
    for page in [text, counts, numbers, half] {
        each(names, |codec| {
            let mut room = [0; PAGE_SIZE + 512];
            if let Some(length) = codec.context.compress(&page, &mut room) {
                seeds.push(room[..length].to_vec());
            }
        });
    }
    seeds
}

/// Seeds for all codecs.
pub fn seeds() -> Vec<Vec<u8>> {
    made_by(ALL)
}

/// Seeds for [`decompress_lzo`].
pub fn lzo_seeds() -> Vec<Vec<u8>> {
    made_by(LZO_FAMILY)
}

/// Seeds for [`decompress_lz4`].
pub fn lz4_seeds() -> Vec<Vec<u8>> {
    made_by(LZ4_FAMILY)
}

/// Seeds for [`decompress_zstd`].
pub fn zstd_seeds() -> Vec<Vec<u8>> {
    let mut seeds = made_by(&[ZSTD]);
    let pages: Vec<u8> =
        (0..EXTENT_PAGES * PAGE_SIZE).map(|at| (at / 700 * at % 251) as u8).collect();
    each(&[ZSTD], |codec| {
        let mut packer = codec.compressor.packer().expect("memory").expect("zstd packs pages");
        for count in 2..=EXTENT_PAGES {
            let mut room = [0; PAGE_SIZE];
            if let Some(length) = packer.compress(&pages[..count * PAGE_SIZE], &mut room) {
                seeds.push(room[..length].to_vec());
            }
        }
    });
    seeds
}

/// Seeds for [`decompress_deflate`].
pub fn deflate_seeds() -> Vec<Vec<u8>> {
    made_by(&[DEFLATE])
}

/// Seeds for [`decompress_842`].
pub fn seeds_842() -> Vec<Vec<u8>> {
    made_by(&[EIGHT42])
}
