//! What the codecs write is what their formats say: other people's decoders read it.

mod common;

use common::pages::{PAGE_SIZE, Page, pages};
use common::reference;
use common::suite::compress;
use testkit::Rng;

/// Decodes with a decoder that shares no code with ours.
fn decode_independently(codec: &str, bytes: &[u8]) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    let length = match codec {
        zcomp::LZ4 | zcomp::LZ4HC => lz4_flex::block::decompress_into(bytes, &mut page).unwrap(),
        zcomp::LZO => lzokay::decompress::decompress(bytes, &mut page).unwrap(),
        // No crate reads these two.
        zcomp::LZO_RLE => {
            page = reference::lzo(bytes).expect("a stream").0;
            page.len()
        }
        zcomp::EIGHT42 => {
            page = reference::eight42(bytes).expect("a stream").0;
            page.len()
        }
        zcomp::ZSTD => {
            // The magic number is left out of what we store.
            let frame = [&[0x28, 0xb5, 0x2f, 0xfd], bytes].concat();
            let mut decoder = ruzstd::decoding::FrameDecoder::new();
            decoder.decode_all(&frame, &mut page).unwrap()
        }
        zcomp::DEFLATE => {
            page = miniz_oxide::inflate::decompress_to_vec_with_limit(bytes, PAGE_SIZE).unwrap();
            page.len()
        }
        other => panic!("{other}: nobody else reads it"),
    };
    page.truncate(length);
    page
}

#[test]
fn other_decoders_read_what_we_write() {
    let mut rng = Rng::new(testkit::seed("other_decoders_read_what_we_write"));
    for (name, codec) in common::codecs() {
        let mut context = codec.context().unwrap();
        for _ in 0..4 {
            for (kind, page) in pages(&mut rng) {
                let bytes = compress(&mut *context, &page).unwrap();
                let back = decode_independently(codec.name(), &bytes);
                assert!(back == page, "{name}, {kind}");
            }
        }
    }
}

/// What is known of a page is not written down: two bytes before the first block.
#[test]
fn zstd_frames_have_the_smallest_header() {
    let mut rng = Rng::new(testkit::seed("zstd_frames_have_the_smallest_header"));
    for (name, codec) in common::codecs() {
        if codec.name() != zcomp::ZSTD {
            continue;
        }
        let mut context = codec.context().unwrap();
        for (kind, page) in pages(&mut rng) {
            let bytes = compress(&mut *context, &page).unwrap();
            assert_eq!(bytes[0], 0, "{name}, {kind}: frame header descriptor");
            let random = common::pages::random(&mut rng);
            let raw = compress(&mut *context, &random).unwrap();
            assert_eq!(raw.len(), 2 + 3 + PAGE_SIZE, "{name}, {kind}: a raw block");
        }
    }
}

/// Pages that compress do so, by every codec but those told not to try.
#[test]
fn plain_pages_shrink() {
    let text: Page = std::array::from_fn(|n| b"of a frame and a slot, "[n % 23]);
    for (name, codec) in common::codecs() {
        // Told not to try; lz4 then finds what is all zeroes by the way.
        let stores = ["zstd Some(-131072)", "deflate Some(0)"].contains(&&*name);
        let stores_text = stores || name == "lz4 Some(65537)";
        let mut context = codec.context().unwrap();
        for (page, stores) in [([0; PAGE_SIZE], stores), (text, stores_text)] {
            let length = compress(&mut *context, &page).unwrap().len();
            // 842 looks back 512 bytes for two bytes and 2048 for eight, and takes 6 bytes in all
            // for a block it has seen in parts.
            let most = if codec.name() == zcomp::EIGHT42 { 1400 } else { 400 };
            assert_eq!(length < most, !stores, "{name}: {length}");
        }
    }
}
