//! Images of memory in files: core dumps, and pages as they are.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use elf::ElfStream;
use elf::abi::{EI_DATA, EI_NIDENT, ELFDATA2MSB, ELFMAGIC, ET_CORE, PT_LOAD};
use elf::endian::AnyEndian;
use units::PAGE_SIZE;

use crate::error::Error;
use crate::resident::{Resident, Run};

/// A file with pages. Of a core dump (of a process, or of a guest by QEMU's `dump-guest-memory`)
/// the segments that are memory count; of another file every whole page.
#[derive(Debug)]
pub struct Image {
    name: String,
    file: File,
    /// Where its pages are in the file, without overlaps.
    runs: Vec<Run>,
}

impl Image {
    /// Opens a file.
    ///
    /// # Errors
    /// [`Error`] for a file that cannot be opened, is empty, is a core dump with nothing in it, or
    /// is neither a file nor a block device.
    pub fn open(path: &Path) -> Result<Image, Error> {
        let name = path.display().to_string();
        let wrong = |error: io::Error| Error::new(format!("cannot read {name}"), error);
        let file = File::open(path).map_err(wrong)?;
        let bytes = length(&file).map_err(wrong)?;
        let core = if is_core(&file) { Some(segments(&file, bytes).map_err(wrong)?) } else { None };
        let whole = Run { start: 0, end: bytes / PAGE_SIZE as u64 * PAGE_SIZE as u64 };
        let runs = core.unwrap_or_else(|| vec![whole]);
        if runs.iter().all(|run| run.start == run.end) {
            let message = "it has no whole page of memory in it";
            return Err(wrong(io::Error::new(ErrorKind::InvalidData, message)));
        }
        Ok(Image { name, file, runs })
    }

    /// Its path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn resident(&self) -> Resident {
        let bytes = self.runs.iter().map(|run| run.end - run.start).sum();
        Resident { runs: self.runs.clone(), bytes, own: bytes }
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        done
    }
}

/// The bytes of a file or a block device.
fn length(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    let kind = metadata.mode() & 0o170_000;
    match kind {
        0o100_000 => Ok(metadata.len()),
        0o060_000 => {
            use std::io::{Seek, SeekFrom};
            let mut file = file;
            file.seek(SeekFrom::End(0))
        }
        _ => {
            Err(io::Error::new(ErrorKind::InvalidInput, "it is neither a file nor a block device"))
        }
    }
}

/// Is it a core dump? A program, or a part of one, is not.
fn is_core(file: &File) -> bool {
    // The identification (elf(5)) has the byte order in its sixth byte; the type follows.
    let mut begin = [0; EI_NIDENT + 2];
    let read = file.read_exact_at(&mut begin, 0);
    let [.., first, second] = begin;
    let kind = match begin[EI_DATA] {
        ELFDATA2MSB => u16::from_be_bytes([first, second]),
        _ => u16::from_le_bytes([first, second]),
    };
    read.is_ok() && begin[..4] == ELFMAGIC && kind == ET_CORE
}

/// The parts of a core dump that are memory, and whole pages in the file.
fn segments(file: &File, bytes: u64) -> io::Result<Vec<Run>> {
    let invalid = |text: String| io::Error::new(ErrorKind::InvalidData, text);
    let elf = ElfStream::<AnyEndian, _>::open_stream(file)
        .map_err(|error| invalid(format!("it begins as a core dump and is none: {error}")))?;
    let page = PAGE_SIZE as u64;
    let loaded = elf.segments().iter().filter(|segment| segment.p_type == PT_LOAD);
    let mut runs: Vec<Run> = loaded
        .filter(|segment| segment.p_offset < bytes)
        .map(|segment| {
            let length = segment.p_filesz.min(bytes - segment.p_offset) / page * page;
            Run { start: segment.p_offset, end: segment.p_offset + length }
        })
        .collect();
    runs.sort_unstable_by_key(|run| run.start);
    let mut free = 0;
    for run in &mut runs {
        run.start = run.start.max(free).min(run.end);
        free = free.max(run.end);
    }
    runs.retain(|run| run.start < run.end);
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn refused(contents: &[u8]) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(contents).unwrap();
        Image::open(file.path()).unwrap_err().to_string()
    }

    #[test]
    fn files_without_memory_are_refused() {
        assert!(refused(&[]).contains("no whole page"));
        assert!(refused(&[1; 4095]).contains("no whole page"));
        let mut core = core_dump();
        core.truncate(100);
        assert!(refused(&core).contains("begins as a core dump and is none"));
        assert!(Image::open(Path::new("/dev/null")).unwrap_err().to_string().contains("neither"));
    }

    #[test]
    fn a_program_is_a_file_like_others() {
        let image = Image::open(Path::new("/proc/self/exe")).unwrap();
        let bytes = std::fs::metadata("/proc/self/exe").unwrap().len();
        assert_eq!(image.resident().bytes, bytes / 4096 * 4096);
        // Also the first part of one, which has no sections.
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&std::fs::read("/proc/self/exe").unwrap()[..8192]).unwrap();
        assert_eq!(Image::open(file.path()).unwrap().resident().bytes, 8192);
    }

    /// A core dump of one note and two segments, of which the second is cut off.
    fn core_dump() -> Vec<u8> {
        let mut core = Vec::new();
        core.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        core.extend(4u16.to_le_bytes());
        core.extend(62u16.to_le_bytes());
        core.extend(1u32.to_le_bytes());
        for word in [0u64, 64, 0] {
            core.extend(word.to_le_bytes());
        }
        core.extend(0u32.to_le_bytes());
        for half in [64u16, 56, 3, 64, 0, 0] {
            core.extend(half.to_le_bytes());
        }
        for (kind, offset, size) in [(4u32, 0u64, 100u64), (1, 4096, 8192), (1, 12288, 9000)] {
            core.extend(kind.to_le_bytes());
            core.extend(6u32.to_le_bytes());
            for word in [offset, 0x1000, 0, size, size, 4096] {
                core.extend(word.to_le_bytes());
            }
        }
        core.resize(12288 + 5000, 7);
        core
    }

    #[test]
    fn damaged_core_dumps_are_read_within_their_bounds_or_refused() {
        let mut random = testkit::Rng::new(testkit::seed("damaged_core_dumps"));
        let (core, file) = (core_dump(), tempfile::NamedTempFile::new().unwrap());
        let mut opened = 0;
        for _ in 0..5000 {
            let mut damaged = core.clone();
            for _ in 0..random.range(1..4) {
                let at = random.below(64 + 3 * 56) as usize;
                damaged[at] = random.next_u64() as u8;
            }
            std::fs::write(file.path(), &damaged).unwrap();
            let Ok(image) = Image::open(file.path()) else { continue };
            opened += 1;
            let runs = image.resident().runs;
            assert!(runs.iter().all(|run| run.start < run.end && run.end <= core.len() as u64));
            assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start), "{runs:?}");
        }
        assert!(opened > 500, "{opened}");
    }

    #[test]
    fn segments_of_a_core_dump_are_its_memory() {
        let core = core_dump();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&core).unwrap();
        let image = Image::open(file.path()).unwrap();
        let expected = [Run { start: 4096, end: 12288 }, Run { start: 12288, end: 16384 }];
        assert_eq!(image.resident().runs, expected);
        let mut page = [0; 4096];
        assert_eq!(image.read(12288, &mut page), 4096);
        assert_eq!(page, [7; 4096]);
        assert_eq!(image.read(12288 + 4096, &mut page), 904);
    }
}
