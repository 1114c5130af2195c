//! The pool: it stores, reads and frees objects.
//!
//! # Why unsafe
//! Objects lie in memory of the page allocator, which knows it only as addresses. This file and
//! `compact` promise that only the thread that took a slot writes it, before it passes the handle
//! on. The users of handles must promise that a slot is read only while its object is live.

use alloc::{boxed::Box, sync::Arc};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use pagealloc::{Frames, LazyTable, MemoryProvider, NoMemory, watch};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{CachePadded, Mutex, MutexGuard};
use units::{Cpu, Frame, PAGE_SIZE};

use crate::class::{SizeClass, SizeClasses};
use crate::fullness::ClassState;
use crate::handle::{Handle, MAX_ZSPAGES};
use crate::loose::LooseFrames;
use crate::zspage::Zspage;

/// The reason why nothing was stored. The pool is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// The pool's own limit does not allow another frame.
    OverLimit,
    /// The page allocator has no frame.
    NoMemory,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreError::OverLimit => "the pool's limit is reached",
            StoreError::NoMemory => "no frame is left",
        })
    }
}

impl core::error::Error for StoreError {}

/// For whom an object is stored, and so which room in the pool it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// For anybody: none while the pool is [`shut`](Pool::shut).
    Open,
    /// For the thread that makes room while the pool is shut.
    Made,
    /// For a move of an object that is in the pool: a smaller one needs a place before the larger
    /// one is gone. All frames.
    All,
}

/// The most frames of a pool; `u64::MAX` for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// While there are so many, a store gets no frame.
    pub stores: u64,
    /// The same of a move.
    pub all: u64,
}

/// A pool of objects. Any number of threads may call all methods at once.
pub struct Pool {
    pub(crate) sizes: SizeClasses,
    pub(crate) classes: Box<[CachePadded<ClassLock>]>,
    pub(crate) zspages: LazyTable<Zspage>,
    pub(crate) ids: Mutex<Ids>,
    pub(crate) frames: Arc<dyn Frames>,
    base: NonNull<u8>,
    pub(crate) account: CachePadded<Account>,
    pub(crate) compacting: Mutex<()>,
}

// SAFETY: `base` is the address of the page allocator's memory, shared by design. All other fields
// are Send and Sync.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// The state of a class behind its lock, and a hint whether it has holes, readable without the
/// lock.
#[repr(C)]
pub(crate) struct ClassLock {
    state: Mutex<ClassState>,
    pub(crate) has_holes: AtomicBool,
}

/// The counts of frames, and their limit.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) used: AtomicU64,
    pub(crate) peak: AtomicU64,
    /// [`Limits::stores`] and [`Limits::all`].
    stores: AtomicU64,
    all: AtomicU64,
    /// Frames that came free in zspages that were being emptied.
    pub(crate) emptied: AtomicU64,
    pub(crate) compacted: AtomicU64,
}

/// Numbers of zspages. Unused numbers begin at `fresh`; freed numbers are linked by `next`.
pub(crate) struct Ids {
    pub(crate) fresh: u32,
    pub(crate) unused: u32,
    pub(crate) live: u64,
}

/// An object in memory: in one piece, or across two frames that are not neighbours.
#[derive(Clone, Copy, Debug)]
pub enum Object<'a> {
    /// The whole object.
    Whole(&'a [u8]),
    /// The beginning and the end of the object.
    Split(&'a [u8], &'a [u8]),
}

impl Object<'_> {
    /// Passes the object to `read` in one piece, joined on the stack if necessary.
    #[inline]
    pub fn joined<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Object::Whole(all) => read(all),
            Object::Split(head, tail) => {
                // The array is not zeroed first: that would take as long as the copy.
                let mut joined = MaybeUninit::<[u8; PAGE_SIZE]>::uninit();
                let (start, length) = (joined.as_mut_ptr().cast::<u8>(), head.len() + tail.len());
                assert!(length <= PAGE_SIZE);
                // SAFETY: both pieces fit one behind the other, as just checked, and all bytes of
                // the slice have been written.
                let all = unsafe {
                    start.copy_from_nonoverlapping(head.as_ptr(), head.len());
                    start.add(head.len()).copy_from_nonoverlapping(tail.as_ptr(), tail.len());
                    core::slice::from_raw_parts(start, length)
                };
                read(all)
            }
        }
    }

    /// Copies the object to the beginning of `into`, and returns the copy.
    ///
    /// # Panics
    /// If the object does not fit.
    pub fn copy_to<'b>(&self, into: &'b mut [u8]) -> &'b [u8] {
        match self {
            Object::Whole(all) => {
                into[..all.len()].copy_from_slice(all);
                &into[..all.len()]
            }
            Object::Split(head, tail) => {
                let (length, rest) = (head.len() + tail.len(), head.len());
                into[..rest].copy_from_slice(head);
                into[rest..length].copy_from_slice(tail);
                &into[..length]
            }
        }
    }
}

