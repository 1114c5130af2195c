//! The progress of the pageblock whose memory is being provided.

/// A pageblock whose memory is being provided: the words below `next` have their memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Filling {
    pub block: u32,
    pub next: usize,
}
