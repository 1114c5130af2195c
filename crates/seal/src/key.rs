//! The key of a sealed device, and what it makes of a page.

use std::io;

use host::{KEY_BYTES, Secret};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
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

/// A key that never leaves locked memory.
pub(crate) struct Key {
    key: Secret<LessSafeKey>,
}

/// Draws a key.
///
/// # Errors
/// There are no random numbers.
pub fn draw(key: &mut [u8; KEY_BYTES]) -> io::Result<()> {
    SystemRandom::new().fill(key).map_err(failed)
}

fn failed<E>(_: E) -> io::Error {
    io::Error::other("the system has no random numbers")
}

impl Key {
    /// A random key.
    ///
    /// # Errors
    /// The memory for it cannot be locked, or there are no random numbers.
    pub fn random() -> io::Result<Key> {
        Key::made(draw)
    }

    /// The key of these bytes.
    ///
    /// # Errors
    /// The memory for it cannot be locked.
    pub fn of(key: &[u8; KEY_BYTES]) -> io::Result<Key> {
        Key::made(|bytes| {
            bytes.copy_from_slice(key);
            Ok(())
        })
    }

    fn made(make: impl FnOnce(&mut [u8; KEY_BYTES]) -> io::Result<()>) -> io::Result<Key> {
        let key = Secret::new(|| {
            let mut bytes = [0; KEY_BYTES];
            make(&mut bytes)?;
            let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(failed)?;
            Ok(LessSafeKey::new(key))
        })?;
        Ok(Key { key })
    }

    /// Encrypts a page in place, as block number `block`. No two calls may have the same number.
    pub fn seal(&self, block: u64, number: u64, page: &mut Page) -> Seal {
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
