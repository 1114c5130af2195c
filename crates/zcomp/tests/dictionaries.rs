//! Dictionaries: that they help, that they must be the same on both ways, and that other programs
//! mean the same by them.

mod common;

use std::fs;
use std::process::Command;
use std::sync::Arc;

use common::pages::{PAGE_SIZE, Page};
use common::suite::{compress, decompress};
use common::{WITH_DICTIONARY, open};
use testkit::{Need, Rng, TempDir};
use zcomp::{Compressor, Params};

/// Records of a table whose rows look much alike; every page has other rows.
fn rows(rng: &mut Rng) -> Page {
    const CITIES: [&str; 6] = ["Aachen", "Bergen", "Cadiz", "Dundee", "Esbjerg", "Faro"];
    let mut text = Vec::new();
    while text.len() < PAGE_SIZE {
        let (number, city) = (rng.below(1 << 40), rng.pick(&CITIES));
        let row = format!(
            "{{\"customer\":{number},\"place of delivery\":\"{city}\",\"payment\":\"invoice\"}}\n"
        );
        text.extend_from_slice(row.as_bytes());
    }
    text[..PAGE_SIZE].try_into().unwrap()
}

fn sample(rng: &mut Rng, pages: usize) -> Arc<[u8]> {
    (0..pages).flat_map(|_| rows(rng)).collect()
}

fn with(name: &str, dictionary: &Arc<[u8]>) -> Box<dyn Compressor> {
    let dictionary = Some(dictionary.clone());
    open(name, &Params { dictionary, ..Params::default() }).unwrap()
}

#[test]
fn pages_like_the_dictionary_shrink() {
    let rng = &mut Rng::new(testkit::seed("pages_like_the_dictionary_shrink"));
    let dictionary = sample(rng, 4);
    let page = rows(rng);
    for name in WITH_DICTIONARY {
        let length =
            |codec: &dyn Compressor| compress(&mut *codec.context().unwrap(), &page).unwrap().len();
        let plain = length(&*open(name, &Params::default()).unwrap());
        let helped = length(&*with(name, &dictionary));
        assert!(helped < plain, "{name}: {helped} bytes with, {plain} without");
    }
}

/// A page that is in the dictionary is but a reference to it, from every place there. (lz4 finds
/// few of them in a dictionary that is much longer than its table of 4096 places.)
#[test]
fn the_whole_dictionary_can_be_referred_to() {
    let mut rng = Rng::new(testkit::seed("the_whole_dictionary_can_be_referred_to"));
    for name in WITH_DICTIONARY {
        let mut bytes = vec![0; if name == zcomp::LZ4 { 12_288 } else { 61_440 }];
        rng.fill(&mut bytes);
        let dictionary: Arc<[u8]> = bytes.into();
        let codec = with(name, &dictionary);
        let context = &mut *codec.context().unwrap();
        for start in [0, 1, 5000, dictionary.len() - PAGE_SIZE] {
            let page: Page = dictionary[start..][..PAGE_SIZE].try_into().unwrap();
            let bytes = compress(context, &page).unwrap();
            assert!(bytes.len() < 300, "{name}, from {start}: {} bytes", bytes.len());
            assert!(decompress(&*codec, context, &bytes).unwrap() == Ok(page), "{name}");
        }
    }
}

/// With another dictionary, or none, comes an error or another page, and nothing worse.
#[test]
fn the_wrong_dictionary_brings_no_page_back() {
    let rng = &mut Rng::new(testkit::seed("the_wrong_dictionary_brings_no_page_back"));
    let (right, wrong) = (sample(rng, 4), sample(rng, 4));
    let short: Arc<[u8]> = right[..100].into();
    for name in WITH_DICTIONARY {
        let writer = with(name, &right);
        let mut context = writer.context().unwrap();
        let others =
            [with(name, &wrong), with(name, &short), open(name, &Params::default()).unwrap()];
        for _ in 0..8 {
            let page = rows(rng);
            let bytes = compress(&mut *context, &page).unwrap();
            assert!(decompress(&*writer, &mut *context, &bytes).unwrap() == Ok(page), "{name}");
            for reader in &others {
                let back = decompress(&**reader, &mut *reader.context().unwrap(), &bytes).unwrap();
                assert!(back != Ok(page), "{name}");
            }
        }
    }
}

