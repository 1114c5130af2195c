//! The statistics of a pool, and the check of its structures.

use alloc::collections::BTreeSet;

use sync::atomic::Ordering;
use units::Cpu;

use crate::class::{RAW_THRESHOLD, SizeClass};
use crate::fullness::{ClassState, group_of};
use crate::pool::Pool;
use crate::stats::{ClassStats, Classes, PoolStats};
use crate::zspage::{NO_GROUP, Zspage};

impl Pool {
    /// A snapshot of the statistics. Takes the lock of each class in turn.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let live = self.ids.lock().live;
        let mut stats = PoolStats {
            frames: self.account.used.load(Ordering::Relaxed),
            frames_peak: self.account.peak.load(Ordering::Relaxed),
            overhead_bytes: live * size_of::<Zspage>() as u64,
            frames_compacted: self.frames_compacted(),
            ..PoolStats::default()
        };
        for class in self.class_stats() {
            stats.objects += class.objects;
            stats.zspages += class.zspages;
        }
        stats
    }

    /// The statistics of each class, the smallest slots first.
    pub fn class_stats(&self) -> impl Iterator<Item = ClassStats> + '_ {
        self.sizes.iter().enumerate().map(|(index, class)| {
            let state = self.lock(index);
            ClassStats {
                slot: class.slot,
                chain: class.frames,
                objects: u64::from(state.objects),
                holes: u64::from(state.holes),
                frames: state.frames,
                zspages: state.zspages,
            }
        })
    }

    /// The statistics of each class with the fullness of its zspages, the smallest slots first. It
    /// looks at all zspages without a lock: what changes beside it is told as it was or is.
    #[must_use]
    pub fn classes(&self) -> Classes {
        let stats = self.class_stats();
        let mut classes: Classes = stats.map(|class| (class, [0; 11])).collect();
        let fresh = self.ids.lock().fresh;
        for id in 1..fresh {
            let zspage = self.zspages.get(id as usize);
            let (used, class) = (zspage.used().count_ones() as usize, zspage.class());
            // An unused descriptor uses no slot.
            if used > 0 {
                classes[class].1[used * 10 / self.sizes.get(class).slots] += 1;
            }
        }
        classes
    }

    /// Frames allocated to the pool now.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.account.used.load(Ordering::Relaxed)
    }

    /// Frames that compaction has given back so far, less those that it took.
    #[must_use]
    pub fn frames_compacted(&self) -> u64 {
        self.account.compacted.load(Ordering::Relaxed)
    }

    /// The size above which a page is better stored uncompressed: see [`RAW_THRESHOLD`].
    #[must_use]
    pub const fn raw_threshold(&self) -> usize {
        RAW_THRESHOLD
    }

    /// Checks every structure against the others. Call it only while no thread stores, frees or
    /// compacts.
    ///
    /// # Panics
    /// The message names the structures that contradict each other.
    pub fn validate(&self) {
        let ids = self.ids.lock();
        let mut unused = BTreeSet::new();
        let mut at = ids.unused;
        while at != 0 {
            assert!(unused.insert(at), "zspage {at} is twice among the unused");
            at = self.zspages.get(at as usize).next.load(Ordering::Relaxed);
        }
        let live = u64::from(ids.fresh - 1) - unused.len() as u64;
        assert_eq!(ids.live, live, "zspages in use, counted and listed");
        let mut frames = BTreeSet::new();
        let mut total = 0;
        for (index, class) in self.sizes.iter().enumerate() {
            let state = self.lock(index);
            let mut counted = ClassState::default();
            let mut listed = BTreeSet::new();
            for (group, id) in state.members(&self.zspages) {
                assert!(listed.insert(id), "zspage {id} is in two lists");
                let zspage = self.zspages.get(id as usize);
                let said = zspage.group.load(Ordering::Relaxed);
                assert_eq!(said, group, "zspage {id} is in another list than it says");
                let right = group_of(class, zspage.used(), zspage.backed(class));
                assert_eq!(group, right, "zspage {id} is in the wrong group");
                let holes = zspage.backed(class) & !zspage.used();
                assert_eq!(ClassState::has_holes(group), holes != 0, "holes of zspage {id}");
                assert!(zspage.used() != 0, "zspage {id} holds nothing");
                counted.holes += holes.count_ones();
            }
            for id in (1..ids.fresh).filter(|id| !unused.contains(id)) {
                let zspage = self.zspages.get(id as usize);
                if zspage.class() == index {
                    self.count_zspage(&mut counted, class, id, &mut frames);
                    let group = zspage.group.load(Ordering::Relaxed);
                    assert_eq!(listed.contains(&id), group != NO_GROUP, "list of zspage {id}");
                }
            }
            assert_eq!(counted.objects, state.objects, "objects of class {}", class.slot);
            assert_eq!(counted.holes, state.holes, "holes of class {}", class.slot);
            assert_eq!(counted.frames, state.frames, "frames of class {}", class.slot);
            assert_eq!(counted.zspages, state.zspages, "zspages of class {}", class.slot);
            assert_eq!((state.emptying, state.leaving), (0, 0), "class {} at rest", class.slot);
            total += counted.frames;
        }
        assert_eq!(total, self.frames(), "frames of the pool, counted and accounted");
    }

    fn count_zspage(
        &self,
        counted: &mut ClassState,
        class: &SizeClass,
        id: u32,
        frames: &mut BTreeSet<u32>,
    ) {
        let zspage = self.zspages.get(id as usize);
        let used = zspage.used();
        assert_eq!(used & !class.all_slots(), 0, "zspage {id} uses slots it does not have");
        assert_eq!(used & !zspage.backed(class), 0, "zspage {id} lacks frames for its objects");
        for n in 0..class.frames {
            if let Some(frame) = zspage.frame(n) {
                assert!(frames.insert(frame.0), "frame {} is in two zspages", frame.0);
                assert!(used & class.in_frame[n] != 0, "frame {n} of zspage {id} is empty");
                counted.frames += 1;
            }
        }
        counted.objects += used.count_ones();
        counted.zspages += 1;
    }
}

impl Pool {
    /// Leaves the objects to another process: a drop frees no frame from now on.
    pub fn leave(&mut self) {
        self.ids.lock().fresh = 1;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let fresh = self.ids.lock().fresh;
        for id in 1..fresh {
            for n in 0..crate::class::CHAIN_MAX {
                if let Some(frame) = self.zspages.get(id as usize).frame(n) {
                    self.frames.free(Cpu(0), frame);
                }
            }
        }
    }
}
