//! The settings of a device that an administrator changes: codecs, limits and backing device.

use alloc::{format, string::String};

use block::RemoteStats;
use control::{ControlError, Errno};
use sync::MutexGuard;
use units::{Cpu, PAGE_SIZE, pages_for};
use zcomp::{Chosen, OneStream, PRIORITIES, Params};

use crate::disk::Disk;
use crate::disk::settings::{RemoteStores, Settings, Which, find, place};
use crate::disk::when_full::Hand;
use crate::engine::Engine;
use pagelog::LogStats;

/// The largest batch. No device gains from more pages, and each takes a page of memory.
const BATCH_MAX: u32 = 4096;

impl Disk {
    /// Chooses the codec of a priority. If the priority had another codec, its parameters are
    /// dropped.
    ///
    /// # Errors
    /// `EBUSY` once the device has a size, `EINVAL` for an unknown codec name (the message lists
    /// the known ones) or a priority above 3. Nothing has changed then.
    pub fn set_algorithm_at(&self, priority: u8, name: &str) -> Result<(), ControlError> {
        let algorithm = known_algorithm(name)?;
        let at = place(priority)?;
        let mut settings = self.family().settings.lock();
        self.refuse_if_ready("the algorithm")?;
        // Parameters may be set before their codec. Parameters of another codec are dropped.
        if settings.algorithms[at].is_some_and(|chosen| chosen != algorithm) {
            settings.params[at] = Params::default();
        }
        settings.algorithms[at] = Some(algorithm);
        Ok(())
    }

    /// Chooses the primary codec: see [`Disk::set_algorithm_at`].
    ///
    /// # Errors
    /// Those of [`Disk::set_algorithm_at`].
    pub fn set_algorithm(&self, name: &str) -> Result<(), ControlError> {
        self.set_algorithm_at(0, name)
    }

    /// Sets the parameters of a chosen codec, or of the codec that will be chosen for a priority.
    /// They are checked when the device gets its size.
    ///
    /// # Errors
    /// `EBUSY` once the device has a size, `EINVAL` for a name that is not a codec of the device.
    pub fn set_params_of(&self, which: &Which, params: Params) -> Result<(), ControlError> {
        let mut settings = self.family().settings.lock();
        self.refuse_if_ready("algorithm parameters")?;
        let at = match which {
            Which { priority: Some(priority), algorithm: None } => place(*priority)?,
            which => find(&settings, which, 0)?,
        };
        settings.params[at] = params;
        Ok(())
    }

    /// Sets the parameters of the primary codec: see [`Disk::set_params_of`].
    ///
    /// # Errors
    /// Those of [`Disk::set_params_of`].
    pub fn set_params(&self, params: Params) -> Result<(), ControlError> {
        self.set_params_of(&Which::default(), params)
    }

    /// Changes the codec of a priority while the device is in use, or before it has a size. Stored
    /// objects keep their codec; objects stored from now on are made by the new codec.
    ///
    /// # Errors
    /// `EINVAL` for an unknown codec name or a parameter that the codec refuses, `ENOMEM` when
    /// memory for its streams is out, `EBUSY` when stored objects use too many codecs already.
    /// Nothing has changed then.
    pub fn switch_algorithm(
        &self,
        priority: u8,
        name: &str,
        params: Params,
    ) -> Result<(), ControlError> {
        let algorithm = known_algorithm(name)?;
        let at = place(priority)?;
        let compressor = self.resources.codec(algorithm, &params)?;
        let chosen = Chosen { compressor, params: params.clone() };
        let mut post = self.family().post.lock();
        // What could not move may do so with another codec.
        post.in_vain = None;
        let engine = self.engine();
        if let Some(engine) = &engine {
            engine.install(priority, chosen, self.reach())?;
            engine.each(0..self.reach(), |index, _| {
                engine.alter(index, |slot| slot.is_incompressible().then(|| slot.worth_a_try()));
            });
        }
        let mut settings = self.family().settings.lock();
        settings.algorithms[at] = Some(algorithm);
        settings.params[at] = params;
        match (engine, settings.max_streams) {
            // The limit may have changed while the streams were made.
            (Some(engine), Some(streams)) => self.limit_streams(&engine, streams),
            _ => Ok(()),
        }
    }

