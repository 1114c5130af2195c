//! A stream that only who has the secret reads, and that cannot be changed, cut or put together
//! anew.
//!
//! It begins with the letters `rampack-seal`, its version in four bytes (little-endian), now 1, and
//! sixteen random bytes of salt. The key is PBKDF2-HMAC-SHA256 of the secret with this salt, in
//! 600,000 rounds. Pieces follow: four bytes with the length of what is in it, at most 64 KiB, and
//! in the highest bit whether it is the last one; then what is in it, encrypted with AES-256-GCM;
//! then its tag of sixteen bytes. The nonce is the number of the piece (eight bytes), from 0, and
//! four zeroes. The four bytes with the length are authenticated, too. Nothing follows the last
//! piece.

use std::io::{self, Read, Write};
use std::num::NonZeroU32;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::pbkdf2;
use ring::rand::{SecureRandom, SystemRandom};

/// What a sealed stream begins with.
pub const STREAM_LETTERS: &[u8; 12] = b"rampack-seal";
const VERSION: u32 = 1;
const SALT: usize = 16;
const TAG: usize = 16;
/// The most bytes of a piece.
const PIECE: usize = 64 << 10;
const LAST: u32 = 1 << 31;
const ROUNDS: u32 = 600_000;

fn key(secret: &[u8], salt: &[u8]) -> io::Result<LessSafeKey> {
    let mut bytes = [0; 32];
    let rounds = NonZeroU32::MIN.saturating_add(ROUNDS - 1);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, secret, &mut bytes);
    let key = UnboundKey::new(&AES_256_GCM, &bytes);
    bytes.fill(0);
    key.map(LessSafeKey::new).map_err(|_| io::Error::other("no key can be made of the secret"))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Seals what is written to it. It must be finished.
pub struct StreamSealer<W> {
    to: W,
    key: LessSafeKey,
    number: u64,
    piece: Vec<u8>,
}

impl<W: Write> StreamSealer<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// There are no random numbers; the error of `to`.
    pub fn new(mut to: W, secret: &[u8]) -> io::Result<StreamSealer<W>> {
        let mut salt = [0; SALT];
        let none = |_| io::Error::other("the system has no random numbers");
        SystemRandom::new().fill(&mut salt).map_err(none)?;
        let key = key(secret, &salt)?;
        to.write_all(STREAM_LETTERS)?;
        to.write_all(&VERSION.to_le_bytes())?;
        to.write_all(&salt)?;
        Ok(StreamSealer { to, key, number: 0, piece: Vec::with_capacity(PIECE + TAG) })
    }

    fn put(&mut self, last: u32) -> io::Result<()> {
        let head = (self.piece.len() as u32 | last).to_le_bytes();
        let sealed =
            self.key.seal_in_place_append_tag(nonce(self.number), Aad::from(head), &mut self.piece);
        sealed.map_err(|_| io::Error::other("a piece cannot be sealed"))?;
        self.number += 1;
        self.to.write_all(&head)?;
        self.to.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }

    /// Writes the last piece.
    ///
    /// # Errors
    /// That of `to`.
    pub fn finish(mut self) -> io::Result<W> {
        self.put(LAST)?;
        self.to.flush()?;
        Ok(self.to)
    }
}

