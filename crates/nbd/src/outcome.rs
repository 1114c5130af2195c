//! What became of bytes that a client sent.

/// What became of the bytes shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// So many were used.
    Consumed(usize),
    /// None were: the message is at least so many bytes long.
    Need(usize),
    /// None were: the message has so many bytes, and there is no room for them beside the requests
    /// under way.
    Full(usize),
    /// The connection is over, once the output is sent.
    Close,
}

/// Data that the client sends although its request is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Discarding {
    /// Bytes still to come.
    pub(crate) left: u64,
    /// What to answer then: clients do not expect a reply to what they have not yet sent.
    pub(crate) then: Answer,
}

/// An error put off.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// To a request.
    Request { cookie: u64, error: u32 },
    /// To an option.
    Option { option: u32, kind: u32, message: &'static str },
}

/// What a handler makes of a message.
pub(crate) enum Outcome {
    /// Nothing special.
    Progress(Progress),
    /// This many bytes were used; throw away the data that follows.
    Discard(usize, Discarding),
}
