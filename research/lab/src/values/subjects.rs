//! What has values by keys: the store, and caches of blocks; and the codec alone.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use rampack::{Algorithm, Rampack, Store, StoreOptions, Upkeep};
use zcomp::{Block, Params};

use super::sets::{Key, Set};
use crate::sys::{Memory, memory};

/// The store with small values one by one.
pub const ONE_BY_ONE: &str = "one-by-one";
/// All, the product first.
pub const SUBJECTS: [&str; 5] = ["rampack", ONE_BY_ONE, "map", "moka", "foyer"];

/// The most bytes of a value.
const LARGEST: usize = 64 << 10;
/// Parts of a map, each with its lock.
const SHARDS: usize = 64;
/// The rounds of upkeep in a minute.
const MINUTE: usize = 60;

/// What a thread has of its own.
pub struct Hand {
    block: Box<dyn Block>,
    packed: Vec<u8>,
    /// What was read last.
    pub into: Vec<u8>,
}

/// A value as a cache has it: as it is where the codec does not make it smaller.
#[derive(Clone)]
struct Packed<B> {
    length: u32,
    bytes: B,
}

impl Hand {
    pub fn new(algorithm: &str) -> Result<Hand> {
        let codec = zcomp::open(algorithm, &Params::default())?;
        let block = codec.block(LARGEST).map_err(|error| anyhow!("{error:?}"))?;
        let block = block.with_context(|| format!("{algorithm} takes pages only"))?;
        Ok(Hand { block, packed: vec![0; 2 * LARGEST], into: vec![0; LARGEST] })
    }

    fn pack<B: for<'a> From<&'a [u8]>>(&mut self, value: &[u8]) -> Packed<B> {
        let length = self.block.compress(value, &mut self.packed);
        let length = length.filter(|length| *length < value.len());
        let bytes = length.map_or(value, |length| &self.packed[..length]).into();
        Packed { length: value.len() as u32, bytes }
    }

    fn unpack<B: Deref<Target = [u8]>>(&mut self, packed: &Packed<B>) -> Result<usize> {
        self.unpack_bytes(packed.length as usize, &packed.bytes)
    }

    fn unpack_bytes(&mut self, length: usize, bytes: &[u8]) -> Result<usize> {
        let into = &mut self.into[..length];
        if bytes.len() == length {
            into.copy_from_slice(bytes);
        } else {
            let done = self.block.decompress(bytes, into);
            done.map_err(|error| anyhow!("{error:?}"))?;
        }
        Ok(length)
    }
}

/// What has values by keys. Any number of threads may call it at once.
pub trait Subject: Send + Sync {
    /// Keeps a value, in place of an earlier one of the key.
    fn put(&self, hand: &mut Hand, key: &[u8], value: &[u8]) -> Result<()>;

    /// Reads a value to `hand.into`, and returns its length: 0 if there is none.
    fn get(&self, hand: &mut Hand, key: &[u8]) -> Result<usize>;

    /// Does what it leaves for a time without calls.
    fn rest(&self) -> Result<()> {
        Ok(())
    }

    /// The bytes of memory that it counts itself, of which no part is on the heap.
    fn counted(&self) -> u64 {
        0
    }
}

/// The subject of a name, with room for a set.
pub fn open(name: &str, set: &Set<'_>, algorithm: &str) -> Result<Box<dyn Subject>> {
    // All limits are far away.
    let room = set.data * 2 + set.values.len() * 256;
    let weight = |key: &Key, bytes: &[u8]| key.len() + bytes.len();
    Ok(match name {
        "map" => {
            let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
            Box::new(Map { hasher: RandomState::new(), shards })
        }
        "moka" => {
            let weigh = move |key: &Key, it: &Packed<Arc<[u8]>>| weight(key, &it.bytes) as u32;
            Box::new(moka::sync::Cache::builder().weigher(weigh).max_capacity(room as u64).build())
        }
        "foyer" => {
            let weigh = move |key: &Key, it: &Packed<Box<[u8]>>| weight(key, &it.bytes);
            let cache = foyer_memory::CacheBuilder::new(room).with_shards(SHARDS);
            Box::new(cache.with_weighter(weigh).build())
        }
        _ => {
            let rampack = Rampack::builder().upkeep(Upkeep::Manual).build()?;
            let options = StoreOptions::new().algorithm(algorithm.parse::<Algorithm>()?);
            let store = rampack.store(options.unit(set.unit).group(name != ONE_BY_ONE))?;
            Box::new((rampack, store))
        }
    })
}