    /// The name of the codec of each priority.
    #[must_use]
    pub fn chosen_algorithms(&self) -> [Option<&'static str>; PRIORITIES] {
        self.family().settings.lock().algorithms
    }

    /// Limits the memory of the pool to `bytes`, rounded up to pages; 0 lifts the limit. Stored
    /// pages stay, even above a new limit.
    pub fn set_mem_limit(&self, bytes: u64) {
        let frames = pages_for(bytes);
        let mut settings = self.family().settings.lock();
        settings.mem_limit = frames.saturating_mul(PAGE_SIZE as u64);
        self.limit_pool(&settings);
    }

    /// Lets at most `count` threads compress at once with each codec, from now on. The policy
    /// decides the number of streams: with one stream for each CPU, there are never more.
    ///
    /// # Errors
    /// `EINVAL` for 0, for more than the policy ever allows, and for more than 1 when the device
    /// got its size with a single stream. Nothing has changed then.
    pub fn set_max_streams(&self, count: u32) -> Result<(), ControlError> {
        let most = self.resources.streams.most();
        if count == 0 || count > most {
            let message = match most {
                1 => format!("max_comp_streams is 1 here, as there is never more, not {count}"),
                _ => format!("max_comp_streams takes a number from 1 on, not {count}"),
            };
            return Err(ControlError::invalid(message));
        }
        let mut settings = self.family().settings.lock();
        self.with_engine(|engine| self.limit_streams(engine, count)).unwrap_or(Ok(()))?;
        settings.max_streams = Some(count);
        Ok(())
    }

    fn limit_streams(&self, engine: &Engine, count: u32) -> Result<(), ControlError> {
        engine.limit_streams(&self.readers.enter(Cpu(0)), count as usize).map_err(|OneStream| {
            ControlError::invalid(format!(
                "{} has got its size with a single stream, which stays the only one; to have \
                 {count}, reset it and set max_comp_streams before its size",
                self.name()
            ))
        })
    }

    /// The limit set by [`Disk::set_max_streams`], or the usual number of streams of the policy.
    #[must_use]
    pub fn max_streams(&self) -> u32 {
        let set = self.family().settings.lock().max_streams;
        set.unwrap_or(self.resources.streams.usual(self.resources.cpus))
    }

    /// Sets whether the device keeps the time of last use of each page, in four bytes.
    ///
    /// # Errors
    /// `EBUSY` once the device has a size.
    pub fn set_track_access(&self, on: bool) -> Result<(), ControlError> {
        let mut settings = self.family().settings.lock();
        self.refuse_if_ready("whether accesses are tracked")?;
        settings.track_access = on;
        Ok(())
    }

    /// Whether the device keeps the time of last use of each page.
    #[must_use]
    pub fn tracks_access(&self) -> bool {
        self.family().settings.lock().track_access
    }

    /// Opens `path`, a block device or a file, as the backing device.
    ///
    /// # Errors
    /// `EBUSY` once the device has a size, or an error of [`HostFiles::open_backing`]. Nothing has
    /// changed then.
    ///
    /// [`HostFiles::open_backing`]: crate::HostFiles::open_backing
    pub fn set_backing(&self, path: &str) -> Result<(), ControlError> {
        // To open a device or its stores may take seconds, and everybody reads the settings
        // meanwhile. What decides how it is opened changes only under this lock.
        let _post = self.before_size("the backing device")?;
        // Linux shows the resolved path as well (`backing_dev_show` asks `file_path`).
        let path = &*self.resources.files.resolve(path);
        // The old device is closed only after the new one is open, so that a refusal changes
        // nothing. The same device can be opened only once.
        if self.backing_path().is_some_and(|it| it == path) {
            return Ok(());
        }
        let name = self.name();
        let (sealed, is_log, remote) = {
            let settings = self.family().settings.lock();
            let remote = settings.remote.as_ref().map(|stores| stores.text.clone());
            (settings.sealed_backing, settings.backing_log, remote)
        };
        if remote.is_some() && !(sealed && is_log) {
            let message = format!(
                "what {name} has at remote stores is a log, and encrypted; set backing_layout to \
                 log and sealed_backing to 1, or backing_remote to none"
            );
            return Err(ControlError::invalid(message));
        }
        let seal = sealed.then_some(&*name);
        let (backing, ask) = self.resources.open_backing(path, seal, remote.as_deref(), is_log)?;
        let old = {
            let mut settings = self.family().settings.lock();
            settings.absent = None;
            let old = core::mem::replace(&mut settings.ask_remote, ask);
            (settings.backing.replace(backing), old)
        };
        drop(old);
        Ok(())
    }

