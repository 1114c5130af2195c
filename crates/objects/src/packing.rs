//! Extents: neighbouring pages that are compressed as one object.

use alloc::{string::String, sync::Arc};
use core::ops::Range;

use sync::Reader;
use units::Page;
use zcomp::{Compressor, ExtentPacker, PRIORITIES, Plan, ToPlan};

use crate::{Compressed, ENTRY_BYTES, Objects};

/// What one thread needs to pack pages: nothing is added to its memory later.
pub struct Packing {
    compressor: Arc<dyn Compressor>,
    packer: ExtentPacker,
    /// The number of the codec, and its priority.
    codec: u8,
    priority: u8,
}

impl Packing {
    /// The priority of the codec.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// The place of a page of the group.
    ///
    /// # Panics
    /// From [`zcomp::EXTENT_PAGES`] on.
    pub fn page(&mut self, member: usize) -> &mut Page {
        self.packer.page(member)
    }

    /// Compresses a run of the pages as an extent, once; `None` if they do not fit.
    pub fn compress(&mut self, run: Range<usize>) -> Option<Compressed<'_>> {
        let codec = self.codec;
        self.packer.compress(run).map(|bytes| Compressed { bytes, codec })
    }

    /// See [`ExtentPacker::plan`].
    pub fn plan(
        &mut self,
        objects: &Objects,
        group: ToPlan,
        alone: impl FnMut(usize, &Page) -> Option<usize>,
    ) -> Option<Plan> {
        self.packer.plan(group, |length| objects.extent_bytes(length), alone)
    }
}

impl Objects {
    /// What a thread needs to pack pages with the codec of a priority, at its level; `None` if the
    /// codec packs no pages, or there is none.
    ///
    /// # Errors
    /// Says that there is no memory.
    pub fn packing(&self, reader: &Reader<'_>, priority: u8) -> Result<Option<Packing>, String> {
        let Some((codec, current)) = self.codecs().current(reader, priority) else {
            return Ok(None);
        };
        let compressor = current.chosen.compressor.clone();
        let Some(packer) = compressor.packer().map_err(|error| error.0)? else {
            return Ok(None);
        };
        let packer = ExtentPacker::new(packer).map_err(|error| error.0)?;
        Ok(Some(Packing { compressor, packer, codec, priority }))
    }

    /// The same with the first codec that packs pages, from priority 1 on and the primary one last.
    ///
    /// # Errors
    /// Says that there is no memory.
    pub fn any_packing(&self, reader: &Reader<'_>) -> Result<Option<Packing>, String> {
        for priority in (1..PRIORITIES as u8).chain([0]) {
            if let Some(packing) = self.packing(reader, priority)? {
                return Ok(Some(packing));
            }
        }
        Ok(None)
    }

    /// Whether the codec is still the one of its priority.
    #[must_use]
    pub fn is_current(&self, reader: &Reader<'_>, packing: &Packing) -> bool {
        let current = self.codecs().current(reader, packing.priority);
        current.is_some_and(|(number, codec)| {
            number == packing.codec && Arc::ptr_eq(&codec.chosen.compressor, &packing.compressor)
        })
    }

    /// The bytes that an extent of `length` bytes takes, with its entry.
    #[must_use]
    pub fn extent_bytes(&self, length: usize) -> usize {
        self.pool().slot_bytes(length) + ENTRY_BYTES as usize
    }
}
