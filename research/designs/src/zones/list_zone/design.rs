//! The designs: each chooses a lock, a way to merge, and a way to move batches.

use std::ops::{Deref, DerefMut};

use sync::{Mutex, MutexGuard};

use crate::locks::{ReadGuard, RwLock, WriteGuard};

/// The choices of one design. All designs share the rest of the code.
pub trait Design: Send + Sync + 'static {
    /// The name of the design in tables and on command lines.
    const NAME: &'static str;
    /// The lock round the free blocks.
    type Kind: LockKind;
    /// When a block that is freed is merged with its buddies.
    const MERGE: Merge;
    /// How frames move between a pcp list and the zone.
    const BATCH: Batch;
}

/// When a block that is freed is merged with its buddies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// At once, with the lock held alone.
    Alone,
    /// At once, while other threads merge, too, under the lock of a range of 4 MiB.
    InRange,
    /// At once, while other threads merge, too. Merged blocks go to a private list, which is
    /// spliced to the zone's list at the end. Two buddies that are freed at the same time may stay
    /// unmerged.
    Beside,
    /// Single frames only when an allocation needs a larger block; larger blocks at once.
    Late,
}

/// How frames move between a pcp list and the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    /// One by one.
    Pages,
    /// The frames of a batch are merged with each other before the lock is taken.
    Premerged,
    /// By clusters: neighbours in the list of single frames that leave it together.
    Clusters,
}

macro_rules! designs {
    ($($(#[$doc:meta])* $name:ident: $text:literal, $kind:ident, $merge:ident, $batch:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl Design for $name {
                const NAME: &'static str = $text;
                type Kind = $kind;
                const MERGE: Merge = Merge::$merge;
                const BATCH: Batch = Batch::$batch;
            }
        )*
    };
}

designs! {
    /// Linux 4.19's design: one lock, under which each frame of a batch is merged.
    Spin: "spin", OneMode, Alone, Pages;
    /// Patch 7: threads free frames concurrently, under locks of ranges.
    RangeRw: "rwlock-range", TwoModes, InRange, Pages;
    /// Patch 8: merged blocks are spliced to the zone's lists once for each order.
    Splice: "splice", TwoModes, Beside, Pages;
    /// Patch 9: like [`Splice`], but the frames of a batch are merged with each other first.
    Premerge: "premerge", TwoModes, Beside, Premerged;
    /// One lock, under which single frames enter the list unmerged.
    NoMerge: "no-merge", OneMode, Late, Pages;
    /// Like [`NoMerge`], but a pcp list is filled with a whole cluster of frames at once.
    Cluster: "no-merge-cluster", OneMode, Late, Clusters;
}

/// A kind of lock.
pub trait LockKind: 'static {
    /// The lock of this kind round a `T`.
    type Lock<T: Send + Sync>: Lock<T>;
}

/// One holder at a time.
#[derive(Clone, Copy, Debug)]
pub struct OneMode;

/// One exclusive holder, or several shared holders.
#[derive(Clone, Copy, Debug)]
pub struct TwoModes;

impl LockKind for OneMode {
    type Lock<T: Send + Sync> = Mutex<T>;
}

impl LockKind for TwoModes {
    type Lock<T: Send + Sync> = RwLock<T>;
}

/// The lock of a zone.
pub trait Lock<T>: Send + Sync {
    /// The guard of the shared mode, if the kind has one.
    type Shared<'a>: Deref<Target = T>
    where
        Self: 'a,
        T: 'a;
    /// The guard of the exclusive mode.
    type Exclusive<'a>: DerefMut<Target = T>
    where
        Self: 'a,
        T: 'a;

    /// Makes an unlocked lock round `value`.
    fn new(value: T) -> Self;
    /// Takes the lock in shared mode; waits.
    fn shared(&self) -> Self::Shared<'_>;
    /// Takes the lock in shared mode if that is possible now.
    fn try_shared(&self) -> Option<Self::Shared<'_>>;
    /// Takes the lock in exclusive mode; waits.
    fn exclusive(&self) -> Self::Exclusive<'_>;
    /// Takes the lock in exclusive mode if that is possible now.
    fn try_exclusive(&self) -> Option<Self::Exclusive<'_>>;
}

impl<T: Send + Sync> Lock<T> for Mutex<T> {
    type Shared<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;
    type Exclusive<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
    fn shared(&self) -> MutexGuard<'_, T> {
        self.lock()
    }
    fn try_shared(&self) -> Option<MutexGuard<'_, T>> {
        self.try_lock()
    }
    #[inline]
    fn exclusive(&self) -> MutexGuard<'_, T> {
        self.lock()
    }
    #[inline]
    fn try_exclusive(&self) -> Option<MutexGuard<'_, T>> {
        self.try_lock()
    }
}

impl<T: Send + Sync> Lock<T> for RwLock<T> {
    type Shared<'a>
        = ReadGuard<'a, T>
    where
        T: 'a;
    type Exclusive<'a>
        = WriteGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
    #[inline]
    fn shared(&self) -> ReadGuard<'_, T> {
        self.read()
    }
    #[inline]
    fn try_shared(&self) -> Option<ReadGuard<'_, T>> {
        self.try_read()
    }
    #[inline]
    fn exclusive(&self) -> WriteGuard<'_, T> {
        self.write()
    }
    #[inline]
    fn try_exclusive(&self) -> Option<WriteGuard<'_, T>> {
        self.try_write()
    }
}
