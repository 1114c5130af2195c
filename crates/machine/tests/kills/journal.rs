//! What was begun and what is done, in a file that outlives the process: two numbers for each
//! thing. A thing has one writer.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub struct Journal(File);

impl Journal {
    pub fn open(path: &Path) -> Journal {
        let mut options = File::options();
        Journal(options.read(true).write(true).create(true).truncate(false).open(path).unwrap())
    }

    fn put(&self, at: u64, value: u64) {
        self.0.write_all_at(&value.to_ne_bytes(), at).unwrap();
    }

    pub fn begin(&self, thing: usize, value: u64) {
        self.put(thing as u64 * 16, value);
    }

    pub fn done(&self, thing: usize, value: u64) {
        self.put(thing as u64 * 16 + 8, value);
    }

    /// What was begun last, and what was done last; zero at first.
    pub fn get(&self, thing: usize) -> (u64, u64) {
        let mut bytes = [0; 16];
        // Beyond the end of the file nothing was begun.
        let _ = self.0.read_at(&mut bytes, thing as u64 * 16).unwrap();
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        (number(0), number(8))
    }
}
