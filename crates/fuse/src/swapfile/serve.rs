//! What a serving thread does: read a request, carry it out, answer it.
//!
//! Once it serves it uses its stack, its buffer, its descriptor and the file, and nothing else:
//! no heap, no lock, no log. What may come of memory is the device's business. The exception is a
//! device that panics: the panic is told and unwound on the heap, as ever.

use std::fs::File as Channel;
use std::io::{self, IoSlice, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::sleep;
use std::time::Duration;

use super::answer::{Answer, File};
use super::buffer::Buffer;
use super::reply::Reply;
use super::wire;

/// How long nothing is read after an error that should not be.
const PAUSE: Duration = Duration::from_millis(10);

/// Serves `file` to the kernel at the other end of `channel` until the file system is unmounted or
/// aborted.
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

/// What to do after a read that brought nothing.
#[derive(PartialEq, Eq, Debug)]
enum Next {
    Again,
    Pause,
    End,
}

fn after(error: Option<&io::Error>) -> Next {
    match error.and_then(io::Error::raw_os_error) {
        // The request was taken back while it was read; a signal came; another thread has it.
        Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => Next::Again,
        // Unmounted; or aborted, as it is told to those who ask for the difference.
        Some(libc::ENODEV | libc::ECONNABORTED) => Next::End,
        _ => Next::Pause,
    }
}

/// Carries out the request that is in the first `length` bytes of `buffer`. Nothing if it has no
/// answer.
pub(crate) fn respond(file: &File, buffer: &mut Buffer, length: usize) -> Option<Answer> {
    let request = match wire::parse(&buffer.request()[..length]) {
        Ok(request) => request,
        Err(malformed) => return Some(Reply::error(malformed.unique?, libc::EIO).into()),
    };
    let answer = catch_unwind(AssertUnwindSafe(|| file.answer(&request, buffer)));
    answer.unwrap_or_else(|_| Some(Reply::error(request.unique, libc::EIO).into()))
}

fn send(mut channel: &Channel, answer: &Answer, buffer: &mut Buffer) {
    let data = buffer.data(answer.data).unwrap_or_default();
    let parts = [IoSlice::new(answer.reply.bytes()), IoSlice::new(data)];
    let parts = if data.is_empty() { &parts[..1] } else { &parts[..] };
    loop {
        let Err(error) = channel.write_vectored(parts) else { return };
        match error.raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => {}
            // Nobody waits for it any more, or the kernel could not take all of it: it then tells
            // that to who waits.
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
        for errno in [libc::ENOENT, libc::EINTR, libc::EAGAIN] {
            assert_eq!(next(errno), Next::Again);
        }
        for errno in [libc::ENOMEM, libc::EINVAL, libc::EIO, libc::EPERM, libc::EFAULT] {
            assert_eq!(next(errno), Next::Pause);
        }
        assert_eq!(after(None), Next::Pause);
        assert_eq!(next(libc::ENODEV), Next::End);
    }
}
