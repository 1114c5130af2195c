//! Makes a device what a snapshot says. It has no size until the end of the snapshot was read.

use alloc::sync::Arc;
use alloc::{format, string::String, vec::Vec};

use block::IoError;
use control::{ControlError, Errno};
use objects::Compressed;
use sync::atomic::Ordering;
use zcomp::{Chosen, PRIORITIES};

use super::format::{Codec, Form, Item};
use super::read::{Source, read_snapshot};
use crate::disk::{Disk, Unpublished};
use crate::engine::{Engine, Part, Slot};
use crate::resources::CPU;

/// How a device is restored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Restoring {
    /// The size that the device gets, in bytes; without it, that of the snapshot.
    pub bytes: Option<u64>,
    /// The device takes the algorithms of the snapshot for what is stored from then on. Otherwise
    /// it keeps its own. What is restored stays as it is compressed.
    pub algorithms: bool,
}

/// What was restored.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Restored {
    /// The bytes of the device that the snapshot was taken of.
    pub bytes: u64,
    /// Its name.
    pub name: String,
    /// When it was taken, in seconds since 1970.
    pub time: u64,
    /// The pages with contents.
    pub pages: u64,
}

impl Disk {
    /// Gives a device without a size the size and the contents of a snapshot, which `source` reads
    /// on. Until this returns, the device has no size.
    ///
    /// # Errors
    /// `EBUSY` for a device that has a size; `EINVAL` for what is no whole and sound snapshot, or
    /// one of a larger device; `ENOSPC` if the memory limit of the device is too low for it; the
    /// errors of `source` and of [`Disk::set_disksize`]. The device has no size then.
    pub fn restore(
        self: &Arc<Disk>,
        source: Source<'_>,
        how: Restoring,
    ) -> Result<Restored, ControlError> {
        self.refuse_a_second_size()?;
        let _restoring = Flag::set(self)?;
        let _post = self.family().post.lock();
        self.refuse_a_second_size()?;
        let mut filling = Filling {
            disk: self,
            how,
            restored: Restored::default(),
            to: None,
            codecs: Vec::new(),
            current: Default::default(),
            objects: Vec::new(),
        };
        let read = read_snapshot(source, &mut |item| filling.take(item));
        let done = read.and_then(|()| filling.publish());
        if done.is_err() {
            filling.give_up();
        }
        done.map(|()| filling.restored)
    }
}

/// The device is being restored while it lives.
struct Flag<'a>(&'a Disk);

impl Flag<'_> {
    fn set(disk: &Disk) -> Result<Flag<'_>, ControlError> {
        match disk.restoring.swap(true, Ordering::Relaxed) {
            false => Ok(Flag(disk)),
            true => {
                let message = format!("{} is being restored already", disk.name());
                Err(ControlError::new(Errno::EBUSY, message))
            }
        }
    }
}

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.restoring.store(false, Ordering::Relaxed);
    }
}

/// A device that is being filled.
struct Filling<'a> {
    disk: &'a Disk,
    how: Restoring,
    restored: Restored,
    to: Option<Unpublished>,
    /// The codecs of the snapshot, and the numbers that they have got here.
    codecs: Vec<(u8, Chosen, Option<u8>)>,
    /// Those that were current.
    current: [Option<Chosen>; PRIORITIES],
    /// The shared objects.
    objects: Vec<Filled>,
}

/// A shared object. A reference to it is held until all is filled.
struct Filled {
    entry: u32,
    packed: bool,
    huge: bool,
}

