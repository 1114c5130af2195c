//! Where the pages of a device are: an engine and a part of its slots. A clone shares the engine of
//! its origin, and has what belongs to that.

use alloc::sync::Arc;

use crate::engine::Engine;
use crate::resources::CPU;

/// An engine, and the first slot of the device there: 0 for a device that is no clone. When it is
/// dropped, the window of a clone is given back, unless another process finds a device there. The
/// thread that drops it is no reader.
pub(crate) struct Place {
    pub(crate) engine: Arc<Engine>,
    pub(crate) base: usize,
}

impl Place {
    /// All slots of an engine.
    pub(crate) fn all(engine: Arc<Engine>) -> Place {
        Place { engine, base: 0 }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.base != 0 && !self.engine.windows().is_kept(self.base) {
            self.engine.give_window_back(CPU, self.base);
        }
    }
}
