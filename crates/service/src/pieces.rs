//! Bytes of any number on the control socket: before the answer of a command that gives them, or
//! after the request of one that takes them. The daemon first says by an answer that it begins.
//! Then come pieces, each after its length in four bytes (little-endian); one of no bytes ends
//! them. The answer of the command follows.

use std::io::{self, Read, Write};

/// Sends bytes as pieces.
///
/// # Errors
/// That of `to`.
pub fn put(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(u32::MAX as usize) {
        to.write_all(&(piece.len() as u32).to_le_bytes())?;
        to.write_all(piece)?;
    }
    Ok(())
}

/// Ends them.
///
/// # Errors
/// That of `to`.
pub fn end(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&0u32.to_le_bytes())
}

/// Pieces that are read.
#[derive(Default)]
pub struct Pieces {
    /// Bytes of the present piece.
    left: usize,
    is_over: bool,
}

impl Pieces {
    /// Reads the bytes that come next, as many as there are and fit; 0 at the end.
    ///
    /// # Errors
    /// That of `from`; `UnexpectedEof` if it ends before they do.
    pub fn take(&mut self, from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.is_over {
            let mut length = [0; 4];
            from.read_exact(&mut length)?;
            self.left = u32::from_le_bytes(length) as usize;
            self.is_over = self.left == 0;
        }
        let most = self.left.min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let count = from.read(&mut into[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count;
        Ok(count)
    }

    /// Were all read?
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.is_over
    }
}