impl Subject for (Rampack, Store) {
    fn put(&self, _: &mut Hand, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.1.put(key, value)?)
    }

    fn get(&self, hand: &mut Hand, key: &[u8]) -> Result<usize> {
        Ok(self.1.get_into(key, &mut hand.into)?.unwrap_or(0))
    }

    fn rest(&self) -> Result<()> {
        (0..MINUTE).try_for_each(|_| self.0.upkeep().map(|_| ()))?;
        Ok(())
    }

    fn counted(&self) -> u64 {
        self.1.stats().memory_bytes
    }
}

type Shard = HashMap<Key, Packed<Box<[u8]>>>;

/// A map as a program would write it.
struct Map {
    hasher: RandomState,
    shards: Vec<Mutex<Shard>>,
}

impl Map {
    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

impl Subject for Map {
    fn put(&self, hand: &mut Hand, key: &[u8], value: &[u8]) -> Result<()> {
        let packed = hand.pack(value);
        self.shard(key).lock().expect("no panic").insert(key.into(), packed);
        Ok(())
    }

    fn get(&self, hand: &mut Hand, key: &[u8]) -> Result<usize> {
        let shard = self.shard(key).lock().expect("no panic");
        shard.get(key).map_or(Ok(0), |packed| hand.unpack(packed))
    }
}

impl Subject for moka::sync::Cache<Key, Packed<Arc<[u8]>>> {
    fn put(&self, hand: &mut Hand, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key.into(), hand.pack(value));
        Ok(())
    }

    fn get(&self, hand: &mut Hand, key: &[u8]) -> Result<usize> {
        self.get(key).map_or(Ok(0), |packed| hand.unpack(&packed))
    }

    fn rest(&self) -> Result<()> {
        self.run_pending_tasks();
        Ok(())
    }
}

impl Subject for foyer_memory::Cache<Key, Packed<Box<[u8]>>> {
    fn put(&self, hand: &mut Hand, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key.into(), hand.pack(value));
        Ok(())
    }

    fn get(&self, hand: &mut Hand, key: &[u8]) -> Result<usize> {
        self.get(key).map_or(Ok(0), |entry| hand.unpack(entry.value()))
    }
}

/// The codec alone, on the values of a set. Its blocks lie end to end.
pub struct Bare<'a> {
    set: &'a Set<'a>,
    hand: Hand,
    memory: Memory,
    /// Where the block of each value is.
    places: Vec<(usize, usize)>,
    /// Bytes of all blocks.
    pub compressed: usize,
    pub put_ns: Vec<f64>,
    pub get_ns: Vec<f64>,
}

impl<'a> Bare<'a> {
    pub fn new(set: &'a Set<'a>, algorithm: &str) -> Result<Bare<'a>> {
        let (hand, memory) = (Hand::new(algorithm)?, memory(set.data + 2 * LARGEST)?);
        let places = vec![(0, 0); set.values.len()];
        let (put_ns, get_ns) = (Vec::new(), Vec::new());
        let mut bare = Bare { set, hand, memory, places, compressed: 0, put_ns, get_ns };
        bare.compress(&set.order);
        bare.put_ns.clear();
        Ok(bare)
    }

    /// Compresses all values. Returns nanoseconds for one.
    pub fn compress(&mut self, order: &[usize]) -> f64 {
        let (begun, mut end) = (Instant::now(), 0);
        for n in order {
            let (value, into) = (&self.set.values[*n].1, &mut self.memory[end..]);
            let length = self.hand.block.compress(value, into);
            let length = length.filter(|length| *length < value.len()).unwrap_or_else(|| {
                into[..value.len()].copy_from_slice(value);
                value.len()
            });
            self.places[*n] = (end, length);
            end += length;
        }
        self.put_ns.push(begun.elapsed().as_nanos() as f64 / order.len() as f64);
        self.compressed = end;
        self.put_ns[self.put_ns.len() - 1]
    }

    /// Decompresses all values. Returns nanoseconds for one.
    pub fn decompress(&mut self, order: &[usize]) -> Result<f64> {
        let begun = Instant::now();
        for n in order {
            let (at, length) = self.places[*n];
            let bytes = &self.memory[at..at + length];
            self.hand.unpack_bytes(self.set.values[*n].1.len(), bytes)?;
        }
        self.get_ns.push(begun.elapsed().as_nanos() as f64 / order.len() as f64);
        Ok(self.get_ns[self.get_ns.len() - 1])
    }
}
