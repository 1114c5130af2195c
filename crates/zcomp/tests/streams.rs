//! Streams: who gets which, and that nobody is in one with another.

use std::sync::atomic::{AtomicU64, Ordering};

use testkit::Rng;
use units::Cpu;
use zcomp::{CodecError, Compressor, Context, Corrupt, Lz4, Params, PerCpuStreams, Streams};

type Page = [u8; 4096];

fn lz4(cpus: usize) -> PerCpuStreams {
    PerCpuStreams::new(&Lz4::new(&Params::default()).unwrap(), cpus).unwrap()
}

/// Where a stream lies, to tell streams apart.
fn place(stream: &zcomp::Stream) -> usize {
    stream.output.as_ptr() as usize
}

#[test]
fn a_cpu_has_its_own_stream() {
    let streams = lz4(3);
    assert_eq!(streams.count(), 3);
    let places: Vec<_> = (0..3).map(|cpu| place(&streams.get(Cpu(cpu)))).collect();
    assert!(places[0] != places[1] && places[1] != places[2] && places[0] != places[2]);
    for cpu in 0..30 {
        assert_eq!(place(&streams.get(Cpu(cpu))), places[cpu as usize % 3]);
    }
}

#[test]
fn there_is_always_one() {
    let streams = lz4(0);
    assert_eq!(streams.count(), 1);
    drop(streams.get(Cpu(0)));
    drop(streams.get(Cpu(u32::MAX)));
}

#[test]
fn a_busy_cpu_takes_any_free_stream() {
    let streams = lz4(3);
    let first = streams.get(Cpu(1));
    let second = streams.get(Cpu(1));
    let third = streams.get(Cpu(1));
    let mut places = [place(&first), place(&second), place(&third)];
    places.sort_unstable();
    assert!(places[0] < places[1] && places[1] < places[2]);
    drop(first);
    let again = streams.get(Cpu(0));
    assert!(places.contains(&place(&again)));
}

#[test]
fn with_none_free_a_thread_waits() {
    let streams = lz4(2);
    let (one, two) = (streams.get(Cpu(0)), streams.get(Cpu(1)));
    let awaited = place(&two);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| place(&streams.get(Cpu(1))));
        // Whether the waiter asks before or after this, only the second stream comes free.
        drop(two);
        assert_eq!(waiter.join().unwrap(), awaited);
    });
    drop(one);
}

#[test]
fn buffers_begin_on_pages() {
    let streams = lz4(2);
    for cpu in 0..2 {
        let stream = streams.get(Cpu(cpu));
        assert_eq!(stream.output.as_ptr() as usize % 4096, 0);
        assert_eq!(stream.output.len(), 8192);
    }
}

#[test]
fn more_threads_than_streams_get_their_own_bytes_back() {
    let streams = &lz4(2);
    let seed = testkit::seed("more_threads_than_streams_get_their_own_bytes_back");
    std::thread::scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed ^ thread);
                for _ in 0..2000 {
                    let mut page: Page = [thread as u8; 4096];
                    rng.fill(&mut page[..256]);
                    let stream = &mut *streams.get(Cpu(rng.below(4) as u32));
                    let length = stream.context.compress(&page, &mut stream.output[..]).unwrap();
                    let bytes = &stream.output[..length];
                    let mut back: Page = [0; 4096];
                    stream.context.decompress(bytes, &mut back).unwrap();
                    assert!(back == page);
                }
            });
        }
    });
}

/// Makes as many contexts as it is told to, then says that memory is out.
struct Scarce {
    left: AtomicU64,
    lz4: Lz4,
}

impl Compressor for Scarce {
    fn name(&self) -> &'static str {
        "scarce"
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        let less = |left: u64| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => self.lz4.context(),
            Err(_) => Err(CodecError("scarce: no memory for a context".into())),
        }
    }

    fn decompress_bare(&self, bytes: &[u8], page: &mut Page) -> Option<Result<(), Corrupt>> {
        self.lz4.decompress_bare(bytes, page)
    }
}

#[test]
fn what_fails_fails_at_creation() {
    let scarce = |contexts| Scarce {
        left: AtomicU64::new(contexts),
        lz4: Lz4::new(&Params::default()).unwrap(),
    };
    assert!(PerCpuStreams::new(&scarce(4), 4).is_ok());
    let error = PerCpuStreams::new(&scarce(3), 4).err().expect("four streams of three contexts");
    assert_eq!(error.to_string(), "scarce: no memory for a context");
}
