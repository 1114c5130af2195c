//! The lifecycle of a device: it gets a size, is resized, compacted and reset.

use alloc::{boxed::Box, format, sync::Arc};
use core::ops::Range;

use control::{ControlError, Errno};
use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE, pages_for};
use zcomp::{Chosen, PRIORITIES, Params};

use crate::disk::Disk;
use crate::disk::place::Place;
use crate::disk::settings::Settings;
use crate::disk::when_full::WhenFull;
use crate::engine::Table;
use crate::engine::{Engine, EngineOptions};
use crate::record::Record;
use crate::resources::{CPU, Resources};

/// The most pages of a device, which each reserves addresses for, so that it can grow: 16 TiB. So
/// its pages can be in a log.
const MOST_PAGES: u64 = pagelog::MOST_PAGES;

/// What becomes a device.
pub(crate) struct Unpublished {
    pub(crate) engine: Arc<Engine>,
    bytes: u64,
    generation: u64,
    with: Made,
}

/// The settings that an engine is made with, and which may be changed before it is the device's.
#[derive(PartialEq, Eq)]
struct Made {
    algorithms: [Option<&'static str>; PRIORITIES],
    params: [Params; PRIORITIES],
    times: bool,
}

impl Made {
    fn with(settings: &Settings) -> Made {
        let Settings { algorithms, params, track_access, .. } = settings;
        Made { algorithms: *algorithms, params: params.clone(), times: *track_access }
    }
}

impl Disk {
    /// Gives the device its size, rounded up to whole pages. The device is ready then.
    ///
    /// # Errors
    /// `EINVAL` for a size of 0 or a codec parameter out of range, `EBUSY` when it has a size
    /// already, `ENODEV` when pages are to spill to a backing device that is not there, `ENOMEM`
    /// for more than 16 TiB, or when memory or addresses for its tables are out. Nothing has
    /// changed then. (Linux, `Documentation/admin-guide/blockdev/zram.rst`, "Set Disksize".)
    pub fn set_disksize(&self, bytes: u64) -> Result<(), ControlError> {
        if bytes == 0 {
            return Err(ControlError::invalid(
                "a disksize of 0 is not a size; give at least one byte",
            ));
        }
        self.refuse_if_restoring()?;
        // The check fails at once, not after a long writeback.
        self.refuse_a_second_size()?;
        let _post = self.family().post.lock();
        let settings = self.family().settings.lock();
        self.refuse_a_second_size()?;
        let made = self.make(&settings, bytes)?;
        self.publish_with(&settings, made)
    }

    /// What becomes a device of this size with [`Disk::publish`], with its settings, or with these
    /// codecs instead of its own. The calling thread holds `post` until then.
    ///
    /// # Errors
    /// As [`Disk::set_disksize`].
    pub(crate) fn unpublished(
        &self,
        bytes: u64,
        codecs: Option<[Option<Chosen>; PRIORITIES]>,
    ) -> Result<Unpublished, ControlError> {
        let mut settings = self.family().settings.lock();
        for (at, chosen) in codecs.into_iter().flatten().enumerate() {
            settings.algorithms[at] = chosen.as_ref().map(|chosen| chosen.compressor.name());
            settings.params[at] = chosen.map(|chosen| chosen.params).unwrap_or_default();
        }
        if settings.algorithms[0].is_none() {
            return Err(ControlError::invalid("it has no primary algorithm"));
        }
        self.make(&settings, bytes)
    }

