//! Compression algorithms, with their levels.

use std::fmt;
use std::str::FromStr;

use zcomp::Params;

/// A compression algorithm with its level. What this build lacks has no constant.
///
/// ```
/// use rampack::Algorithm;
///
/// let quick = Algorithm::LZO_RLE;
/// # #[cfg(feature = "zstd")]
/// assert_eq!("zstd:9".parse(), Ok(Algorithm::ZSTD.level(9)));
/// assert_eq!(quick.to_string(), "lzo-rle");
/// assert!("zip".parse::<Algorithm>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Algorithm {
    name: &'static str,
    level: Option<i32>,
}

impl Algorithm {
    /// lzo-rle, the kernel's default for zram.
    pub const LZO_RLE: Algorithm = Algorithm::of(zcomp::LZO_RLE);
    /// lzo.
    pub const LZO: Algorithm = Algorithm::of(zcomp::LZO);
    /// lz4: the fastest. Its level is the acceleration: higher is faster and compresses less.
    #[cfg(any(feature = "lz4", feature = "lz4-rust"))]
    pub const LZ4: Algorithm = Algorithm::of(zcomp::LZ4);
    /// lz4hc: slower to compress, as fast to decompress as lz4.
    #[cfg(feature = "lz4")]
    pub const LZ4HC: Algorithm = Algorithm::of(zcomp::LZ4HC);
    /// zstd: the smallest.
    #[cfg(feature = "zstd")]
    pub const ZSTD: Algorithm = Algorithm::of(zcomp::ZSTD);
    /// deflate, as zlib.
    #[cfg(feature = "deflate")]
    pub const DEFLATE: Algorithm = Algorithm::of(zcomp::DEFLATE);
    /// 842, of the kernel and of IBM's processors.
    pub const EIGHT42: Algorithm = Algorithm::of(zcomp::EIGHT42);

    const fn of(name: &'static str) -> Algorithm {
        Algorithm { name, level: None }
    }

    /// All of this build, at their default levels.
    pub fn all() -> impl Iterator<Item = Algorithm> {
        zcomp::ALGORITHMS.iter().map(|name| Algorithm::of(name))
    }

    /// The same at another level, on the algorithm's own scale. Levels are checked where the
    /// algorithm is used first.
    #[must_use]
    pub const fn level(self, level: i32) -> Algorithm {
        Algorithm { level: Some(level), ..self }
    }

    /// The name that the kernel has for it, such as `lz4`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    pub(crate) fn params(self) -> Params {
        Params::at_level(self.level)
    }
}

impl Default for Algorithm {
    /// lz4; in a build without it lzo-rle.
    fn default() -> Algorithm {
        Algorithm::of(zcomp::DEFAULT_ALGORITHM)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            None => f.write_str(self.name),
            Some(level) => write!(f, "{}:{level}", self.name),
        }
    }
}

/// A text that names no algorithm of this build.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no algorithm {text:?}: there are {}, also with a level, as zstd:9", known())]
pub struct UnknownAlgorithm {
    /// The text.
    pub text: String,
}

fn known() -> String {
    zcomp::ALGORITHMS.join(", ")
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// A name, or a name and a level, as `zstd:9`.
    fn from_str(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let unknown = || UnknownAlgorithm { text: text.to_string() };
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level.parse().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let mut all = zcomp::ALGORITHMS.iter();
        let name = all.find(|other| **other == name).ok_or_else(unknown)?;
        Ok(Algorithm { name, level })
    }
}
