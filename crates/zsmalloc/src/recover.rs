//! Recovery of a pool whose process died: the descriptors and the frames are there, in memory that
//! outlived it.
//!
//! # Definitions
//! An object is *named* if the owner of the handles still has its handle. Everything else follows
//! from the names: which slots are used, which frames belong to a chain, which numbers of zspages
//! are unused, and all lists and counts.
//!
//! # Invariants
//! At each instant of a process that uses the pool:
//! * The number in descriptor 0 is above each zspage that an object is named in.
//! * The class of such a zspage, and the frames that its named objects lie in, are in its
//!   descriptor.
//! * A frame is in one chain at most. It leaves a chain before it is freed, and is allocated before
//!   it is entered.
//! * A slot has one name at most.
//!
//! What breaks them is told with numbers, such as K16: docs/internals/kept-state.md has the list.
//!
//! # Operations
//! [`Recovery::survey`] for all pools of the zone, [`Recovery::mark`] for each name,
//! [`Recovery::settle`] for all pools; then the zone adopts the frames, then [`Recovery::finish`].
//! A process that dies meanwhile leaves a state that can be recovered as the one before.

use alloc::{format, string::String, sync::Arc};
use core::fmt;

use pagealloc::{FrameSet, MemoryProvider, NoMemory};
use sync::atomic::{AtomicBool, Ordering};
use units::Frame;

use crate::class::{CHAIN_MAX, SizeClass};
use crate::fullness::group_of;
use crate::handle::Handle;
use crate::pool::Pool;
use crate::zspage::{NO_GROUP, Zspage};

/// Why a handle names no object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadObject {
    /// No zspage ever had this number.
    NoZspage(u32),
    /// No size class has the number that is in the descriptor of this zspage.
    NoClass(u32),
    /// The zspage has fewer slots.
    NoSlot(u32),
    /// The object has no bytes, or more than a slot of this zspage.
    Length(u32),
    /// A frame that the object lies in is not in the chain of this zspage.
    NoFrame(u32),
    /// A frame that the object lies in is in two chains, or twice in this one.
    SharedFrame(u32),
    /// The slot has another name already.
    Taken(u32),
    /// The slot is free.
    Free(u32),
}

impl fmt::Display for BadObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadObject::NoZspage(zspage) => write!(f, "there is no zspage {zspage} (K16)"),
            BadObject::NoClass(zspage) => write!(f, "zspage {zspage} has no size class (K16)"),
            BadObject::NoSlot(zspage) => write!(f, "zspage {zspage} has no such slot (K16)"),
            BadObject::Length(zspage) => {
                write!(f, "it has not the length of a slot of zspage {zspage} (K16)")
            }
            BadObject::NoFrame(zspage) => write!(f, "zspage {zspage} has no frame for it (K16)"),
            BadObject::SharedFrame(zspage) => {
                write!(f, "its frame in zspage {zspage} belongs to another chain too (K16)")
            }
            BadObject::Taken(zspage) => {
                write!(f, "another page has the same object in zspage {zspage} (K17)")
            }
            BadObject::Free(zspage) => write!(f, "its slot of zspage {zspage} is free"),
        }
    }
}

impl core::error::Error for BadObject {}

/// Why a pool cannot be recovered. What was left is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// Its objects lie in other size classes than this program has.
    SizeClasses,
    /// Memory is out.
    NoMemory(NoMemory),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::SizeClasses => {
                f.write_str("its objects lie in other size classes than this program has (K8)")
            }
            Unfit::NoMemory(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Unfit {}

/// The frames in the chains of all pools of a zone.
pub struct Census {
    seen: FrameSet,
    shared: FrameSet,
    any_shared: AtomicBool,
}

impl Census {
    /// An empty census, for frames below `frames`.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no addresses.
    pub fn new(provider: &dyn MemoryProvider, frames: u32) -> Result<Census, NoMemory> {
        let set = || FrameSet::new(provider, frames);
        Ok(Census { seen: set()?, shared: set()?, any_shared: AtomicBool::new(false) })
    }

    /// Notes that the frame is in a chain. Returns whether it is in another one too.
    fn note(&self, frame: Frame) -> bool {
        let shared = !self.seen.insert(frame);
        if shared {
            self.shared.insert(frame);
            self.any_shared.store(true, Ordering::Relaxed);
        }
        shared
    }

    fn is_shared(&self, frame: Frame) -> bool {
        self.any_shared.load(Ordering::Relaxed) && self.shared.contains(frame)
    }
}

/// The recovery of a pool. Nobody uses the pool otherwise until the recovery is finished. Every
/// method gets the pool that was surveyed.
pub struct Recovery {
    census: Arc<Census>,
    /// One more than the highest number of a zspage.
    fresh: u32,
}

fn class_of<'a>(pool: &'a Pool, zspage: &Zspage) -> Option<&'a SizeClass> {
    let class = zspage.class();
    (class < pool.sizes.count()).then(|| pool.sizes.get(class))
}

