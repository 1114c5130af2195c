//! How far the pageblock has come whose memory is being provided.

/// A block whose memory is being provided: its words below `next` have theirs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Filling {
    pub block: u32,
    pub next: usize,
}
