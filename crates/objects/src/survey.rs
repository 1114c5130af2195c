//! The objects of another process, while those that are named are found.

use alloc::collections::BTreeSet;
use alloc::{format, string::String, sync::Arc};

use control::{ControlError, Errno};
use pagealloc::{FrameSet, KeptMemory};
use sync::Mutex;
use zsmalloc::{BadObject, Census, Recovery, Unfit};

use crate::{Findings, Object, Objects};

/// The recovery of a store of objects, and the findings so far. Every method gets the store that
/// was surveyed. Any number of threads may call them at once.
pub struct Survey {
    pool: Recovery,
    /// A bit for each number that is a codec's.
    codecs: u32,
    findings: Mutex<Findings>,
    /// Handles that have two names.
    doubles: Mutex<BTreeSet<u32>>,
}

impl Survey {
    /// Looks at the zspages of another process. `codecs` has a bit for each number of a codec.
    ///
    /// # Errors
    /// `ENOTSUP` for other size classes than this program has; `ENOMEM`.
    pub fn begin(
        objects: &Objects,
        census: &Arc<Census>,
        codecs: u32,
        mut findings: Findings,
    ) -> Result<Survey, ControlError> {
        let pool = Recovery::survey(objects.pool(), census.clone(), |text| findings.add(text));
        let pool = pool.map_err(|error| {
            let errno = match error {
                Unfit::SizeClasses => Errno::ENOTSUP,
                Unfit::NoMemory(_) => Errno::ENOMEM,
            };
            ControlError::new(errno, format!("{error}"))
        })?;
        let (findings, doubles) = (Mutex::new(findings), Mutex::new(BTreeSet::new()));
        Ok(Survey { pool, codecs, findings, doubles })
    }

    /// Adds a finding.
    pub fn tell(&self, text: String) {
        self.findings.lock().add(text);
    }

    /// Whether there is a codec of this number.
    ///
    /// # Errors
    /// Says that there is none.
    pub fn codec(&self, number: u8) -> Result<(), String> {
        match self.codecs & 1 << number {
            0 => Err(format!("nothing was kept of its codec {number} (K15)")),
            _ => Ok(()),
        }
    }

    /// Marks an object that is named.
    ///
    /// # Errors
    /// Says why there can be no such object.
    pub fn mark(&self, objects: &Objects, object: Object) -> Result<(), String> {
        if let Object::Compressed { codec, .. } = object {
            self.codec(codec)?;
        }
        let marked = self.pool.mark(objects.pool(), object.handle(), object.bytes());
        if let Err(BadObject::Taken(_)) = marked {
            self.doubles.lock().insert(object.handle().get());
        }
        marked.map_err(|error| format!("{error}"))
    }

    /// Gives up an object that turned out to have two names.
    pub fn unmark(&self, objects: &Objects, object: Object) {
        self.pool.unmark(objects.pool(), object.handle());
    }

    /// The handles that have two names: nobody can say whose they are.
    pub fn doubles(&self) -> BTreeSet<u32> {
        self.doubles.lock().clone()
    }

    /// Adds the frames of named objects to `live`, and takes others out of their chains.
    pub fn settle(&self, objects: &Objects, live: &FrameSet) {
        self.pool.settle(objects.pool(), live);
    }

    /// Makes the store ready, after the zone has adopted the frames.
    pub fn finish(self, objects: &Objects) -> Findings {
        self.pool.finish(objects.pool());
        core::mem::take(&mut *self.findings.lock())
    }
}

/// Looks whether all of these regions were left: a missing one would be made, and be empty.
///
/// # Errors
/// `EINVAL` names one that is missing.
pub fn all_there<'a>(
    kept: &dyn KeptMemory,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(), ControlError> {
    match names.find(|name| !kept.has(name)) {
        Some(name) => Err(ControlError::invalid(format!("its memory {name} is not there (K3)"))),
        None => Ok(()),
    }
}
