//! lzo and lzo-rle: which instructions are written and read, and what liblzo2's program makes of
//! them.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::pages::{PAGE_SIZE, Page, pages, random};
use common::reference::{self, Met};
use common::suite::{compress, decompress};
use testkit::{Need, Rng, TempDir};
use zcomp::{Compressor, Corrupt, Lzo, LzoRle, Params};

fn codecs() -> [Box<dyn Compressor>; 2] {
    let params = Params::default();
    [Box::new(Lzo::new(&params).unwrap()), Box::new(LzoRle::new(&params).unwrap())]
}

/// Compresses, lets the reference read it, and tells which instructions it met.
fn written(codec: &dyn Compressor, page: &Page) -> (Vec<u8>, Met) {
    let bytes = compress(&mut *codec.context().unwrap(), page).unwrap();
    let (back, met) = reference::lzo(&bytes).expect("a stream");
    assert!(back == page, "{}", codec.name());
    (bytes, met)
}

/// Copies of each length from each distance, at each edge of an instruction's range. Between some
/// bytes and their copy stands a run, so that nothing else is found. Nothing here is random: the
/// table may forget anything by a collision.
#[test]
fn copies_are_written_in_the_shortest_form() {
    let first: [u8; 32] = std::array::from_fn(|n| 128 + n as u8 * 4);
    for codec in codecs() {
        for distance in [128, 1024, 2047, 2048, 2049, 3000, 4000] {
            for (length, near) in
                [(4, "3-4 from 2 kB"), (5, "5-8 from 2 kB"), (8, "5-8 from 2 kB"), (9, "copy")]
            {
                let mut page = [b'.'; PAGE_SIZE];
                page[..32].copy_from_slice(&first);
                page[distance..distance + length].copy_from_slice(&first[..length]);
                page[distance + length..].fill(b',');
                let form = if distance > 2048 { "copy" } else { near };
                let (_, met) = written(&*codec, &page);
                assert_eq!(met.get(form), Some(&1), "{length} from {distance}: {met:?}");
            }
        }
    }
}

/// Runs of one byte, which are copies from the byte before, of every length, beginning and ending
/// everywhere.
#[test]
fn runs_of_every_length_come_back() {
    let mut rng = Rng::new(testkit::seed("runs_of_every_length_come_back"));
    for codec in codecs() {
        let mut context = codec.context().unwrap();
        for byte in [0, 0xa5] {
            for length in (0..300).chain((300..PAGE_SIZE).step_by(37)).chain([4095, 4096]) {
                for start in [0, 1, 3, 4, 17, PAGE_SIZE - length] {
                    let mut page = random(&mut rng);
                    let end = PAGE_SIZE.min(start + length);
                    page[start..end].fill(byte);
                    let bytes = compress(&mut *context, &page).unwrap();
                    let back = decompress(&*codec, &mut *context, &bytes).unwrap();
                    assert!(back == Ok(page), "{}: {length} at {start}", codec.name());
                    assert!(reference::lzo(&bytes).is_some_and(|(back, _)| back == page));
                }
            }
        }
    }
}

/// Literals of every number, between copies.
#[test]
fn literals_of_every_number_come_back() {
    let mut rng = Rng::new(testkit::seed("literals_of_every_number_come_back"));
    for codec in codecs() {
        let mut context = codec.context().unwrap();
        for first in (0..50).chain([236, 237, 238, 239, 240, 254, 255, 256, 272, 273, 274, 600]) {
            for between in [0, 1, 2, 3, 4, 15, 16, 17, 18, 19, 20, 272, 273, 274, 528, 529] {
                let mut page = random(&mut rng);
                let old: [u8; 32] = page[..32].try_into().unwrap();
                let second = 40 + first;
                page[second..second + 32].copy_from_slice(&old);
                let third = second + 32 + between;
                page[third..third + 32].copy_from_slice(&old);
                let bytes = compress(&mut *context, &page).unwrap();
                let back = decompress(&*codec, &mut *context, &bytes).unwrap();
                assert!(back == Ok(page), "{}: {first} and {between}", codec.name());
                assert!(reference::lzo(&bytes).is_some_and(|(back, _)| back == page));
            }
        }
    }
}

