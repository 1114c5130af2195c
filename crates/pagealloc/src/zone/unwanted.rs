//! How much free memory nobody wanted lately.

use units::FRAMES_PER_PAGEBLOCK;

/// Looks after which memory goes back that was free all the time.
pub(super) const REST: u32 = 10;
/// Less stays: an eighth of a pageblock, and a thirty-second part of what is allocated.
const FEW: u32 = FRAMES_PER_PAGEBLOCK / 8;
const FEW_OF_ALLOCATED: u32 = 32;

/// What the last looks at a zone found.
pub(super) struct Unwanted {
    /// The fewest free frames with memory.
    frames: u32,
    looks: u32,
}

impl Unwanted {
    pub(super) const NEW: Unwanted = Unwanted { frames: u32::MAX, looks: 0 };

    /// Notes that `idle` free frames have memory. Returns whether it is time to give it back: many
    /// had, in each of the last looks.
    pub(super) fn are_many(&mut self, idle: u32, allocated: u32) -> bool {
        self.frames = self.frames.min(idle);
        self.looks += 1;
        if self.looks < REST {
            return false;
        }
        let are_many = self.frames > FEW + allocated / FEW_OF_ALLOCATED;
        *self = Unwanted::NEW;
        are_many
    }
}
