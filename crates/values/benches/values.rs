//! Values beside the bare codec and a sharded map of its blocks, in one run.
//!
//! `cargo bench -p rampack-values -- [FILE...]` takes the values from the files, one behind the
//! other; without files, from this program; `small` leaves them out. Small values are records in
//! JSON. Each figure is the median of several rounds in which all take turns.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pagealloc::{Zone, ZoneOptions};
use units::Cpu;
use values::{At, Options, Parts, PutOptions, Values};
use zcomp::{Block, Compressor, Params};

const ROUNDS: usize = 5;
/// Bytes of values in a round.
const BYTES: usize = 48 << 20;
const SMALL: usize = 200_000;
const SHARDS: usize = 64;

type Shard = Mutex<HashMap<Vec<u8>, (usize, Box<[u8]>)>>;

/// A map of blocks of a codec, as a program would write it.
struct Map {
    hasher: RandomState,
    shards: Vec<Shard>,
}

/// What a thread has of its own.
struct Worker {
    block: Box<dyn Block>,
    packed: Vec<u8>,
    into: Vec<u8>,
}

impl Worker {
    fn new(codec: &Arc<dyn Compressor>) -> Worker {
        let block = codec.block(1 << 16).expect("memory").expect("a codec of blocks");
        Worker { block, packed: vec![0; 1 << 17], into: vec![0; 1 << 16] }
    }
}

impl Map {
    fn new() -> Map {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Map { hasher: RandomState::new(), shards }
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    fn put(&self, worker: &mut Worker, key: &[u8], value: &[u8]) {
        let Worker { block, packed, .. } = worker;
        let kept: Box<[u8]> = match block.compress(value, packed) {
            Some(length) if length < value.len() => packed[..length].into(),
            _ => value.into(),
        };
        self.shard(key).lock().expect("no panic").insert(key.to_vec(), (value.len(), kept));
    }

    fn get(&self, worker: &mut Worker, key: &[u8]) -> usize {
        let Worker { block, into, .. } = worker;
        let shard = self.shard(key).lock().expect("no panic");
        let Some((length, kept)) = shard.get(key) else { return 0 };
        if kept.len() == *length {
            into[..*length].copy_from_slice(kept);
        } else {
            block.decompress(kept, &mut into[..*length]).expect("a whole block");
        }
        *length
    }

    /// Bytes of the blocks, and about those of all memory: glibc rounds to 16 and adds 8.
    fn memory(&self) -> u64 {
        let heap = |bytes: usize| (bytes + 8).next_multiple_of(16).max(32);
        let shard = |shard: &Shard| {
            let shard = shard.lock().expect("no panic");
            let entry = size_of::<(Vec<u8>, (usize, Box<[u8]>))>() + 1;
            let blocks = shard.iter().map(|(key, (_, kept))| heap(key.len()) + heap(kept.len()));
            (blocks.sum::<usize>() + shard.capacity() * 8 / 7 * entry) as u64
        };
        self.shards.iter().map(shard).sum()
    }
}

fn store(codec: &Arc<dyn Compressor>, options: Options) -> Values {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(2, 1 << 20)).expect("address space");
    let frames = Arc::new(zone);
    let parts = Parts { frames, cpus: 2, codec: codec.clone(), seed: 7, options };
    Values::new(&host::Mmap, parts).expect("a store")
}

fn at(cpu: usize) -> At {
    At { cpu: Cpu(cpu as u32), now: 1 }
}

