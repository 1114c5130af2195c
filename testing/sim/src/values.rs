//! Operations on a store of values beside a model, which is a map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use units::Cpu;
use values::{At, Cursor, GetError, LoadError, Options, PutError, PutOptions, Reason, Values};

/// Keys that the operations are on.
const KEYS: usize = 192;
/// Bytes that a store may take above its limit: its tables grow before it makes room for them.
const ABOVE: u64 = 64 << 10;

/// Lengths at which a value is kept in another way.
const LENGTHS: [usize; 28] = [
    0, 1, 7, 8, 9, 1023, 1024, 1025, 2000, 3000, 3820, 3830, 3900, 4070, 4078, 4084, 4096, 4097,
    8192, 10_000, 16_383, 16_384, 16_385, 40_000, 65_536, 65_537, 100_000, 200_000,
];

/// A value that left by itself, as the store said it: its key, its bytes and why.
type Left = (Vec<u8>, Vec<u8>, Reason);

/// The contents of a value and the second at which its life ends.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, u32)>;

/// Does the operations that the bytes of `next` say, until there are no more, and compares each
/// outcome with the model. `make` makes the store with the options that it gets, and others without
/// a limit that load its snapshots; `cloned` clones it. Its limit may be any; it may evict or
/// refuse.
///
/// # Panics
/// When the store differs from the model.
pub fn run(
    mut options: Options,
    make: impl Fn(Options) -> Values,
    cloned: fn(&Values) -> Values,
    next: impl FnMut() -> Option<u8>,
) {
    let left = Arc::new(Mutex::new(Vec::<Left>::new()));
    let tell = left.clone();
    options.evicted = Some(Box::new(move |evicted| {
        let mut value = vec![0; evicted.value_len()];
        assert_eq!(evicted.read(&mut value), Ok(value.len()));
        let left = (evicted.key().to_vec(), value, evicted.reason());
        tell.lock().expect("no panic before").push(left);
    }));
    let (limit, evict) = (options.limit, options.evict);
    let values = make(options);
    let mut world = World {
        make,
        cloned,
        values,
        left,
        limit,
        evict,
        now: 1,
        model: Model::new(),
        clone: None,
        next,
        made: 0,
    };
    while world.step().is_some() {
        world.compare_counts();
    }
    world.compare_clone();
    world.compare_all();
    world.values.clear(world.at());
    let stats = world.values.stats();
    assert_eq!((stats.values, stats.data_bytes, stats.groups), (0, 0, 0), "after all was cleared");
    assert_eq!(stats.pool_bytes, 0, "objects that nothing names");
}

/// The kinds and contents of the records of a snapshot.
pub fn saved(values: &Values, at: At) -> Vec<(u32, Vec<u8>)> {
    let (mut saving, mut records) = (values.saving(7), Vec::new());
    while let Some((kind, contents)) = saving.next_record(at).expect("no damage") {
        records.push((kind, contents.to_vec()));
    }
    records
}

/// Loads a snapshot, and returns the number of its values.
///
/// # Errors
/// As of [`values::Loading`].
///
/// # Panics
/// When the last record is not there.
pub fn load(values: &Values, at: At, records: &[(u32, Vec<u8>)]) -> Result<u64, LoadError> {
    let (mut loading, mut is_whole) = (values.loading(at.cpu), false);
    for (kind, contents) in records {
        is_whole = loading.take(at, *kind, contents)?;
    }
    assert!(is_whole, "the snapshot has no end");
    loading.publish(at.cpu)
}

/// The key of a number: some are empty, long, or almost as others.
pub fn key(number: usize) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        1..8 => vec![number as u8; values::MAX_KEY],
        8..16 => vec![0; number],
        _ => format!("user:{number:05}:profile").into_bytes(),
    }
}

/// Contents of `length` bytes of one of five kinds.
pub fn contents(kind: u8, length: usize, seed: u64) -> Vec<u8> {
    let mut noise = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise
    };
    let mut value = Vec::with_capacity(length + 16);
    while value.len() < length {
        match kind % 5 {
            0 => value.extend_from_slice(&random().to_ne_bytes()),
            1 => value.extend_from_slice(&seed.to_ne_bytes()),
            2 => value.extend(format!("\"n\":{},", random() % 100).bytes()),
            // Units of all kinds in one value.
            3 if value.len() / 16_384 % 3 == 1 => value.extend_from_slice(&[7; 16]),
            3 if value.len() / 16_384 % 3 == 2 => value.extend_from_slice(&random().to_ne_bytes()),
            _ => value.extend(format!("name-{} active=true ", seed % 1000).bytes()),
        }
    }
    value.truncate(length);
    value
}

struct World<N, M> {
    make: M,
    cloned: fn(&Values) -> Values,
    values: Values,
    left: Arc<Mutex<Vec<Left>>>,
    limit: Option<u64>,
    evict: bool,
    now: u32,
    model: Model,
    /// A clone, with the model of its instant.
    clone: Option<(Values, Model)>,
    next: N,
    made: u64,
}

