//! A store whose evicted values go to a file, and come back from there when they are wanted: all
//! values are there, the least used on the disk.
//!
//! ```sh
//! cargo run --release -p rampack --example spill
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rampack::{Rampack, Reason, Store, StoreOptions};

/// The most bytes of memory.
const MEMORY: u64 = 1 << 20;

/// Where values are in the file, and where the next one goes.
#[derive(Default)]
struct Places {
    of: HashMap<Vec<u8>, (u64, usize)>,
    end: u64,
    error: Option<io::Error>,
}

/// A store before a file.
struct Spilling {
    values: Store,
    file: Arc<File>,
    places: Arc<Mutex<Places>>,
}

impl Spilling {
    fn create(path: &Path) -> io::Result<Spilling> {
        let options = File::options().read(true).write(true).create(true).truncate(true).open(path);
        let (file, places) = (Arc::new(options?), Arc::new(Mutex::new(Places::default())));
        let (to, list) = (file.clone(), places.clone());
        let options = StoreOptions::new().limit(MEMORY).on_evict(move |left| {
            if left.reason() != Reason::Evicted {
                return;
            }
            let Ok(mut places) = list.lock() else { return };
            let Ok(value) = left.value() else { return };
            let at = places.end;
            match to.write_all_at(&value, at) {
                Ok(()) => {
                    places.end += value.len() as u64;
                    places.of.insert(left.key().to_vec(), (at, value.len()));
                }
                Err(error) => places.error = Some(error),
            }
        });
        Ok(Spilling { values: Rampack::new()?.store(options)?, file, places })
    }

    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.places().of.remove(key.as_bytes());
        self.values.put(key, value)?;
        // A value that went to make room and could not be written is lost.
        self.places().error.take().map_or(Ok(()), Err)
    }

    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        if let Some(value) = self.values.get(key)? {
            return Ok(Some(value));
        }
        let Some((at, length)) = self.places().of.get(key.as_bytes()).copied() else {
            return Ok(None);
        };
        let mut value = vec![0; length];
        self.file.read_exact_at(&mut value, at)?;
        // It is used again: others go for it.
        self.put(key, &value)?;
        Ok(Some(value))
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A record, some of which do not compress.
fn value(number: u64) -> Vec<u8> {
    let mut noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut value = format!("record {number}: ").into_bytes();
    while value.len() < 3000 {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        value.extend(noise.to_ne_bytes());
    }
    value
}

/// Puts more than the memory holds, and reads all of it. Returns how many values are in the file,
/// and the bytes of memory.
fn run(path: &Path) -> io::Result<(usize, u64)> {
    let spilling = Spilling::create(path)?;
    for number in 0..1000 {
        spilling.put(&number.to_string(), &value(number))?;
    }
    for number in (0..1000).rev() {
        let found = spilling.get(&number.to_string())?;
        assert!(found == Some(value(number)), "record {number}");
    }
    assert_eq!(spilling.get("none")?, None);
    let spilled = spilling.places().of.len();
    Ok((spilled, spilling.values.stats().memory_bytes))
}

fn main() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("rampack-spill-{}", std::process::id()));
    let (spilled, memory) = run(&path)?;
    std::fs::remove_file(path)?;
    println!("all values came back: {spilled} are in the file, the rest in {memory} bytes");
    Ok(())
}

#[test]
fn evicted_values_come_back_from_the_file() {
    let path = std::env::temp_dir().join(format!("rampack-spill-test-{}", std::process::id()));
    let (spilled, memory) = run(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert!(spilled > 500 && memory <= MEMORY + (64 << 10), "{spilled} values, {memory} bytes");
}
