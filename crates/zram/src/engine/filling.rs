//! What is stored from elsewhere: objects that come as they are.
//!
//! The engine is not published yet, so no other thread uses it.

use alloc::format;

use block::IoError;
use control::{ControlError, Errno};
use objects::{Compressed, Shared};
use sync::Reader;
use units::{Cpu, Page};
use zcomp::{Chosen, NotInstalled};
use zsmalloc::Room;

use super::Engine;
use super::contents::refused;
use crate::engine::page_ops::{By, Maker};
use crate::engine::slot::{Part, Slot};

/// Where objects that come from elsewhere go.
const ROOM: Room = Room::Open;

impl Engine {
    /// The number of a codec of such objects. The calling thread is no reader.
    ///
    /// # Errors
    /// `ENOMEM`, or `EBUSY` when there are too many.
    pub(crate) fn adopt_codec(&self, priority: u8, chosen: Chosen) -> Result<u8, ControlError> {
        self.objects.codecs().adopt(priority, chosen).map_err(|error| {
            let errno = match error {
                NotInstalled::Codec(_) => Errno::ENOMEM,
                NotInstalled::Full => Errno::EBUSY,
            };
            ControlError::new(errno, format!("{error}"))
        })
    }

    /// The slot of a page compressed with the codec of this number.
    ///
    /// # Errors
    /// `NoSpace`, `NoMemory`.
    pub(crate) fn fill_compressed(&self, cpu: Cpu, made: Compressed<'_>) -> Result<Slot, IoError> {
        self.objects.store_packed(cpu, ROOM, made, None).map(Slot::stored).map_err(refused)
    }

    /// The slot of a page that stays as it is.
    ///
    /// # Errors
    /// As [`Engine::fill_compressed`].
    pub(crate) fn fill_huge(&self, cpu: Cpu, page: &Page) -> Result<Slot, IoError> {
        self.objects.store_huge(cpu, ROOM, page).map(Slot::stored).map_err(refused)
    }

    /// The slot of a page filled with a pattern.
    ///
    /// # Errors
    /// As [`Engine::fill_compressed`].
    pub(crate) fn fill_pattern(&self, cpu: Cpu, pattern: u64) -> Result<Slot, IoError> {
        if let Some(slot) = Slot::same_filled(pattern) {
            return Ok(slot);
        }
        let stored = self.objects.store_same_filled(cpu, ROOM, pattern, None);
        stored.map(Slot::stored).map_err(refused)
    }

    /// The slot of a page that is compressed now.
    ///
    /// # Errors
    /// As [`Engine::fill_compressed`].
    pub(crate) fn fill_plain(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        page: &Page,
    ) -> Result<Slot, IoError> {
        let maker = Maker { reader, by: By::any(cpu), room: ROOM, breaks_cut: true };
        self.make(maker, page, || Slot::EMPTY)
    }

    /// The entry of an object that several pages will name, with a reference for the caller.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(crate) fn fill_shared(&self, cpu: Cpu, stored: Slot, pages: usize) -> Result<u32, IoError> {
        let object = stored.object().ok_or(IoError::Corrupt)?;
        self.enter(cpu, Shared { object, pages }).ok_or_else(|| {
            self.release(cpu, stored);
            IoError::NoMemory
        })
    }

    /// The slot of a page that is a part of a shared object.
    pub(crate) fn fill_part(&self, part: Part) -> Slot {
        self.shared.hold(part.entry);
        Slot::shared(part)
    }

    /// Lets an empty page have a slot.
    pub(crate) fn fill(&self, cpu: Cpu, index: usize, slot: Slot) {
        self.note(index);
        self.commit(By::any(cpu), index, slot);
    }
}
