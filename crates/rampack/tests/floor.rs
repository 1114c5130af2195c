//! A floor under the speed of storing and loading: a page may take so many times what its codec
//! takes alone, in this process and in these moments. It is no benchmark: it sees an engine that has
//! become about ten times slower, and nothing less.
//!
//! The codec and the engine take turns of a fraction of a millisecond, and the median of many turns
//! is judged, so other load on the machine slows both down or spoils a few turns.

use std::time::{Duration, Instant};

use rampack::{Disk, DiskOptions, Rampack};
use testkit::Rng;
use units::Page;
use zcomp::{Compressor, Context, Lz4, Params, Zstd};

const PAGES: usize = 64;
/// Turns of either, an odd number.
const TURNS: usize = 41;
/// As many times the codec's time is too slow. Usual are less than 2.
const MOST: f64 = 8.0;

/// Pages that shrink to about a third: words of a small language.
fn pages(test: &str) -> Vec<Page> {
    let mut rng = Rng::new(testkit::seed(test));
    let words: Vec<Vec<u8>> = (0..64)
        .map(|_| (0..2 + rng.below(9)).map(|_| b"etaoinshrdlu"[rng.below(12) as usize]).collect())
        .collect();
    let page = |_| {
        let mut text = Vec::with_capacity(4200);
        while text.len() < 4096 {
            text.extend_from_slice(rng.pick::<Vec<u8>>(&words));
            text.push(b' ');
        }
        std::array::from_fn(|n| text[n])
    };
    (0..PAGES).map(page).collect()
}

/// The codec alone, and what it made of each page.
struct Alone {
    context: Box<dyn Context>,
    stored: Vec<Vec<u8>>,
    back: Page,
}

impl Alone {
    fn new(codec: &dyn Compressor, pages: &[Page]) -> Alone {
        let mut context = codec.context().unwrap();
        let mut into = [0; 4096];
        let mut compress = |page| {
            let length = context.compress(page, &mut into).unwrap();
            assert!((500..2500).contains(&length), "{length} bytes: not the pages meant here");
            into[..length].to_vec()
        };
        let stored = pages.iter().map(&mut compress).collect();
        Alone { context, stored, back: [0; 4096] }
    }

    fn compress(&mut self, pages: &[Page]) {
        let mut into = [0; 4096];
        for page in pages {
            assert!(self.context.compress(page, &mut into).is_some());
        }
    }

    fn decompress(&mut self) {
        for bytes in &self.stored {
            self.context.decompress(bytes, &mut self.back).unwrap();
        }
    }
}

/// Whether `engine` takes more than [`MOST`] times what `codec` takes, or the ratio.
fn judge(mut codec: impl FnMut(), mut engine: impl FnMut()) -> Result<f64, f64> {
    fn time(work: &mut impl FnMut()) -> Duration {
        let begun = Instant::now();
        work();
        begun.elapsed()
    }
    // The first time costs page faults and a cold cache.
    codec();
    engine();
    let mut ratios: Vec<f64> = (0..TURNS)
        .map(|_| {
            let codec = time(&mut codec);
            time(&mut engine).div_duration_f64(codec)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let median = ratios[TURNS / 2];
    if median < MOST { Ok(median) } else { Err(median) }
}

fn disk(codec: &dyn Compressor) -> Disk {
    let options = DiskOptions::new(1 << 20).algorithm(codec.name().parse().unwrap());
    Rampack::new().unwrap().disk(options).unwrap()
}

fn store(disk: &Disk, pages: &[Page]) {
    (0..).zip(pages).for_each(|(index, page)| disk.store(index, page).unwrap());
}

fn load(disk: &Disk, page: &mut Page) {
    (0..PAGES as u64).for_each(|index| disk.load(index, page).unwrap());
}

fn codecs() -> [Box<dyn Compressor>; 2] {
    let params = Params::default();
    [Box::new(Lz4::new(&params).unwrap()), Box::new(Zstd::new(&params).unwrap())]
}

#[test]
fn storing_and_loading_cost_little_beside_the_codec() {
    let pages = pages("storing_and_loading_cost_little_beside_the_codec");
    for codec in codecs() {
        let (disk, mut alone, mut back) = (disk(&*codec), Alone::new(&*codec, &pages), [0; 4096]);
        let stored = judge(|| alone.compress(&pages), || store(&disk, &pages));
        let loaded = judge(|| alone.decompress(), || load(&disk, &mut back));
        println!("{}: {stored:?} and {loaded:?} times the codec", codec.name());
        assert!(stored.is_ok(), "{}: storing takes {stored:?} times the codec", codec.name());
        assert!(loaded.is_ok(), "{}: loading takes {loaded:?} times the codec", codec.name());
        assert_eq!(disk.stats().pages, PAGES as u64);
        assert!(back == pages[PAGES - 1]);
    }
}

/// An engine that runs the codec twenty times for each page.
#[test]
fn an_engine_that_works_too_much_is_rejected() {
    let pages = pages("an_engine_that_works_too_much_is_rejected");
    for codec in codecs() {
        let (disk, mut alone) = (disk(&*codec), Alone::new(&*codec, &pages));
        let (mut more, mut back) = (Alone::new(&*codec, &pages), [0; 4096]);
        let stored = judge(
            || alone.compress(&pages),
            || {
                (0..20).for_each(|_| more.compress(&pages));
                store(&disk, &pages);
            },
        );
        let loaded = judge(
            || alone.decompress(),
            || {
                (0..20).for_each(|_| more.decompress());
                load(&disk, &mut back);
            },
        );
        assert!(stored.is_err() && loaded.is_err(), "{}: {stored:?} {loaded:?}", codec.name());
    }
}

/// An engine that sleeps a moment for each page: half a millisecond, which is more than a hundred
/// runs of either codec.
#[test]
fn an_engine_that_sleeps_is_rejected() {
    let pages = &pages("an_engine_that_sleeps_is_rejected")[..8];
    for codec in codecs() {
        let (disk, mut alone) = (disk(&*codec), Alone::new(&*codec, pages));
        let stored = judge(
            || alone.compress(pages),
            || {
                for (index, page) in (0..).zip(pages) {
                    std::thread::sleep(Duration::from_micros(500));
                    disk.store(index, page).unwrap();
                }
            },
        );
        assert!(stored.is_err(), "{}: {stored:?}", codec.name());
    }
}
