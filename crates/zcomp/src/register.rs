//! The interface to a register that outlives the process: which codec has which number.

use crate::{Chosen, CodecError};

/// Keeps the codecs of a bank, so that another process finds the same codecs under the numbers
/// that objects have. Its calls come one at a time.
pub trait Register: Send + Sync {
    /// Whether the codec can be kept.
    ///
    /// # Errors
    /// [`CodecError`] says what is too long.
    fn judge(&self, chosen: &Chosen) -> Result<(), CodecError>;

    /// Keeps codec `number` of a priority, in place of the one that had the number. No object is
    /// made with it before this returns, and none of the old codec is left.
    fn keep(&self, number: u8, priority: u8, chosen: &Chosen);

    /// Keeps the number of the codec that makes new objects of a priority.
    fn choose(&self, priority: u8, number: u8);
}
