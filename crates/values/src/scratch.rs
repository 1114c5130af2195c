//! The buffers of a thread that reads or makes a value. All their memory is there before they are
//! used.

use alloc::{boxed::Box, format, vec, vec::Vec};

use units::PAGE_SIZE;
use zcomp::{Block, Compressor};

use crate::outcome::NoStore;
use crate::{MAX_VALUE, UNITS};

/// The most bytes of a value that is compressed with others.
pub(crate) const SMALL: usize = 1 << 10;

/// The most bytes of the members of a group. Groups of twice as many take a tenth less memory, and
/// each read nearly twice the time (records in JSON, with lz4).
pub(crate) const GROUP: usize = 8 << 10;

/// The most words of the list of a value in units of `unit` bytes.
fn most_words(unit: usize) -> usize {
    MAX_VALUE / unit * (1 + (unit / PAGE_SIZE).max(2))
}

/// For a thread that reads a value.
pub(crate) struct Reading {
    pub(crate) block: Box<dyn Block>,
    /// Of the second codec.
    pub(crate) cold: Option<Box<dyn Block>>,
    /// The bytes of a unit in one piece.
    pub(crate) packed: Vec<u8>,
    /// A unit of which a part is wanted.
    pub(crate) unit: Vec<u8>,
    /// The list of the value.
    pub(crate) list: Vec<u32>,
    /// The group that was read last, and its tag; 0 for none.
    pub(crate) group: Vec<u8>,
    pub(crate) group_bytes: usize,
    pub(crate) tag: u64,
}

/// For a thread that makes a value.
pub(crate) struct Making {
    pub(crate) block: Box<dyn Block>,
    pub(crate) packed: Vec<u8>,
    pub(crate) list: Vec<u32>,
}

impl Reading {
    pub(crate) fn new(
        codec: &dyn Compressor,
        cold: Option<&dyn Compressor>,
        unit: usize,
    ) -> Result<Reading, NoStore> {
        let most = unit.max(GROUP);
        Ok(Reading {
            block: block(codec, most)?,
            cold: cold.map(|codec| block(codec, most)).transpose()?,
            packed: vec![0; most],
            unit: vec![0; most],
            list: Vec::with_capacity(most_words(unit)),
            group: vec![0; GROUP],
            group_bytes: 0,
            tag: 0,
        })
    }
}

impl Making {
    pub(crate) fn new(codec: &dyn Compressor, unit: usize) -> Result<Making, NoStore> {
        let most = unit.max(GROUP);
        Ok(Making {
            block: block(codec, most)?,
            packed: vec![0; most],
            list: Vec::with_capacity(most_words(unit)),
        })
    }
}

/// Makes what a thread needs to run a codec on up to `most` bytes.
pub(crate) fn block(codec: &dyn Compressor, most: usize) -> Result<Box<dyn Block>, NoStore> {
    let block = codec.block(most).map_err(|error| NoStore::NoMemory(format!("{error}")))?;
    block.ok_or_else(|| {
        let name = codec.name();
        NoStore::Invalid(format!(
            "{name} compresses pages only: lz4, lz4hc, zstd and deflate are allowed for values"
        ))
    })
}

/// Checks the size of a unit.
pub(crate) fn judge_unit(unit: usize) -> Result<(), NoStore> {
    if UNITS.contains(&unit) {
        return Ok(());
    }
    Err(NoStore::Invalid(format!(
        "units of {unit} bytes: 4096, 8192, 16384, 32768 and 65536 are allowed"
    )))
}
