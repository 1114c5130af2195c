//! Snapshots of a store.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::time::UNIX_EPOCH;

use control::{ControlError, Errno};
use values::LoadError;
use zram::snapshot::{Of, put_beginning, put_record, read_records};

use crate::{Error, Store};

impl Store {
    /// Writes a snapshot of the values, as they are compressed, with the lives that they have left,
    /// and returns their number. Other threads go on meanwhile, and nothing waits for the writer: a
    /// value is in the snapshot as it was at some instant within this call, and one that is there
    /// all the time is in it. The writer gets pieces of 256 KiB and more, one after the other, and
    /// may be a pipe. The file has sums, and no secrets are kept from who reads it.
    ///
    /// A copy of a store is made through [`std::io::pipe`]: one thread saves it to the one end, and
    /// another loads it from the other end.
    ///
    /// ```
    /// # fn main() -> Result<(), rampack::Error> {
    /// use rampack::{Rampack, StoreOptions};
    ///
    /// # #[cfg(any(feature = "lz4", feature = "lz4-rust"))] {
    /// let rampack = Rampack::new()?;
    /// let store = rampack.store(StoreOptions::new())?;
    /// store.put("user:7", "any bytes")?;
    /// let mut file = Vec::new(); // or a `std::fs::File`
    /// store.save(&mut file)?;
    ///
    /// let other = rampack.store(StoreOptions::new())?;
    /// assert_eq!(other.load(&file[..])?, 1);
    /// assert_eq!(other.get("user:7")?.as_deref(), Some(&b"any bytes"[..]));
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the writer; [`Error::Corrupt`]. What was written is no snapshot then, and is
    /// refused by [`Store::load`].
    pub fn save(&self, mut to: impl Write) -> Result<u64, Error> {
        let time = UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs());
        let mut saving = self.values().saving(time);
        let (mut out, mut number) = (Vec::new(), 0);
        put_beginning(&mut out, Of::Store);
        while let Some((kind, contents)) = saving.next_record(self.here())? {
            put_record(&mut out, number, kind, contents);
            number += 1;
            to.write_all(&out).map_err(|error| lost("written", &error))?;
            out.clear();
        }
        to.flush().map_err(|error| lost("written", &error))?;
        Ok(saving.saved())
    }

    /// Reads a snapshot to its end, and then stores all its values, each in place of the one that
    /// its key had. Returns their number. Lives go on with what they had left. It is fastest if the
    /// algorithm and the unit are those of the store that was saved: objects stay as they are then.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no whole and sound snapshot of a store; the message says what
    /// is wrong, and where. [`Error::Full`] if there is no room for all of it: nothing is evicted
    /// for it. [`Error::Unsupported`] for an algorithm that this build lacks. The error of the
    /// reader. The store has what it had then.
    pub fn load(&self, mut from: impl Read) -> Result<u64, Error> {
        let mut failed = None;
        let mut source = |into: &mut [u8]| loop {
            match from.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| stop(&mut failed, lost("read", &error))),
            }
        };
        let mut refused = None;
        let mut loading = self.values().loading(self.here().cpu);
        let read = read_records(&mut source, Of::Store, &mut |record, place| {
            let taken = loading.take(self.here(), record.kind, record.contents);
            taken.map_err(|error| match error {
                LoadError::Wrong(message) => place(message),
                LoadError::Codec(message) => {
                    stop(&mut refused, Error::Unsupported(Cow::Owned(message)))
                }
                LoadError::Full => stop(&mut refused, Error::Full),
            })
        });
        match (failed.or(refused), read) {
            (Some(error), Err(_)) => Err(error),
            (_, Err(error)) => Err(error.into()),
            (_, Ok(())) => loading.publish(self.here().cpu).map_err(|_| Error::Full),
        }
    }
}

/// Remembers why reading stops.
fn stop(why: &mut Option<Error>, error: Error) -> ControlError {
    *why = Some(error);
    ControlError::new(Errno::EIO, "stopped")
}

fn lost(done: &str, error: &io::Error) -> Error {
    let message = format!("the snapshot cannot be {done}: {error}").into();
    Error::System { errno: error.raw_os_error().unwrap_or(Errno::EIO.0), message }
}