impl<W: Write> Write for StreamSealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..count]);
        if self.piece.len() == PIECE {
            self.put(0)?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Opens a sealed stream. It gives only what was sealed, in its order, and an error where the
/// stream was changed or ends early.
pub struct StreamOpener<R> {
    from: R,
    key: LessSafeKey,
    number: u64,
    piece: Vec<u8>,
    /// What of the piece was read, and where it ends.
    at: usize,
    end: usize,
    is_last: bool,
}

fn changed(number: u64) -> io::Error {
    let message = format!(
        "piece {number} of the sealed stream was changed, or the key is not the one it was sealed \
         with"
    );
    io::Error::new(io::ErrorKind::InvalidData, message)
}

impl<R: Read> StreamOpener<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// `InvalidData` if it is no sealed stream of a version that is known; the error of `from`.
    pub fn new(mut from: R, secret: &[u8]) -> io::Result<StreamOpener<R>> {
        let (mut letters, mut version, mut salt) = ([0; 12], [0; 4], [0; SALT]);
        from.read_exact(&mut letters)?;
        from.read_exact(&mut version)?;
        from.read_exact(&mut salt)?;
        let bad = |message: String| Err(io::Error::new(io::ErrorKind::InvalidData, message));
        if letters != *STREAM_LETTERS {
            return bad("it is not sealed".into());
        }
        if u32::from_le_bytes(version) != VERSION {
            let version = u32::from_le_bytes(version);
            return bad(format!("it is sealed in version {version}; this program reads {VERSION}"));
        }
        let key = key(secret, &salt)?;
        let (piece, at, end) = (Vec::new(), 0, 0);
        Ok(StreamOpener { from, key, number: 0, piece, at, end, is_last: false })
    }

    fn next(&mut self) -> io::Result<()> {
        let mut head = [0; 4];
        self.from.read_exact(&mut head).map_err(|_| {
            let message = format!("the sealed stream ends before piece {}", self.number);
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        let word = u32::from_le_bytes(head);
        let length = (word & !LAST) as usize;
        if length > PIECE {
            return Err(changed(self.number));
        }
        self.piece.resize(length + TAG, 0);
        self.from.read_exact(&mut self.piece).map_err(|_| changed(self.number))?;
        let (key, nonce) = (&self.key, nonce(self.number));
        let opened = key.open_in_place(nonce, Aad::from(head), &mut self.piece);
        opened.map_err(|_| changed(self.number))?;
        (self.at, self.end, self.is_last) = (0, length, word & LAST != 0);
        self.number += 1;
        if self.is_last && self.from.read(&mut [0])? != 0 {
            let message = "there is more behind the sealed stream";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(())
    }
}

impl<R: Read> Read for StreamOpener<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.end && !self.is_last {
            self.next()?;
        }
        let count = into.len().min(self.end - self.at);
        into[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(bytes: &[u8]) -> Vec<u8> {
        let mut sealer = StreamSealer::new(Vec::new(), b"secret").unwrap();
        sealer.write_all(bytes).unwrap();
        sealer.finish().unwrap()
    }

    fn opened(sealed: &[u8], secret: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        StreamOpener::new(sealed, secret)?.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn what_was_sealed_is_opened() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            let bytes: Vec<u8> = (0..length).map(|n| (n / 7) as u8).collect();
            assert_eq!(opened(&sealed(&bytes), b"secret").unwrap(), bytes, "{length} bytes");
        }
        assert_ne!(sealed(b"a")[16..], sealed(b"a")[16..], "the salt is another one");
    }

    #[test]
    fn nothing_else_is_opened() {
        let bytes: Vec<u8> = (0..2 * PIECE + 9).map(|n| (n / 7) as u8).collect();
        let whole = sealed(&bytes);
        let refused = |stream: &[u8], what: &str| {
            let error = opened(stream, b"secret").expect_err(what);
            assert!(!error.to_string().is_empty());
        };
        assert!(opened(&whole, b"secret2").is_err(), "another secret");
        let (head, piece) = (32, 4 + PIECE + TAG);
        for at in [0, 13, 20, 32, 35, 36, 40, head + piece - 1, head + piece, whole.len() - 1] {
            let mut stream = whole.clone();
            stream[at] ^= 1;
            refused(&stream, "a bit was changed");
        }
        for end in [0, 5, 20, head, head + 3, head + piece, head + 2 * piece, whole.len() - 1] {
            refused(&whole[..end], "it ends early");
        }
        refused(&[&whole[..], b"x"].concat(), "something follows");
        let (first, second) = (head..head + piece, head + piece..head + 2 * piece);
        let parts = |parts: &[&[u8]]| parts.concat();
        let rest = &whole[head + 2 * piece..];
        refused(
            &parts(&[&whole[..head], &whole[second.clone()], &whole[first.clone()], rest]),
            "pieces changed places",
        );
        refused(&parts(&[&whole[..head], &whole[second], rest]), "a piece is left out");
    }
}
