//! The types of the engine's page operations beyond a plain store and load.

use objects::Object;
use pagelog::Backed;
use sync::Reader;
use units::{Cpu, Page};
use zsmalloc::Room;

use crate::counts::Counts;
use crate::engine::slot::{Kind, Slot};

/// The place of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loaded {
    /// In memory: the page was filled.
    Page,
    /// On the backing device. The caller that does I/O fetches the block. A reader of the backing
    /// device, entered before the look at the slot, must keep the block from reuse.
    Backed(Backed),
}

/// Who changes a page.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) cpu: Cpu,
    /// The counters of the device that has the page; `None` for a thread that goes through the
    /// pages of several devices. To find them by the slot of a clone takes a lock that all clones
    /// share.
    pub(crate) counts: Option<&'a Counts>,
}

impl By<'_> {
    /// A thread that does not know whose the page is.
    pub(crate) fn any(cpu: Cpu) -> By<'static> {
        By { cpu, counts: None }
    }
}

/// Who makes an object.
#[derive(Clone, Copy)]
pub(crate) struct Maker<'a> {
    /// The calling thread is this reader of the device.
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) by: By<'a>,
    /// Whose frames the object takes.
    pub(crate) room: Room,
    /// A snapshot is given up if there is no room otherwise: for a write, not for a move.
    pub(crate) breaks_cut: bool,
}

/// What was read from a place of the backing device.
#[derive(Clone, Copy)]
pub(crate) struct Fetched<'a> {
    pub(crate) place: Backed,
    pub(crate) page: &'a Page,
}

/// A selection of pages, among those that lie in memory and are not same-filled.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Select {
    /// All pages.
    #[default]
    Any,
    /// Pages not used since they were marked idle.
    Idle,
    /// Pages stored uncompressed.
    Huge,
    /// Pages stored uncompressed that are also idle.
    HugeIdle,
    /// Pages that no codec of the device makes smaller.
    Incompressible,
}

impl Select {
    /// Whether the selection holds this slot.
    #[must_use]
    pub const fn admits(self, slot: Slot) -> bool {
        let huge = match slot.kind() {
            Kind::Stored(Object::Huge(_)) => true,
            Kind::Stored(Object::Compressed { .. }) => false,
            Kind::Shared(part) => part.huge,
            _ => return false,
        };
        match self {
            Select::Any => true,
            Select::Idle => slot.is_idle(),
            Select::Huge => huge,
            Select::HugeIdle => huge && slot.is_idle(),
            Select::Incompressible => slot.is_incompressible(),
        }
    }
}

/// The way to compress pages again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recompression {
    /// The priority of the codec, 1 to 3.
    pub priority: u8,
    /// The pages.
    pub select: Select,
    /// The smallest object in bytes to compress again; a result must be below it. 0 for any.
    pub threshold: usize,
    /// No codec has a higher priority: a page that does not shrink now never will.
    pub last: bool,
}

/// What is fetched ahead of its page.
#[derive(Clone, Copy)]
pub(crate) enum Ahead {
    /// The descriptor of the object's zspage, which says where the object is.
    Zspage,
    /// The first bytes of the object, whose zspage was fetched before.
    Contents,
}
