//! The codecs of a store of pages: one for each priority, and those of older objects.

use alloc::{boxed::Box, format, sync::Arc};
use core::fmt;

use sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use sync::{Mutex, Published, Reader, ReaderEpochs};

use units::{Cpu, Page};

use crate::{Chosen, CodecError, Compressor, Corrupt, OneStream, Policy, Register, StreamsOf};

/// The number of codecs that the number in an object can name.
pub const CODECS: usize = 31;

/// The codecs of a store at a time: the primary one, and three for recompression (as Linux).
pub const PRIORITIES: usize = 4;

/// The reason why a codec was not installed. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotInstalled {
    /// The streams of the codec could not be made.
    Codec(CodecError),
    /// Present objects use [`CODECS`] other codecs.
    Full,
}

impl fmt::Display for NotInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotInstalled::Codec(error) => error.fmt(f),
            NotInstalled::Full => write!(
                f,
                "pages compressed in {CODECS} other ways are stored here; write them anew, or wait \
                 until they are discarded"
            ),
        }
    }
}

impl core::error::Error for NotInstalled {}

/// A codec with its streams.
pub struct Codec {
    /// The codec.
    pub chosen: Chosen,
    /// The streams of the codec.
    pub streams: StreamsOf,
    /// The priority it was installed for.
    pub priority: u8,
}

/// The codecs by number, and the number of the codec of each priority. A codec stays while an
/// object needs it. Any number of threads may call every method at once.
pub struct Bank {
    table: [Published<Codec>; CODECS],
    current: [AtomicU8; PRIORITIES],
    changing: Mutex<()>,
    cpus: usize,
    policy: Policy,
    /// Streams that were asked for at first.
    wanted: usize,
    /// Streams of each codec that may be used at once.
    limit: AtomicUsize,
    readers: Arc<ReaderEpochs>,
    /// Where the numbers are kept, if anywhere.
    register: Option<Arc<dyn Register>>,
}

const NONE: u8 = u8::MAX;

impl Bank {
    /// Makes a bank without codecs, on `cpus` CPUs. At most `limit` streams of each codec may be
    /// used at once. A caller that gets a codec holds one of `readers`.
    #[must_use]
    pub fn new(cpus: usize, limit: usize, readers: Arc<ReaderEpochs>) -> Bank {
        Bank {
            table: core::array::from_fn(|_| Published::new(readers.clone())),
            current: core::array::from_fn(|_| AtomicU8::new(NONE)),
            changing: Mutex::new(()),
            cpus,
            policy: Policy::PER_CPU,
            wanted: limit,
            limit: AtomicUsize::new(limit),
            readers,
            register: None,
        }
    }

    /// The bank, with a register that is told of every codec before objects are made with it.
    #[must_use]
    pub fn registered(self, register: Option<Arc<dyn Register>>) -> Bank {
        Bank { register, ..self }
    }

    /// The bank, with another policy of streams for codecs that come.
    #[must_use]
    pub fn with_streams(self, policy: Policy) -> Bank {
        Bank { policy, ..self }
    }