/// Nanoseconds for each of `count`.
fn timed(count: usize, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as f64 / count as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The order in which values are read.
fn order(count: usize) -> Vec<usize> {
    let mut state = 1u64;
    let mut all: Vec<usize> = (0..count).collect();
    for n in (1..count).rev() {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        all.swap(n, (state >> 33) as usize % (n + 1));
    }
    all
}

fn measure(name: &str, codec: &Arc<dyn Compressor>, unit: usize, all: &[(Vec<u8>, &[u8])]) {
    let count = all.len();
    let order = order(count);
    let mut figures: [Vec<f64>; 6] = Default::default();
    let mut two: [Vec<f64>; 2] = Default::default();
    let (mut last, mut after) = (None, 0);
    for _ in 0..ROUNDS {
        let mut worker = Worker::new(codec);
        let mut blocks = vec![Box::<[u8]>::default(); count];
        let Worker { block, packed, into } = &mut worker;
        figures[0].push(timed(count, || {
            for (kept, (_, value)) in blocks.iter_mut().zip(all) {
                let length = block.compress(value, packed).unwrap_or(0).min(value.len());
                *kept = packed[..length].into();
            }
        }));
        figures[1].push(timed(count, || {
            for n in &order {
                let (value, kept) = (all[*n].1, &blocks[*n]);
                if kept.len() < value.len() {
                    block.decompress(kept, &mut into[..value.len()]).expect("a whole block");
                } else {
                    into[..value.len()].copy_from_slice(value);
                }
            }
        }));
        let packed: usize =
            all.iter().zip(&blocks).map(|((key, _), it)| key.len() + it.len()).sum();
        drop(blocks);
        let map = Map::new();
        figures[2].push(timed(count, || {
            all.iter().for_each(|(key, value)| map.put(&mut worker, key, value));
        }));
        figures[3].push(timed(count, || {
            order.iter().for_each(|n| assert!(map.get(&mut worker, &all[*n].0) > 0));
        }));
        let taken = map.memory();
        drop(map);
        let values = store(codec, Options { unit, ..Options::default() });
        let put = |cpu, (key, value): &(Vec<u8>, &[u8])| {
            values.put(at(cpu), key, value, PutOptions::default()).expect("there is room");
        };
        let get = |cpu, into: &mut [u8], n: usize| {
            assert_eq!(values.get(at(cpu), &all[n].0, into), Ok(Some(all[n].1.len())));
        };
        figures[4].push(timed(count, || all.iter().for_each(|it| put(0, it))));
        let into = &mut worker.into;
        figures[5].push(timed(count, || order.iter().for_each(|n| get(0, into, *n))));
        let stats = values.stats();
        let single = store(codec, Options { unit, group: false, ..Options::default() });
        for (key, value) in all {
            single.put(at(0), key, value, PutOptions::default()).expect("there is room");
        }
        last = Some((packed, taken, stats, single.stats().memory_bytes));
        drop(single);
        // The same work again, halved between two threads.
        let half = count / 2;
        two[0].push(timed(count, || {
            std::thread::scope(|scope| {
                scope.spawn(|| all[..half].iter().for_each(|it| put(0, it)));
                scope.spawn(|| all[half..].iter().for_each(|it| put(1, it)));
            });
        }));
        while values.upkeep(at(0), 1 << 20) {}
        after = values.stats().memory_bytes;
        two[1].push(timed(count, || {
            std::thread::scope(|scope| {
                for (cpu, part) in [&order[..half], &order[half..]].into_iter().enumerate() {
                    let get = &get;
                    scope.spawn(move || {
                        let mut into = vec![0; 1 << 16];
                        part.iter().for_each(|n| get(cpu, &mut into, *n));
                    });
                }
            });
        }));
    }
    let [bare_put, bare_get, map_put, map_get, put, get] = figures.map(median);
    let [puts, gets] = two.map(median);
    let (packed, taken, stats, single) = last.expect("a round");
    let data = stats.data_bytes as f64;
    let allowed = packed as f64 * 1.05 + 24.0 * count as f64;
    println!("{name}, {}: {count} values, {:.1} MB", codec.name(), data / 1e6);
    println!(
        "  put ns: codec {bare_put:.0}, map {map_put:.0}, store {put:.0}: {:.2} x codec",
        put / bare_put
    );
    println!(
        "  get ns: codec {bare_get:.0}, map {map_get:.0}, store {get:.0}: {:.2} x codec",
        get / bare_get
    );
    println!("  two threads: put {:.2} x (over values), get {:.2} x", put / puts, get / gets);
    println!(
        "  memory MB: packed {:.2}, map {:.2}, store {:.2} (index {:.2}): {:.3} of 1.05 x + 24 B; \
         data in a byte: map {:.2}, store {:.2}, one by one {:.2}; after all was put again {:.3}",
        packed as f64 / 1e6,
        taken as f64 / 1e6,
        stats.memory_bytes as f64 / 1e6,
        stats.index_bytes as f64 / 1e6,
        stats.memory_bytes as f64 / allowed,
        data / taken as f64,
        data / stats.memory_bytes as f64,
        data / single as f64,
        after as f64 / stats.memory_bytes as f64,
    );
}

/// Records as programs keep them in a cache.
fn small(number: usize) -> Vec<u8> {
    let id = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let names = ["Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Tony", "Leslie"];
    let name = names[id as usize % 8];
    let mut text = format!(
        "{{\"id\":{number},\"name\":\"{name}\",\"email\":\"{name}.{}@example.org\",\"token\":\
         \"{id:016x}\",\"created\":\"2025-0{}-{:02}T{:02}:{:02}:00Z\",\"scores\":[",
        id >> 50,
        id % 9 + 1,
        id % 28 + 1,
        id % 24,
        id % 60
    );
    for n in 0..id % 40 {
        text.push_str(&format!("{},", (id >> (n % 48)) & 0x3ff));
    }
    text.push_str("]}");
    text.into_bytes()
}

fn main() {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    files.retain(|file| !file.starts_with("--"));
    let small_only = files.iter().any(|file| file == "small");
    files.retain(|file| file != "small");
    if files.is_empty() {
        let program = std::env::current_exe().expect("this program");
        files.push(program.to_string_lossy().into_owned());
    }
    let mut bytes = Vec::new();
    for file in files {
        bytes.extend(std::fs::read(file).expect("a file"));
        bytes.truncate(BYTES);
    }
    for codec in ["lz4", "zstd"] {
        let codec = zcomp::open(codec, &Params::default()).expect("a codec");
        let sizes: &[usize] = if small_only { &[] } else { &[4 << 10, 16 << 10, 64 << 10] };
        for size in sizes.iter().copied() {
            let parts = bytes.chunks_exact(size);
            let all: Vec<_> = parts
                .enumerate()
                .map(|(n, part)| (format!("block:{n:08}").into_bytes(), part))
                .collect();
            measure(&format!("{} KiB", size >> 10), &codec, size, &all);
        }
        let small: Vec<Vec<u8>> = (0..SMALL).map(small).collect();
        let all: Vec<_> = small
            .iter()
            .enumerate()
            .map(|(n, value)| (format!("user:{n}:profile").into_bytes(), &value[..]))
            .collect();
        measure("records", &codec, 16 << 10, &all);
    }
}
