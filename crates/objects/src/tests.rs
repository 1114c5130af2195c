use alloc::sync::Arc;
use alloc::vec::Vec;

use pagealloc::{Zone, ZoneOptions};
use sync::ReaderEpochs;
use units::{Cpu, PAGE_SIZE};
use zcomp::{Chosen, Params, Register};
use zsmalloc::{Handle, Room};

use crate::{CODEC_WORDS, Form, NAMED_CODEC_WORDS, Object, Objects, Packed, Record, sum};

const CPU: Cpu = Cpu(0);

fn objects() -> (Objects, Arc<ReaderEpochs>) {
    let frames = Arc::new(Zone::new(&host::Mmap, ZoneOptions::new(1, 1 << 10)).unwrap());
    let readers = Arc::new(ReaderEpochs::new(1));
    let objects = Objects::new(&host::Mmap, frames, readers.clone(), 1, 1).unwrap();
    let params = Params::default();
    let chosen = Chosen { compressor: zcomp::open(zcomp::LZ4, &params).unwrap(), params };
    objects.install(0, chosen, || 0).unwrap();
    (objects, readers)
}

#[test]
fn objects_come_out_of_their_words_as_they_were() {
    let handle = Handle::from_raw(u32::MAX);
    let compressed = |length, codec| Object::Compressed { handle, length, codec };
    for (object, bytes) in [
        (Object::SameFilled(handle), 8),
        (compressed(1, 0), 1),
        (compressed(8, 30), 8),
        (compressed(4095, 30), 4095),
        (Object::Huge(handle), 4096),
    ] {
        let word = object.word();
        assert_eq!(Object::from_word(word), object);
        assert_eq!(word >> Object::BITS, 0, "the user's bits are free");
        assert_eq!(Object::from_word(word | u64::MAX << Object::BITS), object);
        assert_eq!((object.handle(), object.bytes()), (handle, bytes));
        let moved = object.moved_to(Handle::from_raw(7));
        assert_eq!((moved.handle(), moved.bytes()), (Handle::from_raw(7), bytes));
        assert_eq!(moved.moved_to(handle), object);
    }
}

#[test]
fn only_a_smaller_size_class_is_a_gain() {
    let (objects, _) = objects();
    let bytes = |length| objects.pool().slot_bytes(length) as u64;
    assert_eq!(objects.gain(PAGE_SIZE, 100), Some(bytes(PAGE_SIZE) - bytes(100)));
    assert_eq!(objects.gain(101, 100), None, "it is the same class");
    assert_eq!(objects.gain(100, 100), None);
    assert_eq!(objects.gain(PAGE_SIZE, PAGE_SIZE + 9), None, "a codec may make a page larger");
}

#[test]
fn pages_come_out_of_their_objects_as_they_were() {
    let (objects, readers) = objects();
    let reader = readers.enter(CPU);
    let mut rng = testkit::Rng::new(7);
    let noise: [u8; PAGE_SIZE] = core::array::from_fn(|_| rng.next_u64() as u8);
    let text: [u8; PAGE_SIZE] = core::array::from_fn(|n| (n / 7) as u8);
    let filled: [u8; PAGE_SIZE] = core::array::from_fn(|n| (n % 8 + 1) as u8);
    let bytes = |packed: Packed<'_>| packed.bytes();
    assert_eq!(objects.compress(&reader, CPU, 0, &noise, bytes), Some(PAGE_SIZE));
    assert_eq!(objects.compress(&reader, CPU, 1, &text, bytes), None, "there is no such codec");
    let store = |page, replacing| {
        let store = |packed: Packed<'_>| packed.store(Room::Open, replacing).unwrap();
        objects.compress(&reader, CPU, 0, page, store).unwrap()
    };
    let huge = store(&noise, None);
    let compressed = store(&text, Some(huge));
    let pattern = u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
    let same_filled = objects.store_same_filled(CPU, Room::Open, pattern, None).unwrap();
    assert!(matches!(huge, Object::Huge(_)) && matches!(compressed, Object::Compressed { .. }));
    for (object, contents) in [(huge, noise), (compressed, text), (same_filled, filled)] {
        let mut page = [0; PAGE_SIZE];
        // SAFETY: it was stored above, by this reader, and is freed below.
        unsafe { objects.expand(&reader, CPU, object, &mut page) }.unwrap();
        assert!(page == contents);
        // SAFETY: it is forgotten.
        unsafe { objects.free(CPU, object) };
    }
    objects.pool().validate();
    assert_eq!(objects.pool().stats().objects, 0);
}

#[test]
fn a_reader_of_others_finds_no_codec() {
    let (objects, _) = objects();
    let others = ReaderEpochs::new(1);
    let stranger = others.enter(CPU);
    assert!(objects.compress(&stranger, CPU, 0, &[7; PAGE_SIZE], |_| ()).is_none());
}

/// A record of a test, with two parts for codecs.
const fn form(parameters: bool) -> Form {
    let codec_words = if parameters { CODEC_WORDS } else { NAMED_CODEC_WORDS };
    let words = 16 + 2 * codec_words;
    Form { letters: *b"rampdisk", layouts: 3..=5, current: 5, codecs: 16, parameters, words }
}

/// Other programs read what this one writes, and the other way round.
#[test]
fn the_words_of_a_record_are_where_they_always_were() {
    static WITH: Form = form(true);
    static WITHOUT: Form = form(false);
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let dictionary = Some(b"nine byte"[..].into());
    let params = Params { level: Some(-3), window_bits: Some(15), dictionary };
    let level = 1 << 32 | u64::from(-3i32 as u32);
    let mut with = [0; 17];
    with[..5].copy_from_slice(&[2, level, 1 << 32 | 15, 3, word(b"lz4\0\0\0\0\0")]);
    with[8] = 9;
    with[15..].copy_from_slice(&[word(b"nine byt"), word(b"e\0\0\0\0\0\0\0")]);
    let without = [3, word(b"lz4\0\0\0\0\0")];
    let cases: [(&'static Form, _, &[u64], u64); 2] = [
        (&WITH, params, &with, sum(with.into_iter())),
        (&WITHOUT, Params::default(), &without, sum([1].into_iter().chain(without))),
    ];
    for (form, params, words, checksum) in cases {
        let record = Record::create(&host::Mmap, form, &[(4, 77)]).unwrap();
        assert!([word(b"rampdisk"), 3, 0, 0, 77].into_iter().eq((0..5).map(|at| record.get(at))));
        let compressor = zcomp::open(zcomp::LZ4, &Params::default()).unwrap();
        let chosen = Chosen { compressor, params };
        record.judge(&chosen).unwrap();
        record.keep(1, 2, &chosen);
        record.choose(2, 1);
        assert_eq!((record.get(7), record.current(2), record.current(0)), (2, Some(1), None));
        let first = 16 + if form.parameters { CODEC_WORDS } else { NAMED_CODEC_WORDS };
        let found: Vec<u64> = (first + 1..).take(words.len()).map(|at| record.get(at)).collect();
        assert_eq!((&found[..], record.get(first)), (words, checksum));
        let kept = record.codec(1).unwrap().unwrap();
        assert_eq!((kept.priority, &*kept.name, kept.params), (2, "lz4", chosen.params));
        assert!(record.codec(0).unwrap().is_none());
        // A word that is not the one that was written.
        for (at, word) in (first + 1..).zip(words) {
            record.set(at, word ^ 1 << 62);
            assert!(record.codec(1).is_err(), "word {at}");
            record.set(at, *word);
        }
        record.needs_layout(4);
        record.needs_layout(3);
        assert_eq!(record.layout(), 4);
    }
}
