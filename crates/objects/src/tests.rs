use alloc::sync::Arc;

use pagealloc::{Zone, ZoneOptions};
use sync::ReaderEpochs;
use units::{Cpu, PAGE_SIZE};
use zcomp::{Chosen, Params, PerCpuStreams};
use zsmalloc::{Handle, PoolOptions};

use crate::{Object, Objects};

const CPU: Cpu = Cpu(0);

fn objects() -> (Objects<PerCpuStreams>, Arc<ReaderEpochs>) {
    let frames = Arc::new(Zone::new(&host::Mmap, ZoneOptions::new(1, 1 << 10)).unwrap());
    let readers = Arc::new(ReaderEpochs::new(1));
    let pool = PoolOptions { frames, limit_frames: 0 };
    let objects = Objects::new(&host::Mmap, pool, readers.clone(), 1, 1).unwrap();
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
fn pages_come_out_of_their_objects_as_they_were() {
    let (objects, readers) = objects();
    let reader = readers.enter(CPU);
    let mut rng = testkit::Rng::new(7);
    let noise: [u8; PAGE_SIZE] = core::array::from_fn(|_| rng.next_u64() as u8);
    let text: [u8; PAGE_SIZE] = core::array::from_fn(|n| (n / 7) as u8);
    let filled: [u8; PAGE_SIZE] = core::array::from_fn(|n| (n % 8 + 1) as u8);
    let pack = |page| objects.compress(&reader, CPU, 0, page).unwrap();
    assert_eq!(pack(&noise).bytes(), PAGE_SIZE);
    assert!(objects.compress(&reader, CPU, 1, &text).is_none(), "there is no such codec");
    let huge = pack(&noise).store(None).unwrap();
    let compressed = pack(&text).store(Some(huge)).unwrap();
    let pattern = u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
    let same_filled = objects.store_same_filled(CPU, pattern, None).unwrap();
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
    assert!(objects.compress(&stranger, CPU, 0, &[7; PAGE_SIZE]).is_none());
}
