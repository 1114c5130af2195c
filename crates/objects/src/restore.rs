//! Codecs that come back under their numbers.

use alloc::{format, string::String, sync::Arc};

use control::{ControlError, Errno};
use zcomp::{CODECS, Chosen, Compressor, PRIORITIES, Params};

use crate::{Objects, Record};

/// The codecs of another process.
#[derive(Default)]
pub struct Restored {
    /// A bit for each number that is a codec's.
    pub numbers: u32,
    /// The codec of each priority.
    pub current: [Option<Chosen>; PRIORITIES],
}

impl Objects {
    /// Puts the codecs of a record back under their numbers, as `open` opens them. `damaged` gets
    /// the number of each that is damaged, and what is to be said of it.
    ///
    /// # Errors
    /// `ENOTSUP` for a codec that this program does not have; `ENOMEM` without memory for streams;
    /// those of `damaged`.
    pub fn restore(
        &self,
        record: &Record,
        open: impl Fn(&str, &Params) -> Result<Arc<dyn Compressor>, ControlError>,
        mut damaged: impl FnMut(u8, String) -> Result<(), ControlError>,
    ) -> Result<Restored, ControlError> {
        let mut restored = Restored::default();
        for number in 0..CODECS as u8 {
            let kept = match record.codec(number) {
                Ok(Some(kept)) => kept,
                Ok(None) => continue,
                Err(why) => {
                    damaged(number, why)?;
                    continue;
                }
            };
            let compressor = open(&kept.name, &kept.params).map_err(|error| {
                let message =
                    format!("pages are compressed by codec {}: {}", kept.name, error.message);
                ControlError::new(Errno::ENOTSUP, message)
            })?;
            let chosen = Chosen { compressor, params: kept.params };
            let is_current = record.current(kept.priority) == Some(number);
            self.codecs()
                .restore(number, kept.priority, chosen.clone(), is_current)
                .map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))?;
            restored.numbers |= 1 << number;
            if is_current {
                restored.current[usize::from(kept.priority)] = Some(chosen);
            }
        }
        Ok(restored)
    }
}