/// Literals and zeros in turns, which is what grows most: not much, and never beyond the room.
#[test]
fn literals_and_zeros_in_turns_hardly_grow() {
    let mut rng = Rng::new(testkit::seed("literals_and_zeros_in_turns_hardly_grow"));
    for codec in codecs() {
        let mut context = codec.context().unwrap();
        for literals in 1..24 {
            for zeros in (1..24).chain([33, 34, 300]) {
                let mut page = random(&mut rng).map(|byte| byte | 1);
                for part in page.chunks_mut(literals + zeros) {
                    let start = literals.min(part.len());
                    part[start..].fill(0);
                }
                let bytes = compress(&mut *context, &page).unwrap();
                assert!(bytes.len() < PAGE_SIZE + 40, "{literals}, {zeros}: {}", bytes.len());
                let back = decompress(&*codec, &mut *context, &bytes).unwrap();
                assert!(back == Ok(page), "{}: {literals} and {zeros}", codec.name());
                assert!(reference::lzo(&bytes).is_some_and(|(back, _)| back == page));
            }
        }
    }
}

#[test]
fn only_lzo_rle_has_a_version_and_runs_of_zeros() {
    let mut rng = Rng::new(testkit::seed("only_lzo_rle_has_a_version_and_runs_of_zeros"));
    let [lzo, rle] = codecs();
    let mut seen = [Met::new(), Met::new()];
    for (_, page) in pages(&mut rng) {
        for (codec, seen) in [&lzo, &rle].into_iter().zip(&mut seen) {
            let (bytes, met) = written(&**codec, &page);
            assert_eq!(bytes[0] == 17, codec.name() == zcomp::LZO_RLE);
            if bytes[0] == 17 {
                assert_eq!(bytes[1], 1);
            }
            for (name, count) in met {
                *seen.entry(name).or_default() += count;
            }
        }
    }
    // What a compressor of this kind writes; the rest is for those that look further.
    let both = [
        "first, few",
        "first, many",
        "run",
        "long run",
        "5-8 from 2 kB",
        "3-4 from 2 kB",
        "copy",
        "long copy",
        "end",
    ];
    for (seen, more) in seen.iter().zip([&[][..], &["zeros"]]) {
        let mut wanted: Vec<_> = both.iter().chain(more).copied().collect();
        let mut seen: Vec<_> = seen.keys().map(String::as_str).collect();
        wanted.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, wanted);
    }
}

/// Both read both versions, because the stream says which it is.
#[test]
fn each_reads_the_other() {
    let mut rng = Rng::new(testkit::seed("each_reads_the_other"));
    let [lzo, rle] = codecs();
    for (kind, page) in pages(&mut rng) {
        for (writer, reader) in [(&lzo, &rle), (&rle, &lzo)] {
            let bytes = compress(&mut *writer.context().unwrap(), &page).unwrap();
            let back = decompress(&**reader, &mut *reader.context().unwrap(), &bytes).unwrap();
            assert!(back == Ok(page), "{kind}");
        }
    }
}