impl<N: FnMut() -> Option<u8>, M: Fn(Options) -> Values> World<N, M> {
    fn at(&self) -> At {
        At { cpu: Cpu(self.made as u32 % 3), now: self.now }
    }

    fn key(&mut self) -> Option<Vec<u8>> {
        Some(key(usize::from((self.next)()?) % KEYS))
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let (kind, length) = ((self.next)()?, (self.next)()?);
        self.made += 1;
        let length = match length {
            0..160 => usize::from(length) * 6,
            // The list of such a value is long, if its units are small.
            255 if kind.is_multiple_of(16) => 3 << 20,
            160.. => LENGTHS[usize::from(length) % LENGTHS.len()],
        };
        Some(contents(kind, length, self.made))
    }

    fn step(&mut self) -> Option<()> {
        match (self.next)()? % 32 {
            0..13 => self.put()?,
            13..19 => {
                let key = self.key()?;
                self.get(&key);
            }
            19..21 => self.get_range()?,
            21..24 => {
                let key = self.key()?;
                let removed = self.values.remove(self.at(), &key);
                let old = self.model.remove(&key);
                assert_eq!(removed, old.is_some_and(|(_, expires)| lives(expires, self.now)));
            }
            24 => {
                let seconds = (self.next)()?;
                self.now += u32::from(seconds % 16);
            }
            25..27 => {
                let budget = usize::from((self.next)()?);
                self.values.upkeep(self.at(), budget);
                self.take_left();
            }
            27 => {
                self.values.compact(self.at().cpu);
                let how = (self.next)()?;
                match how % 8 {
                    0 => self.compare_saved(how),
                    1..4 if self.clone.is_none() => {
                        let clone = (self.cloned)(&self.values);
                        self.clone = Some((clone, self.model.clone()));
                    }
                    4 => self.compare_clone(),
                    _ => {}
                }
            }
            28 => self.compare_keys(),
            29 => self.get_many()?,
            30 => self.put_many()?,
            _ => {
                if (self.next)()?.is_multiple_of(8) {
                    self.values.clear(self.at());
                    self.model.clear();
                }
            }
        }
        Some(())
    }

    fn put(&mut self) -> Option<()> {
        let key = self.key()?;
        let value = self.value()?;
        let ttl = (self.next)()?;
        let ttl = ttl.is_multiple_of(4).then_some(u32::from(ttl / 4));
        let put = self.values.put(self.at(), &key, &value, PutOptions { ttl });
        self.take_left();
        self.note(key, value, ttl, put);
        Some(())
    }

