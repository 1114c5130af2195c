//! Writes the seed inputs of every fuzz target: `fuzz-seeds DIRECTORY` makes `DIRECTORY/TARGET/N`.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let directory = env::args().nth(1).ok_or_else(|| io::Error::other("fuzz-seeds DIRECTORY"))?;
    for target in fuzzing::TARGETS {
        let own = Path::new(&directory).join(target.name);
        fs::create_dir_all(&own)?;
        for (number, seed) in (target.seeds)().into_iter().enumerate() {
            fs::write(own.join(format!("seed{number}")), seed)?;
        }
    }
    Ok(())
}