impl Filling<'_> {
    fn take(&mut self, item: Item<'_>) -> Result<(), ControlError> {
        match item {
            Item::Begin { bytes, time, name } => {
                let wanted = self.how.bytes.unwrap_or(bytes);
                if wanted < bytes {
                    let message = format!(
                        "the snapshot is of a device of {bytes} bytes, and this one is to have \
                         {wanted}"
                    );
                    return Err(ControlError::invalid(message));
                }
                self.restored = Restored { bytes, name: name.into(), time, pages: 0 };
                Ok(())
            }
            Item::Codec(codec) => self.codec(codec),
            Item::Object { pages, form } => {
                self.prepare()?;
                if self.objects.try_reserve(1).is_err() {
                    return Err(self.refused(IoError::NoMemory));
                }
                let slot = self.slot(form)?;
                let entry = self.to()?.fill_shared(CPU, slot, pages);
                let entry = entry.map_err(|error| self.refused(error))?;
                let huge = matches!(form, Form::Huge(_));
                self.objects.push(Filled { entry, packed: pages > 1, huge });
                Ok(())
            }
            Item::Page { index, form } => {
                self.prepare()?;
                let slot = self.slot(form)?;
                self.to()?.fill(CPU, index, slot);
                Ok(())
            }
            Item::End { pages, .. } => {
                self.prepare()?;
                self.restored.pages = pages;
                Ok(())
            }
        }
    }

    fn codec(&mut self, codec: Codec<'_>) -> Result<(), ControlError> {
        let Codec { priority, is_current, name, params } = codec;
        let compressor = self.disk.resources.codec(name, &params)?;
        let chosen = Chosen { compressor, params };
        if is_current && let Some(place) = self.current.get_mut(usize::from(priority)) {
            *place = Some(chosen.clone());
        }
        self.codecs.push((priority, chosen, None));
        Ok(())
    }

    /// Makes what is filled, before the first contents.
    fn prepare(&mut self) -> Result<(), ControlError> {
        if self.to.is_some() {
            return Ok(());
        }
        let bytes = self.how.bytes.unwrap_or(self.restored.bytes);
        let codecs = self.how.algorithms.then(|| self.current.clone());
        self.to = Some(self.disk.unpublished(bytes, codecs)?);
        Ok(())
    }

    fn to(&self) -> Result<&Engine, ControlError> {
        let none = || ControlError::new(Errno::EIO, "there is nothing to fill");
        self.to.as_ref().map(|to| &*to.engine).ok_or_else(none)
    }

    /// The slot of these contents.
    fn slot(&mut self, form: Form<'_>) -> Result<Slot, ControlError> {
        let slot = match form {
            Form::Filled(pattern) => self.to()?.fill_pattern(CPU, u64::from_ne_bytes(pattern)),
            Form::Compressed { codec, bytes } => {
                let codec = self.number(codec)?;
                self.to()?.fill_compressed(CPU, Compressed { bytes, codec })
            }
            Form::Huge(page) => self.to()?.fill_huge(CPU, page),
            Form::Plain(page) => {
                let reader = self.disk.readers.enter(CPU);
                self.to()?.fill_plain(&reader, CPU, page)
            }
            Form::Lost => Ok(Slot::LOST),
            Form::Part { object, part } => {
                let of = self.objects.get(object as usize);
                let of = of.ok_or_else(|| ControlError::invalid("there is no such object"))?;
                let Filled { entry, packed, huge } = *of;
                Ok(self.to()?.fill_part(Part { entry, part, packed, huge }))
            }
        };
        slot.map_err(|error| self.refused(error))
    }

    /// The number that a codec of the snapshot has here.
    fn number(&mut self, codec: u8) -> Result<u8, ControlError> {
        let none = || ControlError::invalid(format!("there is no codec {codec}"));
        let (priority, chosen, number) = self.codecs.get(usize::from(codec)).ok_or_else(none)?;
        if let Some(number) = number {
            return Ok(*number);
        }
        let number = self.to()?.adopt_codec(*priority, chosen.clone())?;
        self.codecs[usize::from(codec)].2 = Some(number);
        Ok(number)
    }

    fn refused(&self, error: IoError) -> ControlError {
        let name = self.disk.name();
        match error {
            IoError::NoSpace => {
                let message = format!("the snapshot takes more memory than mem_limit of {name}");
                ControlError::new(Errno::ENOSPC, message)
            }
            error => ControlError::new(Errno::ENOMEM, format!("{name}: {error}")),
        }
    }

    fn publish(&mut self) -> Result<(), ControlError> {
        let none = || ControlError::new(Errno::EIO, "there is nothing to restore");
        self.let_objects_go();
        self.disk.publish(self.to.take().ok_or_else(none)?)
    }

    fn let_objects_go(&mut self) {
        for object in core::mem::take(&mut self.objects) {
            if let Some(to) = &self.to {
                to.engine.let_go(CPU, object.entry);
            }
        }
    }

    fn give_up(&mut self) {
        self.let_objects_go();
        drop(self.to.take());
        // The device had no size, and nothing was counted.
        self.disk.counts.clear();
    }
}
