//! The key of a sealed device, and what it makes of a page.

use std::io;

use host::Secret;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use sync::atomic::{AtomicU64, Ordering};
use units::Page;

/// What is needed to open a page again: the number of its write, and the tag of its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seal {
    /// Counts the writes of the device, from 1.
    pub number: u64,
    pub tag: [u8; 16],
}

/// The page was not sealed with this key, as this block, by that write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// A random key that never leaves locked memory.
pub(crate) struct Key {
    key: Secret<LessSafeKey>,
    writes: AtomicU64,
}

fn failed<E>(_: E) -> io::Error {
    io::Error::other("the system has no random numbers")
}

impl Key {
    /// Draws a key.
    ///
    /// # Errors
    /// The memory for it cannot be locked, or there are no random numbers.
    pub fn new() -> io::Result<Key> {
        let key = Secret::new(|| {
            let mut bytes = [0; 32];
            SystemRandom::new().fill(&mut bytes).map_err(failed)?;
            let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(failed)?;
            Ok(LessSafeKey::new(key))
        })?;
        Ok(Key { key, writes: AtomicU64::new(0) })
    }

    /// Encrypts a page in place, as block number `block`. Each call uses another nonce.
    pub fn seal(&self, block: u64, page: &mut Page) -> Seal {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let (nonce, place) = (nonce(block, number), block.to_le_bytes());
        match self.key.seal_in_place_separate_tag(nonce, Aad::from(place), page) {
            Ok(tag) => {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(tag.as_ref());
                Seal { number, tag: bytes }
            }
            // Only a message of gigabytes is refused. A seal that opens nothing keeps the page
            // from being read back, and the zeroes keep it from leaving memory.
            Err(_) => {
                page.fill(0);
                Seal { number, tag: [0; 16] }
            }
        }
    }

    /// Decrypts a page in place. The page is zeroes if it is not the one that was sealed.
    ///
    /// # Errors
    /// [`Broken`]: it was changed, or is another block's, or another write's.
    pub fn open(&self, block: u64, seal: Seal, page: &mut Page) -> Result<(), Broken> {
        let (nonce, place) = (nonce(block, seal.number), block.to_le_bytes());
        let tag = Tag::from(seal.tag);
        match self.key.open_in_place_separate_tag(nonce, Aad::from(place), tag, page, 0..) {
            Ok(_) => Ok(()),
            Err(_) => {
                page.fill(0);
                Err(Broken)
            }
        }
    }
}

/// The place and the number of the write: 4 and 8 bytes. The number alone is never used twice.
fn nonce(block: u64, number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&(block as u32).to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}