impl Pool {
    /// Makes an empty pool of `frames` without a limit, whose tables are backed by `provider` as
    /// they grow.
    ///
    /// A handle has 25 bits for the zspage and 7 for the slot, and a zspage has at most 16
    /// frames. So a pool holds at most 2 TiB of objects, and fewer bytes if they are small: 128 GiB
    /// in slots of 32 bytes, of which 128 fill a zspage of one frame. Beyond that a store fails
    /// with [`StoreError::NoMemory`], also when there are frames.
    ///
    /// # Errors
    /// [`NoMemory`] when address space for the tables is out.
    pub fn new(provider: &dyn MemoryProvider, frames: Arc<dyn Frames>) -> Result<Pool, NoMemory> {
        let sizes = SizeClasses::new();
        let capacity = frames.capacity() as usize;
        let zspages = (capacity + 1).min(MAX_ZSPAGES as usize);
        let class = |_| {
            let (state, has_holes) = (Mutex::new(ClassState::default()), AtomicBool::new(false));
            CachePadded::new(ClassLock { state, has_holes })
        };
        let pool = Pool {
            classes: (0..sizes.count()).map(class).collect(),
            sizes,
            zspages: LazyTable::new(provider, zspages)?,
            ids: Mutex::new(Ids { fresh: 1, unused: 0, live: 0 }),
            base: frames.base(),
            frames,
            account: CachePadded::default(),
            compacting: Mutex::new(()),
        };
        pool.set_limit(0);
        Ok(pool)
    }

