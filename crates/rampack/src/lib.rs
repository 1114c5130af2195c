//! Keeps cold data compressed in memory, for programs.
//!
//! ```
//! # fn main() -> Result<(), rampack::Error> {
//! use rampack::Rampack;
//!
//! let disk = Rampack::new()?.disk(1 << 30)?;
//! let page = [7; 4096];
//! disk.store(0, &page)?;
//! let mut back = [0; 4096];
//! disk.load(0, &mut back)?;
//! assert_eq!(page, back);
//! assert_eq!(disk.stats().pages, 1);
//! disk.discard(0, 1)?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Disk`] has pages of 4096 bytes by number, and ranges of bytes ([`Disk::read_at`]). Any
//! number of threads may use it at once; a load takes no lock that another load waits for.
//!
//! A [`Store`] has values by keys, within a limit of memory ([`Rampack::store`]).
//!
//! | feature | what |
//! |---|---|
//! | `lz4` (default) | [`Algorithm::LZ4`] and [`Algorithm::LZ4HC`], by liblz4 |
//! | `lz4-rust` | lz4 in safe Rust where `lz4` is off; no C compiler is needed |
//! | `zstd`, `deflate` (default) | [`Algorithm::ZSTD`], [`Algorithm::DEFLATE`], by C libraries |
//! | `serve` | `Disk::serve_nbd` |
//! | `swap` | `SwapCache`: pages in memory, the oldest in a file, as zswap has them |
//!
//! lzo, lzo-rle and 842 are always there. The crates `rampack-fuse` and `rampack-ublk` serve a disk
//! as a block device of the kernel: it is a `BlockDevice` of the crate `rampack-block`.

mod algorithm;
mod disk;
mod error;
mod held;
mod instance;
mod kept;
mod options;
mod saved;
#[cfg(feature = "serve")]
mod serve;
mod stats;
mod store;
#[cfg(feature = "swap")]
mod swap_cache;
mod upkeep;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use disk::Disk;
pub use error::Error;
pub use instance::{Builder, Rampack};
pub use options::{Budgets, DiskOptions, WhenFull};
#[cfg(feature = "serve")]
pub use serve::{Address, NbdServer};
pub use stats::{DiskStats, MemoryStats};
pub use store::{Keys, Left, Reason, Store, StoreOptions, StoreStats};
#[cfg(feature = "swap")]
pub use swap_cache::{SwapCache, SwapOptions, SwapStats};
pub use units::{PAGE_SIZE, Page};
pub use upkeep::{Pressure, Upkeep};

/// The program in README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So does that of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/recipes.md")]
struct Recipes;
