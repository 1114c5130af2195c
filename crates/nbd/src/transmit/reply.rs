//! Structured replies.

use core::fmt::Arguments;
use std::io;

use block::IoError;

use super::runs::Run;
use crate::buffer::Output;
use crate::errors::{ENOMEM, on_the_wire};
use crate::wire::{ALLOCATION_ID, CHUNK_HEADER, Request, chunk, chunk_header};

const fn done(last: bool) -> u16 {
    if last { chunk::FLAG_DONE } else { 0 }
}

/// Success without data.
pub(super) fn none(output: &mut Output, request: Request) -> io::Result<()> {
    output.put(&chunk_header(chunk::FLAG_DONE, chunk::NONE, request.cookie, 0))
}

/// A hole: these bytes are zeroes.
pub(super) fn hole(
    output: &mut Output,
    request: Request,
    offset: u64,
    length: u32,
    last: bool,
) -> io::Result<()> {
    output.put(&chunk_header(done(last), chunk::OFFSET_HOLE, request.cookie, 12))?;
    output.put(&offset.to_be_bytes())?;
    output.put(&length.to_be_bytes())
}

/// A chunk of data, which `read` puts straight into the output. If the read fails, an error chunk
/// with the offset of its first byte ends the reply. If `read` would block, nothing is put. Returns
/// the result.
#[inline]
pub(super) fn data(
    output: &mut Output,
    request: Request,
    (offset, length): (u64, u32),
    last: bool,
    read: impl FnOnce(&mut [u8]) -> Result<(), IoError>,
) -> io::Result<Result<(), IoError>> {
    const BEFORE: usize = CHUNK_HEADER + 8;
    let whole = BEFORE + length as usize;
    let Ok(room) = output.room(whole) else {
        error_at(output, request, ENOMEM, offset, format_args!("no memory is left"))?;
        return Ok(Err(IoError::NoMemory));
    };
    let (header, into) = room.split_at_mut(BEFORE);
    if let Err(failed) = read(into) {
        if failed != IoError::WouldBlock {
            error_at(
                output,
                request,
                on_the_wire(request.command, failed),
                offset,
                format_args!("{failed}"),
            )?;
        }
        return Ok(Err(failed));
    }
    let kind = chunk::OFFSET_DATA;
    let bytes = chunk_header(done(last), kind, request.cookie, length + 8);
    header[..CHUNK_HEADER].copy_from_slice(&bytes);
    header[CHUNK_HEADER..].copy_from_slice(&offset.to_be_bytes());
    output.keep(whole);
    Ok(Ok(()))
}

/// The runs of the range that were found.
pub(super) fn block_status(
    output: &mut Output,
    request: Request,
    runs: impl ExactSizeIterator<Item = Run>,
) -> io::Result<()> {
    let length = 4 + 8 * runs.len() as u32;
    output.put(&chunk_header(chunk::FLAG_DONE, chunk::BLOCK_STATUS, request.cookie, length))?;
    output.put(&ALLOCATION_ID.to_be_bytes())?;
    for run in runs {
        output.put(&run.length.to_be_bytes())?;
        output.put(&run.state.to_be_bytes())?;
    }
    Ok(())
}

/// The request failed as a whole.
#[cold]
pub(super) fn error(
    output: &mut Output,
    request: Request,
    error: u32,
    why: Arguments<'_>,
) -> io::Result<()> {
    error_chunk(output, request, chunk::ERROR, error, why, &[])
}

/// The request failed as a whole, with an error of the device.
#[cold]
pub(super) fn device_error(
    output: &mut Output,
    request: Request,
    failed: IoError,
) -> io::Result<()> {
    let number = on_the_wire(request.command, failed);
    error(output, request, number, format_args!("{failed}"))
}

/// The request failed from `offset` on.
#[cold]
pub(super) fn error_at(
    output: &mut Output,
    request: Request,
    error: u32,
    offset: u64,
    why: Arguments<'_>,
) -> io::Result<()> {
    error_chunk(output, request, chunk::ERROR_OFFSET, error, why, &offset.to_be_bytes())
}

fn error_chunk(
    output: &mut Output,
    request: Request,
    kind: u16,
    error: u32,
    why: Arguments<'_>,
    tail: &[u8],
) -> io::Result<()> {
    let at = output.len();
    output.put(&[0; CHUNK_HEADER])?;
    output.put(&error.to_be_bytes())?;
    output.put(&[0; 2])?;
    let text = output.put_text(why)?;
    output.put(tail)?;
    let length = (6 + text + tail.len()) as u32;
    output.patch(at, &chunk_header(chunk::FLAG_DONE, kind, request.cookie, length));
    output.patch(at + CHUNK_HEADER + 4, &(text as u16).to_be_bytes());
    Ok(())
}