    /// Stores a copy of `bytes`, from one byte to a page, and returns its handle. `replacing` is a
    /// hint: the object that the caller frees after this call. It keeps the pool from growing for
    /// the moment in which both objects exist.
    ///
    /// # Errors
    /// [`StoreError`]; the pool is unchanged.
    #[inline]
    pub fn store(
        &self,
        cpu: Cpu,
        room: Room,
        bytes: &[u8],
        replacing: Option<Handle>,
    ) -> Result<Handle, StoreError> {
        debug_assert!(!bytes.is_empty() && bytes.len() <= PAGE_SIZE);
        let handle = self.take_slot(cpu, room, bytes.len(), replacing)?;
        let zspage = self.zspages.get(handle.zspage() as usize);
        let class = self.sizes.get(zspage.class());
        let (head, tail) = self.place(zspage, class, handle.slot(), bytes.len());
        // SAFETY: the slot was taken for this call. No thread reads, writes or moves the object
        // until its handle is known. `place` returns memory within the slot.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), head.0.as_ptr(), head.1);
            if let Some(tail) = tail {
                let rest = bytes.as_ptr().add(head.1);
                core::ptr::copy_nonoverlapping(rest, tail.as_ptr(), bytes.len() - head.1);
            }
        }
        Ok(handle)
    }

    /// Passes the first `length` bytes of an object to `read`.
    ///
    /// # Safety
    /// The handle names an object of this pool that was stored with at least `length` bytes and is
    /// not freed until this returns.
    #[inline]
    pub unsafe fn read<R>(
        &self,
        handle: Handle,
        length: usize,
        read: impl FnOnce(Object<'_>) -> R,
    ) -> R {
        let zspage = self.zspages.get(handle.zspage() as usize);
        let class = self.sizes.get(zspage.class());
        let (head, tail) = self.place(zspage, class, handle.slot(), length);
        prefetch(head.0, head.1);
        // SAFETY: the object is live and was written before its handle was published. Its bytes
        // never change. Its frames stay while it is live.
        let head_bytes = unsafe { core::slice::from_raw_parts(head.0.as_ptr(), head.1) };
        match tail {
            None => read(Object::Whole(head_bytes)),
            Some(tail) => {
                prefetch(tail, length - head.1);
                // SAFETY: as above, for the part in the other frame.
                let tail = unsafe { core::slice::from_raw_parts(tail.as_ptr(), length - head.1) };
                read(Object::Split(head_bytes, tail))
            }
        }
    }

    /// Frees an object.
    ///
    /// # Panics
    /// If the handle names no object.
    ///
    /// # Safety
    /// The handle names an object of this pool. No thread reads it now or later, or frees it again.
    #[inline]
    pub unsafe fn free(&self, cpu: Cpu, handle: Handle) {
        let class_index = self.zspages.get(handle.zspage() as usize).class();
        let class = self.sizes.get(class_index);
        let mut loose = LooseFrames::default();
        let mut state = self.lock(class_index);
        let used = self.zspages.get(handle.zspage() as usize).used();
        let is_taken = used & 1 << handle.slot() != 0;
        assert!(is_taken, "handle {:#x} names no object: freed twice?", handle.get());
        self.leave_slot(&mut state, handle, class, &mut loose);
        self.unlock(class_index, state);
        self.free_loose(cpu, &mut loose);
    }

    /// Prefetches the memory that a free of the object touches.
    #[inline]
    pub fn prefetch(&self, handle: Handle) {
        sync::prefetch(self.zspages.address_of(handle.zspage() as usize));
    }

    /// Prefetches the first bytes of an object. It may be freed by now, or another may have its
    /// place: then other memory of the pool is prefetched, or none.
    #[inline]
    pub fn prefetch_contents(&self, handle: Handle, length: usize) {
        let zspage = self.zspages.get(handle.zspage() as usize);
        let offset = self.sizes.get(zspage.class()).offset_of(handle.slot());
        if let Some(frame) = zspage.frame_at(offset / PAGE_SIZE) {
            prefetch(self.address(frame, offset % PAGE_SIZE), length);
        }
    }

    /// The number of the size class of objects of `length` bytes, at most a page. Of two objects,
    /// the one in the lower class takes less memory.
    #[must_use]
    pub fn size_class(&self, length: usize) -> usize {
        self.sizes.index_of(length)
    }

    /// The bytes of a pool that an object of `length` bytes takes, at most a page: its slot.
    #[must_use]
    pub fn slot_bytes(&self, length: usize) -> usize {
        self.sizes.get(self.sizes.index_of(length)).slot
    }

    /// Limits the pool to `frames` frames from now on, whoever asks for one; 0 lifts the limit.
    /// Stored objects stay, even above a new limit.
    pub fn set_limit(&self, frames: u64) {
        let most = if frames == 0 { u64::MAX } else { frames };
        self.set_limits(Limits { stores: most, all: most });
    }

    /// Limits the pool from now on. Stored objects stay.
    pub fn set_limits(&self, limits: Limits) {
        self.account.stores.store(limits.stores, Ordering::Relaxed);
        self.account.all.store(limits.all, Ordering::Relaxed);
    }

    /// The most frames that the pool may have before one is refused; `u64::MAX` for no limit.
    #[inline]
    #[must_use]
    pub fn limit(&self, room: Room) -> u64 {
        let limit = if room == Room::All { &self.account.all } else { &self.account.stores };
        limit.load(Ordering::Relaxed)
    }

    /// Shuts the pool, or opens it again. While it is shut it has neither frames nor holes for
    /// [`Room::Open`], but for a store that began before: what comes free is for the thread that
    /// makes room. Takes the lock of each class in turn.
    pub fn shut(&self, on: bool) {
        (0..self.classes.len()).for_each(|class| self.lock(class).is_shut = on);
    }

    /// The source of its frames.
    #[must_use]
    pub fn zone(&self) -> &Arc<dyn Frames> {
        &self.frames
    }

    /// Frames with memory that hold no object, if memory is provided ahead; otherwise `u64::MAX`.
    /// If memory is provided ahead, no other pool uses the frames of the zone.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> u64 {
        match self.frames.provided() {
            u64::MAX => u64::MAX,
            provided => provided.saturating_sub(self.account.used.load(Ordering::Relaxed)),
        }
    }

    /// If memory is provided ahead: provides about `frames` more frames, with their descriptors.
    /// Returns how many frames can be used. It may wait for memory, and holds no lock meanwhile
    /// that other threads need.
    pub fn provide(&self, cpu: Cpu, frames: u64) -> u64 {
        let fresh = self.ids.lock().fresh as usize;
        let more = usize::try_from(frames).unwrap_or(usize::MAX);
        // A new zspage has a frame that was free before.
        let known = self.zspages.provide(fresh.saturating_add(more));
        let frames = self.frames.provide(cpu, frames);
        if known { frames } else { 0 }
    }

    /// Sets the peak to the present number of frames.
    pub fn reset_peak(&self) {
        let used = self.account.used.load(Ordering::Relaxed);
        self.account.peak.store(used, Ordering::Relaxed);
    }

    pub(crate) fn lock(&self, class: usize) -> MutexGuard<'_, ClassState> {
        self.classes[class].state.lock()
    }

    /// Unlocks a class after updating the hint whether it has holes.
    #[inline]
    pub(crate) fn unlock(&self, class: usize, state: MutexGuard<'_, ClassState>) {
        let has_holes = &self.classes[class].has_holes;
        let now = state.holes != 0;
        if has_holes.load(Ordering::Relaxed) != now {
            has_holes.store(now, Ordering::Relaxed);
        }
        drop(state);
    }

    /// The memory of the first `length` bytes of a slot: one piece and its length, and the address
    /// of the rest if it lies elsewhere.
    #[inline]
    pub(crate) fn place(
        &self,
        zspage: &Zspage,
        class: &SizeClass,
        slot: usize,
        length: usize,
    ) -> ((NonNull<u8>, usize), Option<NonNull<u8>>) {
        debug_assert!(length <= class.slot);
        let offset = class.offset_of(slot);
        let (first, within) = (offset / PAGE_SIZE, offset % PAGE_SIZE);
        let frame = zspage.frame(first).unwrap_or_else(|| no_frame(first));
        let start = self.address(frame, within);
        if within + length <= PAGE_SIZE {
            return ((start, length), None);
        }
        let next = zspage.frame(first + 1).unwrap_or_else(|| no_frame(first + 1));
        if next.0 == frame.0 + 1 {
            return ((start, length), None);
        }
        ((start, PAGE_SIZE - within), Some(self.address(next, 0)))
    }

    /// The memory of a slot from byte `from` on, and the length of its first piece.
    pub(crate) fn piece(
        &self,
        zspage: &Zspage,
        class: &SizeClass,
        slot: usize,
        from: usize,
    ) -> (NonNull<u8>, usize) {
        let offset = class.offset_of(slot) + from;
        let (n, within) = (offset / PAGE_SIZE, offset % PAGE_SIZE);
        let frame = zspage.frame(n).unwrap_or_else(|| no_frame(n));
        (self.address(frame, within), (PAGE_SIZE - within).min(class.slot - from))
    }

    /// Poisons an empty slot with all its frames: no thread may touch it. Called under the lock of
    /// the class, because neighbours may share what a checker marks.
    #[inline]
    pub(crate) fn poison(&self, zspage: &Zspage, class: &SizeClass, slot: usize) {
        let mut done = 0;
        while watch::WATCHED && done < class.slot {
            let (start, length) = self.piece(zspage, class, slot, done);
            // SAFETY: these bytes are the slot's, in frames allocated to this pool, and no thread
            // uses them while the slot is empty.
            unsafe { watch::poison(start, length) };
            done += length;
        }
    }

    /// Unpoisons a slot that was taken. Called under the lock of the class.
    #[inline]
    pub(crate) fn open(&self, zspage: &Zspage, class: &SizeClass, slot: usize) {
        let mut done = 0;
        while watch::WATCHED && done < class.slot {
            let (start, length) = self.piece(zspage, class, slot, done);
            watch::unpoison(start, length);
            done += length;
        }
    }

    /// Poisons a frame that was just allocated and holds no object yet.
    #[inline]
    pub(crate) fn shut_frame(&self, frame: Frame) {
        if watch::WATCHED {
            // SAFETY: the frame was just allocated, and no other thread knows it.
            unsafe { watch::poison(self.address(frame, 0), PAGE_SIZE) };
        }
    }

    #[inline]
    fn address(&self, frame: Frame, within: usize) -> NonNull<u8> {
        // SAFETY: the page allocator allocated this frame, so it lies within its memory.
        unsafe { self.base.add(frame.0 as usize * PAGE_SIZE + within) }
    }
}

#[cold]
fn no_frame(n: usize) -> Frame {
    panic!("a used slot lies in frame {n} of its chain, which the chain does not have")
}

/// The bytes of an object that are prefetched for a read: as many cache misses as a processor keeps
/// in flight.
pub const PREFETCH_BYTES: usize = 12 * 64;

/// Prefetches the cache lines of an object together.
#[inline]
fn prefetch(start: NonNull<u8>, length: usize) {
    sync::prefetch_bytes(start.as_ptr(), 0..length.min(PREFETCH_BYTES));
}
