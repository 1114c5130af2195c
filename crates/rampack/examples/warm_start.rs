//! A cache that is warm when its program starts: what it had is in a file, which is saved at the
//! end, or from time to time, while other threads use it.
//!
//! ```sh
//! cargo run --release -p rampack --example warm_start
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use rampack::{Error, Rampack, Store, StoreOptions};

/// The cache, with what the file has. A file that is not whole leaves it empty.
fn open(path: &Path) -> Result<Store, Box<dyn std::error::Error>> {
    let store = Rampack::new()?.store(StoreOptions::new().limit(64 << 20))?;
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(file) => match store.load(file) {
            Ok(values) => println!("{values} values are there"),
            Err(Error::Invalid(why)) => println!("it begins empty: {why}"),
            Err(error) => return Err(error.into()),
        },
    }
    Ok(store)
}

/// Saves the cache, in place of the file: that is the last whole one at any time.
fn save(store: &Store, path: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let new = path.with_extension("new");
    let file = File::create(&new)?;
    let values = store.save(&file)?;
    file.sync_all()?;
    fs::rename(new, path)?;
    Ok(values)
}

fn run(path: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let store = open(path)?;
    for page in 0..1000 {
        let url = format!("https://example.org/{page}");
        if !store.contains(&url) {
            store.put(&url, format!("<p>the page {page}</p>").repeat(page % 50))?;
        }
    }
    save(&store, path)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("rampack-warm-start-{}", std::process::id()));
    for _ in 0..2 {
        println!("{} values are saved", run(&path)?);
    }
    fs::remove_file(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    #[test]
    fn it_is_warm_unless_the_file_is_damaged() {
        let place = TempDir::new();
        let path = place.join("cache");
        assert_eq!(run(&path).unwrap(), 1000);
        assert_eq!(open(&path).unwrap().stats().values, 1000);
        let file = fs::read(&path).unwrap();
        fs::write(&path, &file[..file.len() / 2]).unwrap();
        assert_eq!(open(&path).unwrap().stats().values, 0);
        assert_eq!(run(&path).unwrap(), 1000);
        assert_eq!(open(&path).unwrap().stats().values, 1000);
    }
}
