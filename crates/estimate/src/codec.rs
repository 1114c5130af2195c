//! A codec, and what a page costs with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use units::{PAGE_SIZE, Page};
use zcomp::{ALGORITHMS, CodecError, Compressor, ExtentPacker, Params, Stream};
use zsmalloc::{RAW_THRESHOLD, SizeClasses};

/// A codec that pages are tried with.
#[derive(Clone)]
pub struct Codec {
    name: String,
    compressor: Arc<dyn Compressor>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Codec").field(&self.name).finish()
    }
}

impl Codec {
    /// Opens the codec of `text`: the name of an algorithm, or `NAME:LEVEL`.
    ///
    /// # Errors
    /// [`CodecError`] for an unknown name, a level that is no number, or one that the codec
    /// refuses.
    pub fn parse(text: &str) -> Result<Codec, CodecError> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => {
                let level = level.parse::<i32>().map_err(|_| {
                    CodecError(format!("the level {level:?} of {name} is no number"))
                })?;
                (name, Some(level))
            }
            None => (text, None),
        };
        if !ALGORITHMS.contains(&name) {
            let known = ALGORITHMS.join(" ");
            return Err(CodecError(format!("no algorithm {name:?}; there are: {known}")));
        }
        let compressor = zcomp::open(name, &Params::at_level(level))?;
        Ok(Codec { name: text.to_owned(), compressor })
    }

    /// The text that it was parsed from.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A codec with its buffers, for one thread.
pub(crate) struct Trial {
    compressor: Arc<dyn Compressor>,
    stream: Stream,
    back: Box<Page>,
}

/// What one page took.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tried {
    /// The bytes of its compressed form, a page for one that is stored as it is.
    pub bytes: usize,
    pub compression: Duration,
    /// None for a page that is stored as it is.
    pub decompression: Duration,
}

impl Trial {
    pub fn new(codec: &Codec) -> Result<Trial, CodecError> {
        let compressor = codec.compressor.clone();
        let stream = Stream::new(&*compressor)?;
        Ok(Trial { compressor, stream, back: Box::new([0; PAGE_SIZE]) })
    }

    /// Compresses a page and decompresses it again.
    pub fn try_page(&mut self, page: &Page) -> Tried {
        let Stream { context, output } = &mut self.stream;
        let start = Instant::now();
        let bytes = context.compress(page, &mut **output);
        let compression = start.elapsed();
        let Some(bytes) = bytes.filter(|bytes| *bytes <= RAW_THRESHOLD) else {
            return Tried { bytes: PAGE_SIZE, compression, decompression: Duration::ZERO };
        };
        let start = Instant::now();
        let bare = self.compressor.decompress_bare(&output[..bytes], &mut self.back);
        let result = bare.unwrap_or_else(|| context.decompress(&output[..bytes], &mut self.back));
        let decompression = start.elapsed();
        debug_assert!(result.is_ok() && *self.back == *page, "a codec changed a page");
        Tried { bytes, compression, decompression }
    }

    /// What compresses extents with this codec.
    pub fn packer(&self) -> Result<ExtentPacker, CodecError> {
        let none = || CodecError(format!("{} packs no pages", self.compressor.name()));
        ExtentPacker::new(self.compressor.packer()?.ok_or_else(none)?)
    }

    /// Reads one page of an extent of this many, and returns how long it took.
    pub fn read_part(&mut self, extent: &[u8], part: (usize, usize), page: &Page) -> Duration {
        let start = Instant::now();
        let read = self.stream.context.decompress_part(extent, part, &mut self.back);
        let time = start.elapsed();
        debug_assert!(read.is_ok() && *self.back == *page, "a codec changed a page");
        time
    }
}

/// The memory that objects cost.
pub(crate) struct Costs {
    classes: SizeClasses,
}

impl Costs {
    pub fn new() -> Costs {
        Costs { classes: SizeClasses::new() }
    }

    /// The size class of an object of `bytes`: a number that grows with the size.
    pub fn class(&self, bytes: usize) -> usize {
        self.classes.index_of(bytes)
    }

    /// The bytes of the slot that an object of `bytes` takes.
    pub fn slot(&self, bytes: usize) -> usize {
        self.classes.get(self.class(bytes)).slot
    }

    /// The bytes of frames that an object of `bytes` takes in a pool with many objects: its share
    /// of a complete zspage.
    pub fn of(&self, bytes: usize) -> f64 {
        let class = self.classes.get(self.classes.index_of(bytes));
        (class.frames * PAGE_SIZE) as f64 / class.slots as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_have_names_and_levels() {
        assert_eq!(Codec::parse("zstd:9").unwrap().name(), "zstd:9");
        let refused = |text: &str| Codec::parse(text).unwrap_err().0;
        assert!(refused("lz5").contains("there are: lzo-rle"));
        assert_eq!(refused("zstd:much"), "the level \"much\" of zstd is no number");
        assert!(refused("zstd:99").contains("99"), "{}", refused("zstd:99"));
    }

    #[test]
    fn a_page_that_does_not_shrink_costs_a_frame() {
        let costs = Costs::new();
        assert_eq!(costs.of(PAGE_SIZE), 4096.0);
        assert!((costs.of(2048) - 2048.0).abs() < 1.0);
        assert!(costs.of(100) >= 100.0 && costs.of(100) < 140.0);
        let mut noise = [0; PAGE_SIZE];
        fastrand::Rng::with_seed(7).fill(&mut noise);
        let mut trial = Trial::new(&Codec::parse("zstd").unwrap()).unwrap();
        assert_eq!(trial.try_page(&noise).bytes, PAGE_SIZE);
        assert!(trial.try_page(&[7; PAGE_SIZE]).bytes < 100);
    }
}