/// The zspage of a handle, if an object of `length` bytes can be there and none of its frames is
/// `bad`. Numbers of zspages are below `fresh`.
fn find(
    pool: &Pool,
    fresh: u32,
    handle: Handle,
    length: usize,
    bad: impl Fn(Frame) -> bool,
) -> Result<&Zspage, BadObject> {
    let id = handle.zspage();
    if !(1..fresh).contains(&id) {
        return Err(BadObject::NoZspage(id));
    }
    let zspage = pool.zspages.get(id as usize);
    let class = class_of(pool, zspage).ok_or(BadObject::NoClass(id))?;
    if handle.slot() >= class.slots {
        return Err(BadObject::NoSlot(id));
    }
    if !(1..=class.slot).contains(&length) {
        return Err(BadObject::Length(id));
    }
    let (first, last) = class.frames_of(handle.slot());
    for n in first..=last {
        let frame = zspage.frame(n).filter(|frame| frame.0 < pool.frames.capacity());
        if bad(frame.ok_or(BadObject::NoFrame(id))?) {
            return Err(BadObject::SharedFrame(id));
        }
    }
    Ok(zspage)
}

impl Pool {
    /// Whether an object of `length` bytes is where the handle says: for checks of a pool at rest.
    ///
    /// # Errors
    /// [`BadObject`] says why there is none.
    pub fn look_for(&self, handle: Handle, length: usize) -> Result<(), BadObject> {
        let fresh = self.ids.lock().fresh;
        let zspage = find(self, fresh, handle, length, |_| false)?;
        match zspage.used() & 1 << handle.slot() {
            0 => Err(BadObject::Free(handle.zspage())),
            _ => Ok(()),
        }
    }
}

impl Recovery {
    /// Looks at each descriptor of a pool that was made over the memory of another process and has
    /// not been used. Forgets which slots were used. Passes what cannot be right to `finding`.
    ///
    /// # Errors
    /// [`Unfit`] if it has other size classes, or if the table is provided ahead and memory is out.
    pub fn survey(
        pool: &Pool,
        census: Arc<Census>,
        mut finding: impl FnMut(String),
    ) -> Result<Recovery, Unfit> {
        let entries = pool.zspages.len();
        let provide = |entries: usize| match pool.zspages.provide(entries) {
            true => Ok(()),
            false => Err(Unfit::NoMemory(NoMemory { bytes: entries * size_of::<Zspage>() })),
        };
        provide(1)?;
        let first = pool.zspages.get(0);
        let saved = first.next.load(Ordering::Relaxed).max(1);
        let mark = first.previous.load(Ordering::Relaxed);
        if saved > 1 && mark != pool.sizes.mark() {
            return Err(Unfit::SizeClasses);
        }
        if saved as usize > entries {
            finding(format!("{saved} zspages were used, and there is room for {entries} (K8)"));
        }
        let fresh = saved.min(entries as u32);
        provide(fresh as usize)?;
        let recovery = Recovery { census, fresh };
        for id in 1..fresh {
            recovery.look_at(pool, id, &mut finding);
        }
        Ok(recovery)
    }

