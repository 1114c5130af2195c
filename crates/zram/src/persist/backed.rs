//! The pages of a device that are on its backing device.

use alloc::{format, string::String};
use core::ops::{ControlFlow, Range};

use block::{BlockDevice, ExtentKind};
use pagelog::{Backed, Misclaimed};
use units::Cpu;

use super::Recovery;

impl Recovery {
    /// Says what is wrong with a page that was written back. Marks its place.
    pub(super) fn judge_backed(&self, place: Backed) -> Result<(), String> {
        let Some(backing) = self.engine.backing() else {
            return Err("it was written back, and there is no backing device (K18)".into());
        };
        if place.form.is_compressed() {
            self.objects.codec(place.form.codec)?;
        }
        if self.is_sealed && !has_seals(backing.device(), backing.span(place)) {
            let why = "it was written back sealed, and the key ended with the process (K18)";
            return Err(why.into());
        }
        backing.claim(place).map_err(|why| {
            if let Misclaimed::Taken(_) = why {
                self.doubles.lock().insert(place.at);
            }
            format!("{why}")
        })
    }
}

/// Whether a sealed device can open these blocks. A place beyond its end is another error.
fn has_seals(device: &dyn BlockDevice, bytes: Range<u64>) -> bool {
    let mut has_seals = true;
    let _ = device.extents(Cpu(0), bytes.start, bytes.end - bytes.start, &mut |extent| {
        has_seals &= extent.kind != ExtentKind::Hole;
        ControlFlow::Continue(())
    });
    has_seals
}
