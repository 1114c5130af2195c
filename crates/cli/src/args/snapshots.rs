//! The options of `rampack snapshot`, `rampack restore` and `rampack clone`.

use std::path::PathBuf;

use clap::Args;

pub(super) const SNAPSHOT_NOTES: &str = "\
Everything written before the command began is in it, and nothing written after. Nobody waits for \
it. Pages go as they are compressed; those on a backing device are read from there. While it is \
taken, what is overwritten takes memory; where there is none, the snapshot fails, and no write \
does. What a file system or a database has not written to the device yet is not in it: `sync` \
first, or fsfreeze(8).

Example: rampack snapshot zram0 > zram0.snap";

pub(super) const RESTORE_NOTES: &str = "\
The device shows what was restored only when all of it was read and found sound. A file that was \
cut or changed is refused, with the place, and the device has no size then.

Examples:
  rampack restore < zram0.snap          a new device, with the size and algorithms of the first
  rampack reset zram1 && rampack restore zram1 < zram0.snap
  ssh other rampack snapshot zram0 | rampack restore";

pub(super) const CLONE_NOTES: &str = "\
The clone shares memory with its origin: a page takes memory of its own when one of the two writes \
it. Nobody waits for the clone. It has the size of the origin, its settings and its limit; what is \
set, compacted or written back on one of them is so on all. The memory counts with the origin. An \
origin with clones can be neither removed nor reset. If it outlives its daemon, so do the clones.

Example: rampack clone zram0";

/// `rampack snapshot`.
#[derive(Args, Debug)]
pub struct Snapshot {
    /// The device, such as zram0.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Encrypt and authenticate it with the key in this file: any bytes, eight at least.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// `rampack restore`.
#[derive(Args, Debug)]
pub struct Restore {
    /// A device without a size [default: a new device]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// The file of the key that the snapshot was sealed with.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// `rampack clone`.
#[derive(Args, Debug)]
pub struct Cloning {
    /// The device, such as zram0.
    #[arg(value_name = "NAME")]
    pub name: String,
}