    fn look_at(&self, pool: &Pool, id: u32, finding: &mut impl FnMut(String)) {
        let zspage = pool.zspages.get(id as usize);
        zspage.set_used(0);
        zspage.group.store(NO_GROUP, Ordering::Relaxed);
        let class = class_of(pool, zspage);
        if class.is_none() {
            let number = zspage.class();
            finding(format!("zspage {id} has size class {number}, which there is not (K9)"));
        }
        let places = class.map_or(0, |class| class.frames);
        for n in 0..CHAIN_MAX {
            let Some(frame) = zspage.frame(n) else { continue };
            if frame.0 >= pool.frames.capacity() {
                finding(format!("zspage {id} has frame {}, which there is not (K10)", frame.0));
            } else if self.census.note(frame) {
                finding(format!("zspage {id} has frame {}, which another has too (K11)", frame.0));
            } else if n >= places && class.is_some() {
                finding(format!("zspage {id} has a frame beyond its chain (K12)"));
            }
        }
    }

    /// Looks whether an object of `length` bytes can be there, and takes nothing. Its bytes can be
    /// read then.
    ///
    /// # Errors
    /// [`BadObject`] says why there is no such object.
    pub fn look(&self, pool: &Pool, handle: Handle, length: usize) -> Result<(), BadObject> {
        let shared = |frame| self.census.is_shared(frame);
        find(pool, self.fresh, handle, length, shared).map(|_| ())
    }

    /// Takes the slot of an object that is named, if an object of `length` bytes can be there. Any
    /// number of threads may call it at once.
    ///
    /// # Errors
    /// [`BadObject`] says why there is no such object. The slot is free then, unless it is
    /// [`BadObject::Taken`].
    pub fn mark(&self, pool: &Pool, handle: Handle, length: usize) -> Result<(), BadObject> {
        let shared = |frame| self.census.is_shared(frame);
        let zspage = find(pool, self.fresh, handle, length, shared)?;
        let id = handle.zspage();
        if zspage.take(handle.slot()) { Ok(()) } else { Err(BadObject::Taken(id)) }
    }

    /// Frees a slot that was taken: its object turned out to have two names.
    pub fn unmark(&self, pool: &Pool, handle: Handle) {
        let zspage = pool.zspages.get(handle.zspage() as usize);
        zspage.set_used(zspage.used() & !(1 << handle.slot()));
    }

    /// Takes frames without a named object out of the chains, and adds the others to `live`. Every
    /// name has been marked.
    pub fn settle(&self, pool: &Pool, live: &FrameSet) {
        for id in 1..self.fresh {
            let zspage = pool.zspages.get(id as usize);
            let used = zspage.used();
            let in_frame = class_of(pool, zspage).map_or([0; CHAIN_MAX], |class| class.in_frame);
            for (n, in_frame) in in_frame.into_iter().enumerate() {
                match zspage.frame(n) {
                    Some(frame) if used & in_frame != 0 => _ = live.insert(frame),
                    Some(_) => zspage.set_frame(n, None),
                    None => {}
                }
            }
        }
    }

    /// Rebuilds the lists and counts: the pool can be used. The zone has adopted the frames.
    /// Objects that are not named are free.
    pub fn finish(self, pool: &Pool) {
        let (mut unused, mut live, mut frames) = (0, 0, 0);
        // The lowest numbers are taken first.
        for id in (1..self.fresh).rev() {
            let zspage = pool.zspages.get(id as usize);
            let Some(class) = class_of(pool, zspage).filter(|_| zspage.used() != 0) else {
                zspage.next.store(unused, Ordering::Relaxed);
                unused = id;
                continue;
            };
            let (used, backed) = (zspage.used(), zspage.backed(class));
            let mut state = pool.lock(zspage.class());
            let count = zspage.frame_count(class) as u64;
            state.objects += used.count_ones();
            state.holes += (backed & !used).count_ones();
            state.frames += count;
            state.zspages += 1;
            state.regroup(&pool.zspages, id, group_of(class, used, backed));
            pool.unlock(zspage.class(), state);
            (live, frames) = (live + 1, frames + count);
        }
        let mut ids = pool.ids.lock();
        (ids.fresh, ids.unused, ids.live) = (self.fresh, unused, live);
        drop(ids);
        pool.save_fresh(self.fresh);
        pool.account.used.store(frames, Ordering::Relaxed);
        pool.account.peak.store(frames, Ordering::Relaxed);
    }
}