/// A page by hand: every instruction there is.
fn by_hand(version: bool) -> (Vec<u8>, Vec<u8>) {
    let mut stream: Vec<u8> = if version { vec![17, 1] } else { vec![] };
    let mut page: Vec<u8> = (1..=5).collect();
    // Five literals, and three more bytes: only from 2049 bytes back and further.
    stream.extend([17 + 5, 1, 2, 3, 4, 5]);
    // A long copy from one byte back, 2500 bytes, then two literals.
    stream.push(32);
    let more = 2500 - 33;
    stream.extend(vec![0; more / 255]);
    stream.extend([(more % 255) as u8, 2, 0, 6, 7]);
    page.extend([5; 2500]);
    page.extend([6, 7]);
    // Two bytes from two back, then nothing.
    stream.extend([1 << 2, 0]);
    page.extend([6, 7]);
    // Four literals, then three bytes from 2049 + 2 back, then one literal.
    stream.extend([1, 8, 9, 10, 11, 2 << 2 | 1, 0, 12]);
    page.extend([8, 9, 10, 11]);
    page.extend_from_within(page.len() - 2051..page.len() - 2048);
    page.push(12);
    // Three from 1, four from 2048, five from 9, eight from 2, each with its literals.
    stream.extend([64, 0, 64 | 32 | 7 << 2 | 1, 255, 13]);
    page.extend([12; 3]);
    page.extend_from_within(page.len() - 2048..page.len() - 2044);
    page.push(13);
    stream.extend([128 | 2, 1, 14, 15, 0xe0 | 1 << 2 | 3, 0, 16, 17, 18]);
    page.extend_from_within(page.len() - 9..page.len() - 4);
    page.extend([14, 15]);
    page.extend([14, 15, 14, 15, 14, 15, 14, 15]);
    page.extend([16, 17, 18]);
    stream.extend([64, 0]);
    page.extend([18; 3]);
    if version {
        // 300 zeros and two literals; 4 and none.
        let more = 300 - 4;
        stream.extend([0x18 | more as u8 & 7, 0xfc | 2, 0xff, (more >> 3) as u8, 19, 20]);
        page.extend([0; 300]);
        page.extend([19, 20]);
        stream.extend([0x18, 0xfc, 0xff, 0]);
        page.extend([0; 4]);
    }
    // Copies of two bytes follow literals; here there are none, so this is a run of literals.
    let rest = PAGE_SIZE - page.len();
    let more = rest - 18;
    stream.push(0);
    stream.extend(vec![0; (more - 1) / 255]);
    stream.push(((more - 1) % 255 + 1) as u8);
    stream.extend(vec![21; rest]);
    page.resize(PAGE_SIZE, 21);
    stream.extend([0x11, 0, 0]);
    (stream, page)
}

#[test]
fn every_instruction_is_read() {
    for version in [false, true] {
        let (stream, page) = by_hand(version);
        let (back, met) = reference::lzo(&stream).expect("a stream");
        assert!(back == page);
        assert_eq!(met.len(), 9 + usize::from(version), "{met:?}");
        for codec in codecs() {
            let back = decompress(&*codec, &mut *codec.context().unwrap(), &stream).unwrap();
            assert!(back.is_ok_and(|back| back[..] == page), "{}", codec.name());
        }
        if !version {
            let mut back = [0; PAGE_SIZE];
            assert_eq!(lzokay::decompress::decompress(&stream, &mut back), Ok(PAGE_SIZE));
            assert!(back[..] == page);
        }
    }
}

#[test]
fn what_no_page_can_be_is_refused() {
    let [lzo, _] = codecs();
    let mut context = lzo.context().unwrap();
    let good = by_hand(true).0;
    let change = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let end = good.len() - 3;
    for (what, bytes) in [
        ("version 2", change(1, 2)),
        ("zeros in version 0", change(1, 0)),
        ("an end with a length of its own", change(end, 0x12)),
        ("an end that is a copy from far back", change(end + 1, 4)),
        ("literals after the end", change(end + 1, 1)),
        ("nothing", vec![]),
        ("an end at once", vec![0x11, 0, 0]),
        ("a copy of nothing", vec![17 + 1, 7, 64 | 1 << 2, 0]),
    ] {
        let result = decompress(&*lzo, &mut *context, &bytes).unwrap();
        assert!(result == Err(Corrupt), "{what}");
    }
}

/// A file of the program lzop: blocks of LZO1X, each with its length before and after.
mod container {
    use super::PAGE_SIZE;

    const MAGIC: [u8; 9] = [0x89, b'L', b'Z', b'O', 0, 13, 10, 26, 10];

