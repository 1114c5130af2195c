//! What is in memory of a process or of an image.

/// A run of whole pages that are in memory, by addresses. In an image it may begin anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub start: u64,
    pub end: u64,
}

/// What is in memory of a source.
#[derive(Clone, Default, Debug)]
pub(crate) struct Resident {
    pub runs: Vec<Run>,
    /// All of it, in bytes.
    pub bytes: u64,
    /// Of these, bytes that no source before had.
    pub own: u64,
}
