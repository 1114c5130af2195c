//! Operations that make stored pages take less memory together than each by itself: neighbours
//! become extents, and equal pages share an object. As the other post-processing: an administrator
//! starts it, one run at a time per device, and readers and writers go on meanwhile.

use alloc::{format, vec::Vec};

use control::{ControlError, Errno};
use objects::Packing;
use units::{PAGE_SIZE, Page};
use zcomp::EXTENT_PAGES;

use crate::counts::Count;
use crate::disk::Density;
use crate::disk::Disk;
use crate::disk::{Which, find};
use crate::engine::Select;
use crate::engine::{Alike, Engine, Packable};
use crate::ops::write_error::ended_early;
use crate::record::OLDEST_LAYOUT;
use crate::resources::CPU;
use crate::tiering::fingerprint;

/// The pages to compress with their neighbours, and the way.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pack {
    /// The kind of pages.
    pub select: Select,
    /// The most pages to pack, in whole extents; `None` for no limit.
    pub max_pages: Option<u64>,
    /// The codec; by default the first that packs pages, from priority 1 on and the primary one
    /// last.
    pub which: Which,
}

/// The pages that may share an object with equal ones.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Share {
    /// The kind of pages.
    pub select: Select,
    /// The most pages that give up their own object; `None` for no limit.
    pub max_pages: Option<u64>,
}

/// A fingerprint, and twice the number of its page, plus one if the page has an object of its own:
/// sorted, equal pages are neighbours, and those that share already come first.
type Print = (u64, u64);

impl Disk {
    /// Compresses neighbouring pages as one, up to four of an aligned group, where they take less
    /// memory then. A read of such a page decompresses its extent; a store, discard or writeback of
    /// it leaves the others as they are. Extents of which half the pages are gone are made anew or
    /// taken apart. Returns how many pages were packed. Runs on the calling thread.
    ///
    /// # Errors
    /// `EINVAL` for a device that is not initialised or a codec that it does not have or that does
    /// not pack pages; `ENOMEM` when it ended early. What was packed by then stays so.
    pub fn pack(&self, what: &Pack) -> Result<u64, ControlError> {
        let _post = self.family().post.lock();
        let engine = self.ready_engine()?;
        let mut packing = self.packing(&engine, &what.which)?;
        let (mut done, end, group) = (0, self.reach(), EXTENT_PAGES);
        let mut first = engine.next_touched(0, end) / group * group;
        while first < end && what.max_pages.is_none_or(|most| done + group as u64 <= most) {
            let last = (first + group).min(end).min(engine.capacity());
            let packed = self.compacting(&engine, &mut || {
                let reader = self.readers.enter(CPU);
                if !engine.objects().is_current(&reader, &packing) {
                    return Ok(None);
                }
                let chosen = Packable::all(what.select);
                engine.pack(&reader, CPU, first..last, chosen, &mut packing).map(Some)
            });
            let Some(packed) = packed.map_err(|error| ended_early("packed", error))? else {
                packing = self.packing(&engine, &what.which)?;
                continue;
            };
            done += packed.pages;
            let next = first + group;
            first = if next < end { engine.next_touched(next, end) / group * group } else { end };
        }
        Ok(done)
    }

    /// The codec that packs pages: the chosen one, or the first that does.
    fn packing(&self, engine: &Engine, which: &Which) -> Result<Packing, ControlError> {
        if *which == Which::default() {
            let packing =
                engine.objects().any_packing(&self.readers.enter(CPU)).map_err(no_memory)?;
            return packing.ok_or_else(|| {
                let message = format!(
                    "no algorithm of {} packs pages: {} does, so give it a priority with \
                     recomp_algorithm",
                    self.name(),
                    zcomp::ZSTD
                );
                ControlError::invalid(message)
            });
        }
        let priority = find(&self.family().settings.lock(), which, 0)? as u8;
        let packing = engine.objects().packing(&self.readers.enter(CPU), priority);
        packing.map_err(no_memory)?.ok_or_else(|| {
            let name = self.chosen_algorithms()[usize::from(priority)].unwrap_or("no algorithm");
            ControlError::invalid(format!("{name} packs no pages; {} does", zcomp::ZSTD))
        })
    }

