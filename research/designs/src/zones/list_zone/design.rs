//! The designs: each chooses a way to merge, and a way to move batches. One that merges beside
//! others holds the zone's lock shared meanwhile, and all others hold it alone, as a spin lock.

/// The choices of one design. All designs share the rest of the code.
pub trait Design: Send + Sync + 'static {
    /// The name of the design in tables and on command lines.
    const NAME: &'static str;
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
    /// When the zone is drained, or has no frames left.
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
    ($($(#[$doc:meta])* $name:ident: $text:literal, $merge:ident, $batch:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl Design for $name {
                const NAME: &'static str = $text;
                const MERGE: Merge = Merge::$merge;
                const BATCH: Batch = Batch::$batch;
            }
        )*
    };
}

designs! {
    /// Linux 4.19's design: one lock, under which each frame of a batch is merged.
    Spin: "spin", Alone, Pages;
    /// Patch 7: threads free frames concurrently, under locks of ranges.
    RangeRw: "rwlock-range", InRange, Pages;
    /// Patch 8: merged blocks are spliced to the zone's lists once for each order.
    Splice: "splice", Beside, Pages;
    /// Patch 9: like [`Splice`], but the frames of a batch are merged with each other first.
    Premerge: "premerge", Beside, Premerged;
    /// One lock, under which single frames enter the list unmerged.
    NoMerge: "no-merge", Late, Pages;
    /// Like [`NoMerge`], but a pcp list is filled with a whole cluster of frames at once.
    Cluster: "no-merge-cluster", Late, Clusters;
}