    /// Takes the backing device at `path`, which cannot be opened now, as [`HostFiles`] stands for
    /// it. What is read from it or written to it fails, and everything else of the device works.
    /// `why` says what is wrong.
    ///
    /// # Errors
    /// `EBUSY` once the device has a size; `ENOMEM`. Nothing has changed then.
    ///
    /// [`HostFiles`]: crate::HostFiles::absent_backing
    pub fn set_absent_backing(&self, path: &str, why: &str) -> Result<(), ControlError> {
        let _post = self.before_size("the backing device")?;
        let mut settings = self.family().settings.lock();
        let name = self.name();
        let seal = settings.sealed_backing.then_some(&*name);
        let device = self.resources.files.absent_backing(path, seal)?;
        let backing = self.resources.backing_on(device, path, settings.backing_log)?;
        settings.backing = Some(backing);
        settings.absent = Some(why.into());
        Ok(())
    }

    /// Why the backing device is absent, if it is ([`Disk::set_absent_backing`]).
    #[must_use]
    pub fn absent_backing(&self) -> Option<String> {
        self.family().settings.lock().absent.clone()
    }

    /// Sets whether the backing device is to hold a log of compressed pages, one behind the other,
    /// instead of one page in each block.
    ///
    /// # Errors
    /// `EBUSY` once the device has a backing device or a size.
    pub fn set_backing_log(&self, on: bool) -> Result<(), ControlError> {
        let _post = self.before_size("backing_layout")?;
        let mut settings = self.family().settings.lock();
        if settings.backing_log != on {
            self.refuse_if_backed(&settings, "backing_layout")?;
        }
        settings.backing_log = on;
        Ok(())
    }

    /// Sets the remote stores that cold parts of the log on the backing device go to, described by
    /// `text` as [`HostFiles::check_remote`] reads it; `none` is none.
    ///
    /// # Errors
    /// `EBUSY` once the device has a backing device or a size; `ENOTSUP` if devices outlive the
    /// process; the errors of [`HostFiles::check_remote`]. Nothing has changed then.
    ///
    /// [`HostFiles::check_remote`]: crate::HostFiles::check_remote
    pub fn set_remote(&self, text: &str) -> Result<(), ControlError> {
        let _post = self.before_size("backing_remote")?;
        let mut settings = self.family().settings.lock();
        self.refuse_if_backed(&settings, "backing_remote")?;
        if matches!(text, "" | "none") {
            settings.remote = None;
            return Ok(());
        }
        if self.resources.kept.is_some() {
            let message = format!(
                "{} outlives its daemon, and what it has at remote stores does not",
                self.name()
            );
            return Err(ControlError::new(Errno::ENOTSUP, message));
        }
        let shown = self.resources.files.check_remote(text)?;
        settings.remote = Some(RemoteStores { text: text.into(), shown });
        Ok(())
    }

    /// The remote stores, without secrets.
    #[must_use]
    pub fn remote(&self) -> Option<String> {
        self.family().settings.lock().remote.as_ref().map(|stores| stores.shown.clone())
    }

    /// What the backing device has at remote stores, if it has any.
    #[must_use]
    pub fn remote_stats(&self) -> Option<RemoteStats> {
        // The lock is not held while the device is asked.
        let ask = self.family().settings.lock().ask_remote.clone()?;
        Some(ask())
    }

    /// Whether the backing device holds a log, or will.
    #[must_use]
    pub fn backing_log(&self) -> bool {
        self.family().settings.lock().backing_log
    }

    /// The state of the log on the backing device, if there is one.
    #[must_use]
    pub fn log_stats(&self) -> Option<LogStats> {
        self.family().settings.lock().backing.clone()?.log_stats()
    }