/// All contexts of a codec use one prepared dictionary, which outlives the codec as long as any
/// of them does.
#[test]
fn contexts_keep_the_dictionary() {
    let rng = &mut Rng::new(testkit::seed("contexts_keep_the_dictionary"));
    let dictionary = sample(rng, 2);
    let page = rows(rng);
    for name in WITH_DICTIONARY {
        let before = Arc::strong_count(&dictionary);
        let codec = with(name, &dictionary);
        let held = Arc::strong_count(&dictionary) - before;
        let (mut one, mut other) = (codec.context().unwrap(), codec.context().unwrap());
        assert_eq!(Arc::strong_count(&dictionary) - before, held, "{name}: prepared again");
        drop(codec);
        let bytes = compress(&mut *one, &page).unwrap();
        drop(one);
        let mut back = [0; PAGE_SIZE];
        assert_eq!(other.decompress(&bytes, &mut back), Ok(()), "{name}");
        assert!(back == page, "{name}");
        drop(other);
        assert_eq!(Arc::strong_count(&dictionary), before, "{name}: kept for ever");
    }
}

#[test]
fn another_lz4_reads_with_the_dictionary() {
    let rng = &mut Rng::new(testkit::seed("another_lz4_reads_with_the_dictionary"));
    let dictionary = sample(rng, 16);
    for name in [zcomp::LZ4, zcomp::LZ4HC] {
        let codec = with(name, &dictionary);
        let mut context = codec.context().unwrap();
        for _ in 0..16 {
            let page = rows(rng);
            let bytes = compress(&mut *context, &page).unwrap();
            let mut back = [0; PAGE_SIZE];
            let length = lz4_flex::block::decompress_into_with_dict(&bytes, &mut back, &dictionary);
            assert_eq!(length.unwrap(), PAGE_SIZE, "{name}");
            assert!(back == page, "{name}");
        }
    }
}

/// What the program writes with a dictionary, less the four bytes that begin every frame, is what
/// we read, and the other way round: with a trained dictionary and with one of any bytes.
#[test]
fn the_program_zstd_means_the_same_dictionary() {
    let name = "the_program_zstd_means_the_same_dictionary";
    if !testkit::met(name, &[Need::program("zstd", "zstd")]) {
        return;
    }
    let rng = &mut Rng::new(testkit::seed(name));
    let place = TempDir::new();
    let path = |file: &str| place.join(file);
    let mut train = Command::new("zstd");
    train.args(["--quiet", "--train", "--maxdict=8K", "-o"]).arg(path("trained"));
    for number in 0..64 {
        let file = path(&format!("sample{number}"));
        fs::write(&file, rows(rng)).unwrap();
        train.arg(file);
    }
    testkit::run(&mut train);
    fs::write(path("raw"), sample(rng, 2)).unwrap();
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    for kind in ["trained", "raw"] {
        let dictionary: Arc<[u8]> = fs::read(path(kind)).unwrap().into();
        let formatted = dictionary.starts_with(&[0x37, 0xa4, 0x30, 0xec]);
        assert_eq!(formatted, kind == "trained");
        let codec = with(zcomp::ZSTD, &dictionary);
        let mut context = codec.context().unwrap();
        let page = rows(rng);
        let bytes = compress(&mut *context, &page).unwrap();
        fs::write(path("ours.zst"), [&MAGIC[..], &bytes].concat()).unwrap();
        fs::write(path("page"), page).unwrap();
        let zstd = |arguments: &[&str], from: &str, to: &str| {
            let mut command = Command::new("zstd");
            command.args(["--quiet", "--force", "-D"]).arg(path(kind)).args(arguments);
            testkit::run(command.arg(path(from)).arg("-o").arg(path(to)));
            fs::read(path(to)).unwrap()
        };
        assert!(zstd(&["--decompress"], "ours.zst", "back") == page, "{kind}");
        let theirs = zstd(&["--no-check"], "page", "page.zst");
        let bytes = theirs.strip_prefix(&MAGIC).expect("a frame");
        assert!(decompress(&*codec, &mut *context, bytes).unwrap() == Ok(page), "{kind}");
    }
}
