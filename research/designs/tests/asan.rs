//! AddressSanitizer finds nothing where no lock keeps an object that is read: the process ends if an
//! engine frees it meanwhile (`testing/mutants` has one that does). A codec runs the other operation
//! at that moment, so the test needs no timing. Without `--cfg asan` this file is empty;
//! docs/internals/testing.md says how to run it.
#![cfg(asan)]

#[path = "../../../testing/sim/tests/common/bench.rs"]
mod bench;

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use bench::{Bench, Design};
use block::Plain;
use designs::slots::Epoch;
use sim::content::Fill;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{CodecError, Compressor, Context, Corrupt};
use zram::Disk;
use zram::slots::{AnySlots, MakeSlots, SlotTable};

const CPU: Cpu = Cpu(0);
const PAGES: u64 = 64;
/// Far longer than a compaction that waits for nobody.
const A_WHILE: Duration = Duration::from_millis(200);

type Action = Box<dyn FnOnce() + Send>;

/// The operation that runs when the reader has found the object and begins to read it.
#[derive(Clone, Default)]
struct Moment(Arc<Mutex<Option<Action>>>);

/// A codec that runs the operation before it decompresses.
struct Interrupted(Arc<dyn Compressor>, Moment);

impl Compressor for Interrupted {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        self.0.context()
    }
    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        let action = self.1.0.lock().unwrap().take();
        if let Some(action) = action {
            action();
        }
        self.0.decompress_bare(bytes, page)
    }
}

/// Each page shrinks, to about the same size.
fn contents(stamp: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    Fill::Partly { noise: stamp, parts: 20 }.render(&mut page);
    page
}

/// A disk whose codec is written in Rust, so that the sanitizer checks it.
fn disk<T: SlotTable + 'static>() -> (Arc<Disk>, Moment) {
    let moment = Moment::default();
    let others = moment.clone();
    let over_codec = Box::new(move |codec| Arc::new(Interrupted(codec, others.clone())) as _);
    let slots = (T::NAME, (|| Some(AnySlots::make::<T>())) as fn() -> Option<MakeSlots>);
    let design = Design { slots, ..Design::PRODUCT };
    let disk = Bench { design, over_codec, ..Bench::new(Arc::new(Plain::new(0))) }.make().disk;
    disk.set_algorithm(zcomp::LZO).unwrap();
    disk.set_disksize(PAGES * PAGE_SIZE as u64).unwrap();
    (disk, moment)
}

/// A page is stored anew while it is read.
fn stored_while_read<T: SlotTable + 'static>() {
    let (disk, moment) = disk::<T>();
    disk.store_page(CPU, 0, &contents(1)).unwrap();
    let writer = disk.clone();
    let action = move || writer.store_page(Cpu(1), 0, &contents(2)).unwrap();
    *moment.0.lock().unwrap() = Some(Box::new(action));
    let mut page = [0; PAGE_SIZE];
    disk.load_page(CPU, 0, &mut page).unwrap();
    assert!(page == contents(1), "the reader found the page before it was stored anew");
    assert!(moment.0.lock().unwrap().is_none(), "nobody read an object");
}

/// The right scheme without a lock: the object stays for its reader.
#[test]
fn what_is_read_stays_under_epochs() {
    stored_while_read::<Epoch>();
}

/// Objects are moved together while one of them is read. The reader goes on when they were moved,
/// or when that takes a while: it waits for the reader.
#[test]
fn what_is_read_stays_while_objects_are_moved() {
    let (disk, moment) = disk::<Epoch>();
    (0..PAGES).for_each(|index| disk.store_page(CPU, index, &contents(index)).unwrap());
    let left = || (0..PAGES).filter(|index| index % 7 == 0);
    (0..PAGES).filter(|index| index % 7 != 0).for_each(|index| {
        disk.discard_pages(CPU, index, 1).unwrap();
    });
    // What was discarded does not wait for readers any more.
    let _ = disk.stats();
    for index in left() {
        let administrator = disk.clone();
        *moment.0.lock().unwrap() = Some(Box::new(move || {
            let (done, moved) = mpsc::channel();
            thread::spawn(move || {
                administrator.compact().unwrap();
                let _ = done.send(());
            });
            let _ = moved.recv_timeout(A_WHILE);
        }));
        let mut page = [0; PAGE_SIZE];
        disk.load_page(CPU, index, &mut page).unwrap();
        assert!(page == contents(index), "page {index} is another");
    }
}
