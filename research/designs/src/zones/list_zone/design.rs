//! The designs: which lock, which way of merging, which way of moving batches.

use std::ops::{Deref, DerefMut};

use sync::{Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};

/// What one design does in its own way. Everything else is the same code for all.
pub trait Design: Send + Sync + 'static {
    /// What it is called in tables and on command lines.
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
    /// At once, beside others, with the lock of a range of 4 MiB held meanwhile.
    InRange,
    /// Beside others, and put into a list of its own that is spliced to the zone's at the end; two
    /// buddies freed at once may miss each other.
    Beside,
    /// Single frames not before somebody needs larger blocks, everything else at once.
    Late,
}

/// How frames move between a pcp list and the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    /// One by one.
    Pages,
    /// Those of a batch are merged with each other first, before the lock is taken.
    Premerged,
    /// By clusters: neighbours in the list of single frames that go out together.
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
    /// Linux 4.19's: one lock, under which each frame of a batch is merged.
    Spin: "spin", OneMode, Alone, Pages;
    /// Patch 7: frames are freed beside each other, under locks of ranges.
    RangeRw: "rwlock-range", TwoModes, InRange, Pages;
    /// Patch 8: what was merged is spliced to the zone's lists once for each order.
    Splice: "splice", TwoModes, Beside, Pages;
    /// Patch 9: the same, after the frames of a batch were merged with each other.
    Premerge: "premerge", TwoModes, Beside, Premerged;
    /// One lock, under which single frames are put in as they are.
    NoMerge: "no-merge", OneMode, Late, Pages;
    /// The same, and a pcp list is filled with a whole cluster of frames at once.
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

/// One holder, or several who do no more than may be done beside others.
#[derive(Clone, Copy, Debug)]
pub struct TwoModes;

impl LockKind for OneMode {
    type Lock<T: Send + Sync> = Mutex<T>;
}

impl LockKind for TwoModes {
    type Lock<T: Send + Sync> = RwLock<T>;
}

/// A lock as zones use it.
pub trait Lock<T>: Send + Sync {
    /// Holds it beside others, if the kind has such a mode.
    type Shared<'a>: Deref<Target = T>
    where
        Self: 'a,
        T: 'a;
    /// Holds it alone.
    type Exclusive<'a>: DerefMut<Target = T>
    where
        Self: 'a,
        T: 'a;

    /// A free lock round `value`.
    fn new(value: T) -> Self;
    /// Waits until it can be held beside others.
    fn shared(&self) -> Self::Shared<'_>;
    /// Holds it beside others if that is possible now.
    fn try_shared(&self) -> Option<Self::Shared<'_>>;
    /// Waits until it can be held alone.
    fn exclusive(&self) -> Self::Exclusive<'_>;
    /// Holds it alone if that is possible now.
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
