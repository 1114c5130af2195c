//! Where pages come from.

use crate::image::Image;
use crate::process::Process;

/// A process, or an image of memory.
#[derive(Debug)]
pub enum Source {
    /// The memory of a process that swap could take.
    Process(Process),
    /// A file.
    Image(Image),
}

impl Source {
    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        match self {
            Source::Process(process) => Some(process.pid()),
            Source::Image(_) => None,
        }
    }

    /// The name of the program, or the path of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Source::Process(process) => process.name(),
            Source::Image(image) => image.name(),
        }
    }

    /// Reads what is at an address, and returns how many bytes. It is fewer than asked for where
    /// the memory is gone meanwhile.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> usize {
        match self {
            Source::Process(process) => process.read(address, into),
            Source::Image(image) => image.read(address, into),
        }
    }
}