    fn note(&mut self, key: Vec<u8>, value: Vec<u8>, ttl: Option<u32>, put: Result<(), PutError>) {
        match put {
            Ok(()) => {
                let expires = ttl.map_or(0, |ttl| (self.now + ttl).max(1));
                self.model.insert(key, (value, expires));
            }
            Err(PutError::Full) => {
                let limit = self.limit.expect("without a limit there is room");
                assert!(!self.evict || value.len() as u64 > limit / 4, "{} bytes", value.len());
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// The values that left by themselves were there, and had a reason.
    fn take_left(&mut self) {
        for (key, value, reason) in self.left.lock().expect("no panic before").drain(..) {
            let (was, expires) = self.model.remove(&key).expect("a key that was there");
            assert!(was == value, "the value that left is not the one that was there");
            match reason {
                Reason::Expired => assert!(!lives(expires, self.now), "its life had not ended"),
                _ => assert!(self.evict && self.limit.is_some(), "nothing wanted its room"),
            }
        }
    }

    fn expected(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.expected_at(key, self.now)
    }

    fn expected_at(&self, key: &[u8], now: u32) -> Option<&Vec<u8>> {
        let (value, expires) = self.model.get(key)?;
        lives(*expires, now).then_some(value)
    }

    /// Another store that loads a snapshot has the values, for as long as they have to live.
    fn compare_saved(&self, how: u8) {
        let unit = if how & 8 == 0 { 16_384 } else { 4096 };
        let other = (self.make)(Options { unit, group: how & 16 == 0, ..Options::default() });
        let at = At { now: 1000, ..self.at() };
        other.put(at, b"other", b"it stays", PutOptions::default()).expect("no limit");
        load(&other, at, &saved(&self.values, self.at())).expect("it is whole");
        let read = |name: &[u8], at| other.get_vec(at, name).expect("no damage");
        for number in 0..KEYS {
            let name = key(number);
            for later in [0, 3, 60] {
                let at = At { now: at.now + later, ..at };
                let expected = self.expected_at(&name, self.now + later);
                assert!(read(&name, at).as_ref() == expected, "{number} after {later} seconds");
            }
        }
        assert_eq!(read(b"other", at).as_deref(), Some(&b"it stays"[..]));
        other.clear(at);
        let stats = other.stats();
        assert_eq!((stats.values, stats.data_bytes, stats.pool_bytes), (0, 0, 0), "{stats:?}");
    }

    /// The clone has what there was at its instant, but for what was evicted. Then it ends.
    fn compare_clone(&mut self) {
        let Some((clone, model)) = self.clone.take() else { return };
        for (name, (value, expires)) in &model {
            let got = clone.get_vec(self.at(), name).expect("no damage");
            let may_be_gone = self.evict && self.limit.is_some() || !lives(*expires, self.now);
            assert!(got.as_ref() == Some(value) || got.is_none() && may_be_gone, "of a clone");
        }
        assert!(clone.stats().values <= model.len() as u64);
        // What it puts and removes is its own.
        if let Some((name, _)) = self.model.first_key_value() {
            clone.remove(self.at(), name);
            let _ = clone.put(self.at(), &key(KEYS - 1), b"of the clone", PutOptions::default());
            self.take_left();
        }
    }

    fn get(&self, key: &[u8]) {
        let expected = self.expected(key);
        let length = expected.map_or(0, Vec::len);
        let mut into = vec![0xa5; length + 1];
        let got = self.values.get(self.at(), key, &mut into);
        assert_eq!(got, Ok(expected.map(Vec::len)));
        assert!(expected.is_none_or(|value| *value == into[..length]), "{} bytes", length);
        assert_eq!(into[length], 0xa5, "a byte behind the value");
        assert_eq!(self.values.len_of(self.at(), key), expected.map(Vec::len));
        assert_eq!(self.values.contains(self.at(), key), expected.is_some());
        if length > 0 {
            let short = self.values.get(self.at(), key, &mut into[..length - 1]);
            assert_eq!(short, Err(GetError::TooSmall(length)));
        }
    }

    fn get_range(&mut self) -> Option<()> {
        let key = self.key()?;
        let (from, bytes) = ((self.next)()?, (self.next)()?);
        let expected = self.expected(&key);
        let length = expected.map_or(0, Vec::len);
        let from = (length + 2) * usize::from(from) / 256;
        let mut into = vec![0; (length + 2) * usize::from(bytes) / 256];
        let got = self.values.get_range(self.at(), &key, from, &mut into);
        let part = expected.map(|value| {
            let from = from.min(length);
            &value[from..(from + into.len()).min(length)]
        });
        assert_eq!(got, Ok(part.map(<[u8]>::len)));
        assert!(part.is_none_or(|part| *part == into[..part.len()]), "{length} bytes from {from}");
        Some(())
    }

    fn get_many(&mut self) -> Option<()> {
        let keys = (0..4).map(|_| self.key()).collect::<Option<Vec<_>>>()?;
        let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let got = self.values.get_vecs(self.at(), &names).expect("no damage");
        for (key, got) in keys.iter().zip(&got) {
            assert!(got.as_ref() == self.expected(key), "of several at once");
        }
        Some(())
    }

    fn put_many(&mut self) -> Option<()> {
        let all = [(); 3].map(|()| Some((self.key()?, self.value()?)));
        let all = all.into_iter().collect::<Option<Vec<_>>>()?;
        // At a limit a value may go for the next one: then there is one at a time.
        let step = if self.limit.is_none() { all.len() } else { 1 };
        for part in all.chunks(step) {
            let pairs: Vec<(&[u8], &[u8])> = part.iter().map(|(k, v)| (&k[..], &v[..])).collect();
            let put = self.values.put_many(self.at(), &pairs, PutOptions::default());
            self.take_left();
            let put = put.map(|stored| assert_eq!(stored, part.len())).map_err(|(_, error)| error);
            for (key, value) in part {
                self.note(key.clone(), value.clone(), None, put);
            }
        }
        Some(())
    }

    fn compare_keys(&self) {
        let (mut seen, mut cursor) = (BTreeSet::new(), Some(Cursor::default()));
        while let Some(at) = cursor {
            cursor = self.values.keys(self.at(), at, |key, length| {
                assert_eq!(self.expected(key).map(Vec::len), Some(length));
                assert!(seen.insert(key.to_vec()), "a key is seen twice");
            });
        }
        let there = self.model.iter().filter(|(_, (_, expires))| lives(*expires, self.now));
        assert_eq!(seen.len(), there.count(), "keys that a walk does not see");
    }

    fn compare_counts(&self) {
        let stats = self.values.stats();
        let data = self.model.iter().map(|(key, (value, _))| key.len() + value.len());
        assert_eq!(stats.values, self.model.len() as u64);
        assert_eq!(stats.data_bytes, data.sum::<usize>() as u64);
        if let Some(limit) = self.limit {
            assert!(stats.memory_bytes <= limit + ABOVE, "{stats:?}");
        }
    }

    fn compare_all(&self) {
        (0..KEYS).for_each(|number| self.get(&key(number)));
        self.compare_keys();
    }
}

fn lives(expires: u32, now: u32) -> bool {
    expires == 0 || expires > now
}