    /// The checksum of zlib's format (RFC 1950).
    fn adler32(bytes: &[u8]) -> u32 {
        let (mut low, mut high) = (1u32, 0u32);
        for byte in bytes {
            low = (low + u32::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        high << 16 | low
    }

    /// A file of these blocks, each of a page, without checksums of their data.
    pub fn write(blocks: &[Vec<u8>]) -> Vec<u8> {
        let mut header = Vec::new();
        header.extend(0x1040u16.to_be_bytes()); // the program's version
        header.extend(0x20a0u16.to_be_bytes()); // the library's
        header.extend(0x0940u16.to_be_bytes()); // what is needed to read it
        header.extend([1, 5]); // LZO1X-1
        header.extend([0; 4]); // flags: no checksums
        header.extend(0o100_644u32.to_be_bytes());
        header.extend([0; 8]); // a time
        header.push(0); // a name
        let sum = adler32(&header);
        let mut file = [&MAGIC[..], &header, &sum.to_be_bytes()].concat();
        for block in blocks {
            file.extend((PAGE_SIZE as u32).to_be_bytes());
            file.extend((block.len() as u32).to_be_bytes());
            file.extend(block);
        }
        file.extend([0; 4]);
        file
    }

    /// The one block of a file of one page, if it is compressed.
    pub fn read(file: &[u8]) -> Option<&[u8]> {
        let rest = file.strip_prefix(&MAGIC).expect("a file of lzop");
        let flags = u32::from_be_bytes(rest[8..12].try_into().unwrap());
        let name = usize::from(rest[24]);
        let rest = &rest[25 + name + 4..];
        let number = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(number(0), PAGE_SIZE);
        let length = number(4);
        if length >= PAGE_SIZE {
            return None;
        }
        // A sum of the page, and one of the block, in either of two ways.
        let sums = [1, 2, 0x100, 0x200].iter().filter(|&&flag| flags & flag != 0).count();
        Some(&rest[8 + 4 * sums..][..length])
    }
}

fn lzop(arguments: &[&str], from: &Path, to: &Path) {
    let mut command = Command::new("lzop");
    command.args(["--quiet", "--force"]).args(arguments).arg("--output").arg(to).arg(from);
    testkit::run(&mut command);
}

/// liblzo2's decoder, in the program lzop, reads every page that lzo writes.
#[test]
fn lzop_reads_what_we_write() {
    let name = "lzop_reads_what_we_write";
    if !testkit::met(name, &[Need::program("lzop", "lzop")]) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let [lzo, _] = codecs();
    let mut context = lzo.context().unwrap();
    let (mut blocks, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        for (_, page) in pages(&mut rng) {
            let bytes = compress(&mut *context, &page).unwrap();
            // The program takes larger blocks for damage; so would they be stored raw.
            if bytes.len() < PAGE_SIZE {
                blocks.push(bytes);
                whole.extend(page);
            }
        }
    }
    blocks.push(by_hand(false).0);
    whole.extend(by_hand(false).1);
    let place = TempDir::new();
    let (file, back) = (place.join("pages.lzo"), place.join("pages"));
    fs::write(&file, container::write(&blocks)).unwrap();
    lzop(&["--decompress"], &file, &back);
    assert!(fs::read(&back).unwrap() == whole);
}

/// We read what the program writes: three compressors, the last of which uses every instruction.
#[test]
fn we_read_what_lzop_writes() {
    let name = "we_read_what_lzop_writes";
    if !testkit::met(name, &[Need::program("lzop", "lzop")]) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let [lzo, _] = codecs();
    let mut context = lzo.context().unwrap();
    let place = TempDir::new();
    let (file, plain) = (place.join("page.lzo"), place.join("page"));
    let mut met = Met::new();
    for level in ["-1", "-3", "-7", "-9"] {
        for (kind, page) in pages(&mut rng) {
            fs::write(&plain, page).unwrap();
            lzop(&[level], &plain, &file);
            let written = fs::read(&file).unwrap();
            let Some(bytes) = container::read(&written) else { continue };
            let back = decompress(&*lzo, &mut *context, bytes).unwrap();
            assert!(back == Ok(page), "{level}, {kind}");
            for (name, count) in reference::lzo(bytes).expect("a stream").1 {
                *met.entry(name).or_default() += count;
            }
        }
    }
    for form in ["2 from 1 kB", "3-4 from 2 kB", "5-8 from 2 kB", "copy", "run"] {
        assert!(met.contains_key(form), "{form} was not met: {met:?}");
    }
}
