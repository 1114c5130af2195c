//! The results of parsing a client's bytes.

/// The result of one step over the received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// The step used this many bytes.
    Consumed(usize),
    /// No byte was used: the message is at least this many bytes long.
    Need(usize),
    /// No byte was used: the message has this many bytes, and the requests under way leave no room
    /// for it.
    Full(usize),
    /// No byte was used: what is in the output is sent first, for the request takes its room, or
    /// waits on this thread.
    Send,
    /// The step used this many bytes; after the output is sent, the connection goes on in TLS.
    StartTls(usize),
    /// The connection ends after the output is sent.
    Close,
}

/// Data of a refused request, which the client still sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Discarding {
    /// Bytes still to come.
    pub(crate) left: u64,
    /// The answer, sent after the data: a client expects no reply before it has sent the request.
    pub(crate) then: Answer,
}

/// An error that is answered later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// To a request.
    Request { cookie: u64, error: u32 },
    /// To an option.
    Option { option: u32, kind: u32, message: &'static str },
}

/// The result of a handler for one message.
pub(crate) enum Outcome {
    /// The message is done, or not complete yet.
    Progress(Progress),
    /// The message used this many bytes; the data that follows is thrown away.
    Discard(usize, Discarding),
}
