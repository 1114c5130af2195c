//! What is known of one segment.

use crate::header::Generation;

/// What may be done with a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It may be opened: it was punched, or never written.
    Free,
    /// Objects are appended.
    Open,
    /// It is full. If nothing of it is being written, it may be a victim, and it is empty as soon
    /// as no object is left.
    Closed,
    /// It is being cleaned.
    Victim,
    /// It is full, and could not be cleaned: it is empty when the last object is freed.
    Kept,
    /// No object is left. It is to be punched.
    Empty,
    /// It is being punched.
    Punching,
}

/// A segment: 20 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Bytes of objects in use, in whole units, and of those that are being written.
    pub live: u32,
    /// Bytes that were appended.
    pub used: u32,
    /// Objects that are being written.
    pub pending: u32,
    /// When the youngest of its objects was new.
    pub youngest: u32,
    /// Its life.
    pub generation: Generation,
    /// What may be done with it.
    pub state: State,
}

impl Segment {
    /// A segment that was never written.
    pub const UNUSED: Segment = Segment {
        live: 0,
        used: 0,
        pending: 0,
        youngest: 0,
        generation: Generation::FIRST,
        state: State::Free,
    };

    /// Whether no object of it is in use or being written, and none can come.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Closed | State::Kept) && self.pending == 0 && self.live == 0
    }

    /// Whether it may be a victim now.
    pub fn is_candidate(&self) -> bool {
        self.state == State::Closed && self.pending == 0
    }
}
