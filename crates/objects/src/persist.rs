//! What outlives its process, and how another process recovers it.

use alloc::{sync::Arc, vec::Vec};
use core::ops::Range;

use control::ControlError;
use pagealloc::FrameSet;
use units::Cpu;
use zsmalloc::Census;

/// What outlives its process: its tables and frames are in memory that another process can have.
/// The trait is that of a *recovery* of such a thing, which takes five steps:
///
/// | step | by | what |
/// |---|---|---|
/// | save | the process that dies | says what is not in that memory |
/// | survey | the next one | opens the record and the tables, and looks at each zspage |
/// | walk | it, on all CPUs | judges each page, and marks what it names |
/// | settle | it | decides what lives; then the zone adopts the frames of that |
/// | finish | it | rebuilds what follows from the rest: the thing is ready |
///
/// A zone is settled for all that it holds before it adopts, and adopts before anything of it is
/// finished. A process that dies on the way leaves a state to recover from as well.
pub trait Persist: Sized + Sync {
    /// What is kept.
    type Kept;
    /// What another process needs to know of it, besides its memory.
    type Saved;
    /// What it is made of in this process.
    type Parts;
    /// What comes back.
    type Recovered;

    /// What another process needs to know. Any thread may call it at any time.
    fn save(kept: &Self::Kept) -> Self::Saved;

    /// Begins the recovery; `None` if there is nothing to recover but what was saved. Nobody uses
    /// the parts meanwhile.
    ///
    /// # Errors
    /// `EINVAL` for what is damaged, not there, or of another layout; `ENOTSUP` if this program
    /// does not have a codec of the pages; `ENOMEM`; the error of a setting. What was left is as
    /// it was.
    fn survey(
        parts: Self::Parts,
        saved: &Self::Saved,
        census: &Arc<Census>,
    ) -> Result<Option<Self>, ControlError>;

    /// The parts that have pages: their numbers, for messages, and how many pages they have.
    fn spans(&self) -> Vec<(u32, u64)>;

    /// Judges pages of part `span`. The range begins at a multiple of 64. Any number of threads may
    /// call it at once, each page being in one range; `cpu` is the CPU that it runs on.
    fn walk(&self, cpu: Cpu, span: usize, pages: Range<u64>);

    /// Decides what lives, after all pages were walked through, and adds its frames to `live`.
    fn settle(&self, live: &FrameSet);

    /// Makes it ready, after the zone has adopted the live frames.
    ///
    /// # Errors
    /// `EBUSY` if somebody used the parts meanwhile.
    fn finish(self) -> Result<Self::Recovered, ControlError>;
}