    /// Makes it the device.
    ///
    /// # Errors
    /// `EBUSY` if settings were changed meanwhile that it was made with.
    pub(crate) fn publish(&self, made: Unpublished) -> Result<(), ControlError> {
        let settings = self.family().settings.lock();
        if Made::with(&settings) != made.with {
            let message = format!("settings of {} were changed meanwhile", self.name());
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        self.publish_with(&settings, made)?;
        self.limit_pool(&settings);
        Ok(())
    }

    fn make(&self, settings: &Settings, bytes: u64) -> Result<Unpublished, ControlError> {
        self.refuse_to_spill(self.when_full(), settings)?;
        let rounded = rounded(bytes)?;
        let pages = rounded / PAGE_SIZE as u64;
        let codecs = settings.codecs(&self.resources)?;
        let generation = self.generation() + 1;
        let name = Resources::kept_name(self.id(), generation);
        let record = self.new_record(&name, settings.track_access)?;
        if let Some(record) = &record {
            record.set_writeback_left(settings.writeback_limit);
        }
        let options = EngineOptions {
            pages: usize::try_from(pages).map_err(|_| no_tables(bytes))?,
            room: usize::try_from(MOST_PAGES).unwrap_or(usize::MAX),
            codecs: &codecs,
            ..self.engine_options(settings, &name, record.clone())
        };
        let engine = Arc::new(Engine::new(&self.resources, options)?);
        Ok(Unpublished { engine, bytes: rounded, generation, with: Made::with(settings) })
    }

    fn publish_with(&self, settings: &Settings, made: Unpublished) -> Result<(), ControlError> {
        let Unpublished { engine, bytes, generation, .. } = made;
        let (slots, record) = (engine.capacity(), engine.record().cloned());
        if let (Some(record), Some(backing)) = (&record, settings.backing.as_deref()) {
            let name = Resources::kept_name(self.id(), generation);
            let kept = backing.keep(&*self.resources.memory_of(&name, Table::Log));
            kept.map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))?;
            if backing.is_log() {
                record.has_log();
            }
        }
        if self.place.publish(Box::new(Place::all(engine))).is_err() {
            return Err(ControlError::new(Errno::EBUSY, format!("{} is in use", self.name())));
        }
        self.generation.store(generation, Ordering::Relaxed);
        if let Some(record) = record {
            record.set_slots(slots);
            // From now on another process finds a device.
            record.set_bytes(bytes);
        }
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The options of an engine under these settings, but for its size and codecs.
    pub(crate) fn engine_options<'a>(
        &self,
        settings: &Settings,
        name: &'a str,
        record: Option<Record>,
    ) -> EngineOptions<'a> {
        let usual = self.resources.streams.usual(self.resources.cpus);
        EngineOptions {
            pages: 0,
            room: 0,
            codecs: &[],
            limits: self.family().full.limits(pages_for(settings.mem_limit)),
            streams: settings.max_streams.unwrap_or(usual),
            readers: self.readers.clone(),
            clock: settings.track_access.then(|| self.resources.clock.clone()),
            counts: self.counts.clone(),
            backing: settings.backing.clone(),
            name,
            record,
        }
    }

    /// The record of a new device, if devices outlive the process.
    fn new_record(&self, name: &str, times: bool) -> Result<Option<Record>, ControlError> {
        if self.resources.kept.is_none() {
            return Ok(None);
        }
        let memory = self.resources.memory_of(name, Table::Record);
        match Record::create(&*memory, times) {
            Ok(record) => Ok(Some(record)),
            Err(why) => {
                let message = format!("{} gets no size: {why}", self.name());
                Err(ControlError::new(Errno::ENOMEM, message))
            }
        }
    }

    /// Sets the size of a device with an engine, also for another process.
    fn set_bytes(&self, engine: &Engine, bytes: u64) {
        match (self.clone_of(), engine.record()) {
            (Some(_), _) => engine.windows().set_bytes(self.window().start, bytes),
            (None, Some(record)) => record.set_bytes(bytes),
            (None, None) => {}
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Fails at once while the device is being restored, for who must not wait for that.
    fn refuse_if_restoring(&self) -> Result<(), ControlError> {
        match self.restoring.load(Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let message = format!("{} is being restored; wait for its end", self.name());
                Err(ControlError::new(Errno::EBUSY, message))
            }
        }
    }

    pub(crate) fn refuse_a_second_size(&self) -> Result<(), ControlError> {
        if self.bytes() == 0 {
            return Ok(());
        }
        let message = format!("{} has a size already; reset it first", self.name());
        Err(ControlError::new(Errno::EBUSY, message))
    }

    /// Changes the size of a device that has one, rounded up to whole pages. A device can grow, but
    /// for a clone, and for an origin to more than twice the size that it had when it was cloned.
    /// It can shrink if no page beyond the new end has contents.
    ///
    /// # Errors
    /// `EINVAL` for a size of 0 or a device without a size, `ENOMEM` for more than 16 TiB, or when
    /// addresses for its tables are out, `EBUSY` when a page beyond the new end has contents, the
    /// slots there are those of clones, or the device is being restored. Nothing has changed then.
    pub fn resize(&self, bytes: u64) -> Result<(), ControlError> {
        self.refuse_if_restoring()?;
        let _post = self.family().post.lock();
        let engine = self.ready_engine()?;
        let _settings = self.family().settings.lock();
        let was = self.bytes();
        let (rounded, tail) = self.resized(&engine, bytes)?;
        if rounded < was {
            self.bytes.store(rounded, Ordering::Relaxed);
            // After this wait, every request that saw the old size is done.
            self.readers.wait_for_readers();
            self.refuse_if_held(&engine, tail).inspect_err(|_| {
                self.bytes.store(was, Ordering::Relaxed);
            })?;
        }
        // Another process has the new size before a request can use it.
        self.set_bytes(&engine, rounded);
        Ok(())
    }

    /// Checks that the device could have the size `bytes` now. Nothing changes.
    ///
    /// # Errors
    /// Those of [`Disk::resize`].
    pub fn check_resize(&self, bytes: u64) -> Result<(), ControlError> {
        let engine = self.ready_engine()?;
        let _settings = self.family().settings.lock();
        self.resized(&engine, bytes).map(drop)
    }

    /// The size for `bytes`, and the pages beyond it, which are empty.
    fn resized(&self, engine: &Engine, bytes: u64) -> Result<(u64, Range<usize>), ControlError> {
        if bytes == 0 {
            return Err(ControlError::invalid("a size of 0 is not a size; give at least one byte"));
        }
        let rounded = rounded(bytes)?;
        let pages = rounded / PAGE_SIZE as u64;
        if pages > engine.capacity() as u64 {
            return Err(no_tables(bytes));
        }
        let window = self.window();
        let most = match window.start {
            0 => engine.windows().start(),
            base => engine.windows().at(base).len(),
        };
        if pages > most as u64 {
            return Err(self.no_slots(engine, most));
        }
        let tail = window.start + pages as usize..window.end;
        self.refuse_if_held(engine, tail.clone()).map(|()| (rounded, tail))
    }

    fn refuse_if_held(&self, engine: &Engine, pages: Range<usize>) -> Result<(), ControlError> {
        match engine.touched(pages).find(|index| !engine.peek(*index).is_empty()) {
            None => Ok(()),
            Some(index) => {
                let (name, index) = (self.name(), index - self.window().start);
                let message = format!(
                    "page {index} of {name} holds data beyond the new end; discard it first"
                );
                Err(ControlError::new(Errno::EBUSY, message))
            }
        }
    }

    /// `EBUSY`: the slots behind the first `most` pages are those of clones.
    fn no_slots(&self, engine: &Engine, most: usize) -> ControlError {
        let (name, bytes) = (self.name(), most as u64 * PAGE_SIZE as u64);
        let message = match (self.clone_of(), engine.windows().names()) {
            (None, Some(clones)) => {
                format!("{name} has {bytes} bytes at most while it has clones: {clones}")
            }
            _ => format!("{name} is a clone, and has {bytes} bytes at most"),
        };
        ControlError::new(Errno::EBUSY, message)
    }

    /// Drops all contents, the size, the settings and the statistics. A clone is an ordinary device
    /// afterwards.
    ///
    /// # Errors
    /// `EBUSY` while the device has users or clones; nothing has changed then.
    pub fn reset(&self) -> Result<(), ControlError> {
        self.refuse_if_restoring()?;
        // The check fails at once, not after a long writeback.
        self.refuse_if_used(&self.settings.lock())?;
        self.refuse_if_cloned()?;
        let family = self.family();
        let _post = family.post.lock();
        let mut settings = self.settings.lock();
        self.refuse_if_used(&settings)?;
        self.refuse_if_cloned()?;
        match self.engine() {
            Some(engine) => self.set_bytes(&engine, 0),
            None => self.bytes.store(0, Ordering::Relaxed),
        }
        let old = core::mem::replace(&mut *settings, Settings::new(&self.resources));
        self.full.set_policy(WhenFull::default());
        // It takes a while to free all pages and to close a backing device, above all one with
        // remote stores. Everybody reads the settings meanwhile.
        drop(settings);
        drop(self.place.withdraw());
        if self.clone_of().is_some() {
            if let Some(engine) = family.engine() {
                engine.own_again(CPU, self.reach());
            }
            self.is_clone.store(false, Ordering::Relaxed);
        }
        self.counts.clear();
        drop(old);
        Ok(())
    }

    /// Is the device being written back, compressed again, cloned or the like? A reset and another
    /// size wait for the end of that.
    ///
    /// # Errors
    /// `EBUSY` while it is restored: nothing waits for that.
    pub fn is_processed(&self) -> Result<bool, ControlError> {
        self.refuse_if_restoring()?;
        Ok(self.family().post.try_lock().is_none())
    }

    /// Waits for the end of that.
    pub fn wait_until_processed(&self) {
        drop(self.family().post.lock());
    }

    /// Checks that the device has no clones.
    ///
    /// # Errors
    /// `EBUSY`; the message names them.
    pub fn refuse_if_cloned(&self) -> Result<(), ControlError> {
        if self.clone_of().is_some() {
            return Ok(());
        }
        let Some(clones) = self.with_engine(|engine| engine.windows().names()).flatten() else {
            return Ok(());
        };
        let message = format!("{} has clones: {clones}; remove them first", self.name());
        Err(ControlError::new(Errno::EBUSY, message))
    }

    fn refuse_if_used(&self, settings: &Settings) -> Result<(), ControlError> {
        if settings.openers == 0 {
            return Ok(());
        }
        let message = format!("{} has {} user(s); close it first", self.name(), settings.openers);
        Err(ControlError::new(Errno::EBUSY, message))
    }

    /// Sets the peak of used memory to the present use.
    pub fn reset_peak(&self) {
        self.with_engine(|engine| {
            engine.give_back(Cpu(0));
            engine.pool().reset_peak();
        });
    }

    /// Moves objects together and gives the freed frames back, on the calling thread. Returns the
    /// number of freed frames.
    ///
    /// # Errors
    /// `EINVAL` while the device is not initialised.
    pub fn compact(&self) -> Result<u64, ControlError> {
        let engine = self.ready_engine()?;
        let frames = engine.compact(Cpu(0), self.reach());
        // The freed frames are scattered; draining gives their memory back to the system.
        self.resources.frames.drain();
        Ok(frames)
    }
}

fn no_tables(bytes: u64) -> ControlError {
    let message = format!("there is no memory for the tables of a disk of {bytes} bytes");
    ControlError::new(Errno::ENOMEM, message)
}

/// Rounds a size up to whole pages.
fn rounded(bytes: u64) -> Result<u64, ControlError> {
    const MOST: u64 = MOST_PAGES * PAGE_SIZE as u64;
    if bytes > MOST {
        let message = format!("a disk has 16 TiB at most, which is {MOST} bytes, not {bytes}");
        return Err(ControlError::new(Errno::ENOMEM, message));
    }
    Ok(pages_for(bytes) * PAGE_SIZE as u64)
}
