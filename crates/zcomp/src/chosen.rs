//! A codec that was chosen, with its parameters.

use alloc::sync::Arc;

use crate::{Compressor, Params};

/// A chosen codec, opened.
#[derive(Clone)]
pub struct Chosen {
    /// The codec.
    pub compressor: Arc<dyn Compressor>,
    /// The parameters it was opened with.
    pub params: Params,
}

impl Chosen {
    /// Whether both are the same codec with the same parameters.
    #[must_use]
    pub fn is(&self, other: &Chosen) -> bool {
        self.compressor.name() == other.compressor.name() && self.params == other.params
    }
}