    /// The path of the backing device, as [`HostFiles::resolve`] has it.
    ///
    /// [`HostFiles::resolve`]: crate::HostFiles::resolve
    #[must_use]
    pub fn backing_path(&self) -> Option<String> {
        self.family().settings.lock().backing.as_ref().map(|backing| backing.path().into())
    }

    /// Sets whether pages that are written back are encrypted, with a key that ends with the
    /// device, and checked when they are read. By default they are.
    ///
    /// # Errors
    /// `EBUSY` once the device has a backing device or a size.
    pub fn set_sealed_backing(&self, on: bool) -> Result<(), ControlError> {
        let _post = self.before_size("sealed_backing")?;
        let mut settings = self.family().settings.lock();
        if settings.sealed_backing != on {
            self.refuse_if_backed(&settings, "sealed_backing")?;
        }
        settings.sealed_backing = on;
        Ok(())
    }

    /// Whether pages that are written back are encrypted.
    #[must_use]
    pub fn sealed_backing(&self) -> bool {
        self.family().settings.lock().sealed_backing
    }

    /// Sets whether pages are written back compressed, as they are in memory.
    ///
    /// # Errors
    /// `EBUSY` once the device has a size.
    pub fn set_compressed_writeback(&self, on: bool) -> Result<(), ControlError> {
        let mut settings = self.family().settings.lock();
        self.refuse_if_ready("compressed_writeback")?;
        settings.compressed_writeback = on;
        Ok(())
    }

    /// Whether pages are written back compressed.
    #[must_use]
    pub fn compressed_writeback(&self) -> bool {
        self.family().settings.lock().compressed_writeback
    }

    /// Allows `pages` more pages to be written back, while the limit is enabled.
    pub fn set_writeback_limit(&self, pages: u64) {
        self.set_writeback_left(&mut self.family().settings.lock(), pages);
    }

    /// Enables the limit, or lifts it.
    pub fn limit_writeback(&self, on: bool) {
        self.family().settings.lock().writeback_limited = on;
    }

    /// The number of pages that may still be written back, and whether the limit is enabled.
    #[must_use]
    pub fn writeback_limit(&self) -> (u64, bool) {
        let settings = self.family().settings.lock();
        (settings.writeback_limit, settings.writeback_limited)
    }

    /// Sets the number of pages that are written to the backing device at a time.
    ///
    /// # Errors
    /// `EINVAL` for 0 or more than 4096.
    pub fn set_writeback_batch(&self, pages: u32) -> Result<(), ControlError> {
        if !(1..=BATCH_MAX).contains(&pages) {
            let message = format!("a batch is of 1 to {BATCH_MAX} pages, not {pages}");
            return Err(ControlError::invalid(message));
        }
        self.family().settings.lock().writeback_batch = pages;
        Ok(())
    }

    /// The number of pages that are written to the backing device at a time.
    #[must_use]
    pub fn writeback_batch(&self) -> u32 {
        self.family().settings.lock().writeback_batch
    }

    /// Keeps the device without a size while the result lives. If it has one, refuses at once, not
    /// after a long writeback.
    fn before_size(&self, what: &str) -> Result<MutexGuard<'_, Hand>, ControlError> {
        self.refuse_if_ready(what)?;
        let post = self.family().post.lock();
        self.refuse_if_ready(what)?;
        Ok(post)
    }

    fn refuse_if_backed(&self, settings: &Settings, what: &str) -> Result<(), ControlError> {
        if settings.backing.is_none() {
            return Ok(());
        }
        let name = self.name();
        let message =
            format!("{name} has its backing device already; set {what} before backing_dev");
        Err(ControlError::new(Errno::EBUSY, message))
    }

    fn refuse_if_ready(&self, what: &str) -> Result<(), ControlError> {
        if self.bytes() == 0 {
            return Ok(());
        }
        let message = format!(
            "{what} of {} cannot change now that it has a size; reset it first",
            self.name()
        );
        Err(ControlError::new(Errno::EBUSY, message))
    }
}

fn known_algorithm(name: &str) -> Result<&'static str, ControlError> {
    let known = zcomp::ALGORITHMS;
    known.iter().find(|known| **known == name).copied().ok_or_else(|| {
        let message = format!("no algorithm {name:?}; there are: {}", known.join(" "));
        ControlError::invalid(message)
    })
}