    /// Lets equal pages share one object, also with pages that share one already. Pages in extents
    /// are left alone, so share before you pack. A store or discard of such a page leaves the
    /// others as they are. Returns how many pages gave up an object of their own. Runs on the
    /// calling thread, and takes 16 bytes for each page that it looks at while it runs.
    ///
    /// # Errors
    /// `EINVAL` for a device that is not initialised; `ENOMEM` when it ended early. What was shared
    /// by then stays so.
    pub fn share(&self, what: &Share) -> Result<u64, ControlError> {
        self.share_by(what, &fingerprint)
    }

    /// The same by another fingerprint: pages of one fingerprint are compared with each other.
    ///
    /// # Errors
    /// Those of [`Disk::share`].
    pub fn share_by(
        &self,
        what: &Share,
        fingerprint: &dyn Fn(&Page) -> u64,
    ) -> Result<u64, ControlError> {
        let _post = self.family().post.lock();
        let engine = self.ready_engine()?;
        let prints = self.prints(&engine, what.select, fingerprint)?;
        let mut alike = Alike::new().ok_or_else(|| no_memory("for the pages to compare".into()))?;
        let mut left = what.max_pages.unwrap_or(u64::MAX);
        let mut done = 0;
        for run in prints.chunk_by(|one, next| one.0 == next.0).filter(|run| run.len() > 1) {
            let mut shared = Ok(());
            for (_, page) in run {
                if left == 0 || shared.is_err() {
                    break;
                }
                let index = (page / 2) as usize;
                shared = engine.share(CPU, index, what.select, &mut alike).map(|shares| {
                    done += u64::from(shares);
                    left -= u64::from(shares);
                });
            }
            engine.end_alike(CPU, &mut alike);
            shared.map_err(|error| ended_early("shared", error))?;
        }
        Ok(done)
    }

    fn prints(
        &self,
        engine: &Engine,
        select: Select,
        fingerprint: &dyn Fn(&Page) -> u64,
    ) -> Result<Vec<Print>, ControlError> {
        let (mut prints, mut page, mut full) = (Vec::new(), [0; PAGE_SIZE], false);
        engine.each(0..self.reach(), |index, _| {
            if full {
                return;
            }
            // Only an unreadable page is bad. Its readers get the error.
            if let Ok(Some(shares)) = engine.look_at(CPU, index, select, &mut page) {
                full = prints.try_reserve(1).is_err();
                if !full {
                    prints.push((fingerprint(&page), 2 * index as u64 + u64::from(!shares)));
                }
            }
        });
        if full {
            return Err(no_memory("for the fingerprints".into()));
        }
        // Those that share already come first.
        prints.sort_unstable_by_key(|(print, page)| (*print, page % 2, *page));
        Ok(prints)
    }

    /// The layout of what outlives the process; the oldest one if nothing does.
    #[must_use]
    pub fn layout(&self) -> u32 {
        let layout = self.with_engine(|engine| engine.record().map(|it| it.layout()));
        layout.flatten().unwrap_or(OLDEST_LAYOUT)
    }

    /// What is there of packing and sharing. Goes through the table of shared objects.
    #[must_use]
    pub fn density(&self) -> Density {
        let packed_pages = self.counts.sum(Count::PackedPages);
        let shared_pages = self.counts.sum(Count::SharedPages);
        let mut density = Density { packed_pages, shared_pages, ..Density::default() };
        self.with_engine(|engine| engine.add_up(&mut density));
        density
    }
}

fn no_memory(why: alloc::string::String) -> ControlError {
    ControlError::new(Errno::ENOMEM, format!("no memory is left: {why}"))
}
