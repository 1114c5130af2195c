//! The loop of a serving thread: read a request, carry it out, answer it.
//!
//! A serving thread uses its stack, its buffer, its descriptor and the file: no heap, no lock, no
//! log. The device must not need memory either. The exception is a panic of the device: its report
//! and its unwinding use the heap.

use std::fs::File as Channel;
use std::io::{self, IoSlice, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::sleep;
use std::time::Duration;

use block::Wait;
use host::errno;

use super::answer::{Answer, File, Outcome};
use super::buffer::Buffer;
use super::reply::Reply;
use super::wire::{self, ENTRY, Malformed, Request};
use crate::ring::Entry;
use crate::ring::serving::{Carried, CarryOut};

/// The pause after an unexpected error of a read.
const PAUSE: Duration = Duration::from_millis(10);

/// Serves the requests of `channel` to `file` until the file system is unmounted or aborted.
pub(crate) fn serve(mut channel: &Channel, file: &File, buffer: &mut Buffer) {
    loop {
        let length = match channel.read(buffer.request()) {
            Ok(length) if length > 0 => length,
            read => match after(read.err().as_ref()) {
                Next::Again => continue,
                Next::Pause => {
                    sleep(PAUSE);
                    continue;
                }
                Next::End => return,
            },
        };
        if let Some(answer) = respond(file, buffer, length) {
            send(channel, &answer, buffer);
        }
    }
}

/// The next step after a read without a request.
#[derive(PartialEq, Eq, Debug)]
enum Next {
    Again,
    Pause,
    End,
}

fn after(error: Option<&io::Error>) -> Next {
    match error.and_then(io::Error::raw_os_error) {
        // The request was cancelled during the read; a signal came; another thread took the
        // request.
        Some(errno::ENOENT | errno::EINTR | errno::EAGAIN) => Next::Again,
        // The file system was unmounted or aborted.
        Some(errno::ENODEV | errno::ECONNABORTED) => Next::End,
        _ => Next::Pause,
    }
}

/// Carries out the request in the first `length` bytes of `buffer`. None if it has no answer.
pub(crate) fn respond(file: &File, buffer: &mut Buffer, length: usize) -> Option<Answer> {
    let request = wire::parse(&buffer.request()[..length]);
    match carry_out(file, request, buffer.data(), Wait::Yes) {
        Outcome::Answer(answer) => Some(answer),
        // This thread may wait.
        Outcome::Silent | Outcome::WouldWait => None,
    }
}

/// Carries out a request, or refuses one that could not be understood. A panic of the device is an
/// error of the request.
pub(crate) fn carry_out(
    file: &File,
    request: Result<Request, Malformed>,
    data: &mut [u8],
    wait: Wait,
) -> Outcome {
    let refused = |unique| Outcome::Answer(Reply::error(unique, errno::EIO).into());
    match request {
        Ok(request) => {
            let outcome = catch_unwind(AssertUnwindSafe(|| file.answer(&request, data, wait)));
            outcome.unwrap_or_else(|_| refused(request.unique))
        }
        Err(malformed) => malformed.unique.map_or(Outcome::Silent, refused),
    }
}

/// Carries out the request of an entry of a ring, and puts the answer there, unless it would have
/// to wait: another thread carries it out again then.
pub(crate) fn carry_out_entry(
    file: &File,
    header: &mut [u8; ENTRY],
    data: &mut [u8],
    wait: Wait,
) -> Carried {
    let answer = match carry_out(file, wire::parse_entry(header), data, wait) {
        Outcome::WouldWait => return Carried::WouldWait(None),
        Outcome::Answer(answer) => answer,
        // An entry always goes back.
        Outcome::Silent => Reply::done(wire::entry_id(header)).into(),
    };
    answer.reply.put_in_entry(header, data, answer.data);
    Carried::Out
}

impl CarryOut for File {
    fn carry_out(&self, entry: &mut Entry, wait: Wait) -> Carried {
        let (header, data) = entry.parts();
        carry_out_entry(self, header, data, wait)
    }
}

fn send(mut channel: &Channel, answer: &Answer, buffer: &mut Buffer) {
    let data = &buffer.data()[..answer.data];
    let parts = [IoSlice::new(answer.reply.bytes()), IoSlice::new(data)];
    let parts = if data.is_empty() { &parts[..1] } else { &parts[..] };
    loop {
        let Err(error) = channel.write_vectored(parts) else { return };
        match error.raw_os_error() {
            Some(errno::EINTR | errno::EAGAIN) => {}
            // The client no longer waits, or the kernel could not take the whole answer. In the
            // second case the kernel gives the client an error.
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_fails_ends_the_thread_only_when_the_mount_is_gone() {
        let next = |errno| after(Some(&io::Error::from_raw_os_error(errno)));
        for errno in [errno::ENOENT, errno::EINTR, errno::EAGAIN] {
            assert_eq!(next(errno), Next::Again);
        }
        for errno in [errno::ENOMEM, errno::EINVAL, errno::EIO, errno::EPERM, errno::EFAULT] {
            assert_eq!(next(errno), Next::Pause);
        }
        assert_eq!(after(None), Next::Pause);
        assert_eq!(next(errno::ENODEV), Next::End);
    }
}