    /// A codec by its number.
    #[inline]
    pub fn get<'p>(&'p self, reader: &'p Reader<'_>, number: u8) -> Option<&'p Codec> {
        self.table.get(usize::from(number))?.get(reader)
    }

    /// The codec of a priority, and its number.
    #[inline]
    pub fn current<'p>(&'p self, reader: &'p Reader<'_>, priority: u8) -> Option<(u8, &'p Codec)> {
        // Acquire pairs with the Release in `install`: a thread that sees the number finds the
        // codec.
        let number = self.current.get(usize::from(priority))?.load(Ordering::Acquire);
        Some((number, self.table.get(usize::from(number))?.get(reader)?))
    }

    /// All codecs.
    pub fn all<'p>(&'p self, reader: &'p Reader<'_>) -> impl Iterator<Item = &'p Codec> {
        self.table.iter().filter_map(|place| place.get(reader))
    }

    /// Makes `chosen` the codec of a priority. `in_use` returns the codecs that objects need, one
    /// bit for each. It is called when no thread can make objects with a codec that is not current.
    /// The calling thread must not be a reader.
    ///
    /// # Errors
    /// [`NotInstalled`]: the codec has no streams, or the bank is full.
    pub fn install(
        &self,
        priority: u8,
        chosen: Chosen,
        in_use: impl FnOnce() -> u32,
    ) -> Result<(), NotInstalled> {
        let _changing = self.changing.lock();
        let number = self.place(priority, chosen, in_use)?;
        self.make_current(priority, number);
        Ok(())
    }

    /// Finds or makes a place for a codec of objects that come from elsewhere, and returns its
    /// number. It does not become current. No codec is given up for it. The calling thread must not
    /// be a reader.
    ///
    /// # Errors
    /// As [`Bank::install`].
    pub fn adopt(&self, priority: u8, chosen: Chosen) -> Result<u8, NotInstalled> {
        let _changing = self.changing.lock();
        self.place(priority, chosen, || u32::MAX).map(|number| number as u8)
    }

    /// The number of a codec, which gets one if it has none. Called under the lock `changing`.
    fn place(
        &self,
        priority: u8,
        chosen: Chosen,
        in_use: impl FnOnce() -> u32,
    ) -> Result<usize, NotInstalled> {
        if let Some(number) = self.find(priority, &chosen) {
            return Ok(number);
        }
        if let Some(register) = &self.register {
            register.judge(&chosen).map_err(NotInstalled::Codec)?;
        }
        let limit = self.limit.load(Ordering::Relaxed);
        let streams = self.streams_of(&chosen.compressor, limit).map_err(NotInstalled::Codec)?;
        self.forget_unused(in_use);
        let mut codec = Box::new(Codec { chosen: chosen.clone(), streams, priority });
        for (number, place) in self.table.iter().enumerate() {
            match place.publish(codec) {
                Ok(()) => {
                    if let Some(register) = &self.register {
                        register.keep(number as u8, priority, &chosen);
                    }
                    return Ok(number);
                }
                Err(back) => codec = back,
            }
        }
        Err(NotInstalled::Full)
    }

    /// Puts a codec back under the number that it had in another process. It is current for its
    /// priority if `current` says so.
    ///
    /// # Errors
    /// [`NotInstalled`]: the codec has no streams, or the number is taken or none of a codec.
    pub fn restore(
        &self,
        number: u8,
        priority: u8,
        chosen: Chosen,
        current: bool,
    ) -> Result<(), NotInstalled> {
        let _changing = self.changing.lock();
        let place = self.table.get(usize::from(number)).ok_or(NotInstalled::Full)?;
        let limit = self.limit.load(Ordering::Relaxed);
        let streams = self.streams_of(&chosen.compressor, limit).map_err(NotInstalled::Codec)?;
        let codec = Box::new(Codec { chosen, streams, priority });
        place.publish(codec).map_err(|_| NotInstalled::Full)?;
        if current {
            self.make_current(priority, usize::from(number));
        }
        Ok(())
    }

    fn streams_of(
        &self,
        codec: &Arc<dyn Compressor>,
        limit: usize,
    ) -> Result<StreamsOf, CodecError> {
        let streams = self.policy.make(codec, self.cpus, self.wanted)?;
        streams.limit(limit).map_err(|error| CodecError(format!("{error}")))?;
        Ok(streams)
    }

    /// The number of an installed codec with the same priority, name and parameters.
    fn find(&self, priority: u8, chosen: &Chosen) -> Option<usize> {
        let reader = self.readers.enter(units::Cpu(0));
        let same = |codec: &Codec| codec.priority == priority && codec.chosen.is(chosen);
        self.table.iter().position(|place| place.get(&reader).is_some_and(same))
    }

    fn make_current(&self, priority: u8, number: usize) {
        if let Some(register) = &self.register {
            register.choose(priority, number as u8);
        }
        // Release pairs with the Acquire in `current`.
        self.current[usize::from(priority)].store(number as u8, Ordering::Release);
    }

    fn forget_unused(&self, in_use: impl FnOnce() -> u32) {
        let current = self.current.iter().map(|number| number.load(Ordering::Relaxed));
        let current = current.filter(|number| *number != NONE).fold(0u32, |all, n| all | 1 << n);
        let others = {
            let reader = self.readers.enter(units::Cpu(0));
            let there = (0..CODECS).filter(|n| self.table[*n].get(&reader).is_some());
            there.fold(0u32, |all, n| all | 1 << n) & !current
        };
        if others == 0 {
            return;
        }
        // After this wait, all stores that chose one of these codecs have committed.
        self.readers.wait_for_readers();
        let unused = others & !in_use();
        if unused == 0 {
            return;
        }
        // A reader that looked at a slot before it changed may still fetch its page, and
        // decompresses it then.
        self.readers.wait_for_readers();
        for number in (0..CODECS).filter(|number| unused & 1 << number != 0) {
            drop(self.table[number].withdraw());
        }
    }
}

impl Bank {
    /// Decompresses an object of codec `number`. Takes a stream only if the codec needs one.
    ///
    /// # Errors
    /// [`Corrupt`] when the bytes do not give a whole page, or the codec does not exist. The
    /// contents of `page` are undefined then.
    #[inline]
    pub fn decompress(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        number: u8,
        bytes: &[u8],
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        let place = self.table.get(usize::from(number)).ok_or(Corrupt)?;
        let codec = place.get(reader).ok_or(Corrupt)?;
        match codec.chosen.compressor.decompress_bare(bytes, page) {
            Some(result) => result,
            None => codec.streams.with(cpu, |stream| stream.context.decompress(bytes, page)),
        }
    }

    /// Decompresses page number `part` of an extent of `pages` pages, of codec `number`.
    ///
    /// # Errors
    /// [`Corrupt`] when the bytes do not give that page, or the codec does not exist. The contents
    /// of `page` are undefined then.
    pub fn decompress_part(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        number: u8,
        bytes: &[u8],
        part: (usize, usize),
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        let codec = self.get(reader, number).ok_or(Corrupt)?;
        codec.streams.with(cpu, |stream| stream.context.decompress_part(bytes, part, page))
    }

    /// Lets at most `count` streams of each codec be used at once. The caller repeats the call for
    /// a codec that is being installed meanwhile.
    ///
    /// # Errors
    /// [`OneStream`] if the policy has one stream only.
    pub fn limit(&self, reader: &Reader<'_>, count: usize) -> Result<(), OneStream> {
        self.all(reader).try_for_each(|codec| codec.streams.limit(count))?;
        self.limit.store(count, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
