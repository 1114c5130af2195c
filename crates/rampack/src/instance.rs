//! What disks are made of, and how it is made.

use std::sync::Arc;

use machine::{Machine, MachineOptions};

use crate::upkeep::{self, Inner, OnPressure};
use crate::{Disk, DiskOptions, Error, MemoryStats, Pressure, Store, StoreOptions, Upkeep};

/// A part of this process's memory for compressed data. Clones are the same one. It ends with the
/// last clone and the last thing that was made of it.
#[derive(Clone)]
pub struct Rampack {
    inner: Arc<Inner>,
}

impl Rampack {
    /// With all defaults of [`Builder`]: at most as much as this machine, or its control group, has
    /// memory, and a thread for upkeep.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when the process cannot reserve the addresses, or start the thread.
    pub fn new() -> Result<Rampack, Error> {
        Rampack::builder().build()
    }

    /// Begins to make one with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes a disk. A number is its size in bytes, with defaults for all else.
    ///
    /// ```
    /// # fn main() -> Result<(), rampack::Error> {
    /// use rampack::{Algorithm, DiskOptions, Rampack};
    ///
    /// let rampack = Rampack::builder().memory(512 << 20).build()?;
    /// let options = DiskOptions::new(1 << 30).algorithm(Algorithm::LZO_RLE).mem_limit(64 << 20);
    /// let disk = rampack.disk(options)?;
    /// disk.write_at(100, b"anything")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size of 0 or a level that the algorithm refuses;
    /// [`Error::NoMemory`].
    pub fn disk(&self, options: impl Into<DiskOptions>) -> Result<Disk, Error> {
        Disk::create(&self.inner, options.into())
    }

    /// Makes a store of values by keys.
    ///
    /// ```
    /// # fn main() -> Result<(), rampack::Error> {
    /// use rampack::{Rampack, StoreOptions};
    ///
    /// # #[cfg(any(feature = "lz4", feature = "lz4-rust"))] {
    /// let store = Rampack::new()?.store(StoreOptions::new().limit(64 << 20))?;
    /// store.put("user:7", b"any bytes")?;
    /// assert_eq!(store.get("user:7")?.as_deref(), Some(&b"any bytes"[..]));
    /// assert!(store.remove("user:7"));
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for an option that is not allowed; [`Error::NoMemory`].
    pub fn store(&self, options: StoreOptions) -> Result<Store, Error> {
        Store::create(&self.inner, options)
    }

    /// One round of upkeep, as [`Upkeep::Thread`] does it each second: memory below full blocks
    /// becomes huge pages, pages of disks with [`DiskOptions::auto`] move within their budgets, the
    /// lives of values end, and the callback of [`Builder::on_pressure`] is called if it has a
    /// reason. It takes some milliseconds, and what the budgets allow. One call at a time does
    /// work. Returns whether pages wait for CPU time.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; all is as it was.
    pub fn upkeep(&self) -> Result<bool, Error> {
        self.inner.upkeep()
    }

    /// The memory that all of it takes.
    #[must_use]
    pub fn memory(&self) -> MemoryStats {
        self.inner.memory()
    }
}

/// The settings of a [`Rampack`].
///
/// ```
/// # fn main() -> Result<(), rampack::Error> {
/// use rampack::{Rampack, Upkeep};
///
/// let rampack = Rampack::builder()
///     .memory(2 << 30)
///     .upkeep(Upkeep::Manual)
///     .on_pressure(|pressure| eprintln!("memory is short: {pressure:?}"))
///     .build()?;
/// rampack.upkeep()?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use = "`build` makes one"]
pub struct Builder {
    memory: Option<u64>,
    upkeep: Upkeep,
    on_pressure: Option<OnPressure>,
}

impl Builder {
    /// The most bytes of memory that compressed data takes, of everything that is made of this
    /// [`Rampack`] together. Addresses are reserved for them, memory is taken as it is needed. The
    /// default is the memory of this machine or of its control group.
    pub fn memory(self, bytes: u64) -> Builder {
        Builder { memory: Some(bytes), ..self }
    }

    /// Who does upkeep. The default is a thread.
    pub fn upkeep(self, upkeep: Upkeep) -> Builder {
        Builder { upkeep, ..self }
    }

    /// Is called when memory is short, at most once a second, by the thread of upkeep or by who
    /// calls [`Rampack::upkeep`]. It may discard and drop what it likes; it must not call
    /// [`Rampack::upkeep`].
    pub fn on_pressure(self, call: impl Fn(Pressure) + Send + Sync + 'static) -> Builder {
        Builder { on_pressure: Some(Box::new(call)), ..self }
    }

    /// Makes it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for less than 1 MiB of memory; [`Error::NoMemory`] when the process
    /// cannot reserve the addresses or start the thread.
    pub fn build(self) -> Result<Rampack, Error> {
        let options = MachineOptions::of_this_system();
        let memory = self.memory.unwrap_or(options.memory);
        if memory < 1 << 20 {
            let message = format!("{memory} bytes of memory are too few: 1 MiB is the least");
            return Err(Error::Invalid(message.into()));
        }
        let options = MachineOptions { memory, ..options };
        let machine = Machine::new(Arc::new(host::Mmap), options)?;
        let inner = Inner::new(machine, memory, self.on_pressure);
        let inner = match self.upkeep {
            Upkeep::Manual => Arc::new(inner),
            Upkeep::Thread => upkeep::begin(inner)?,
        };
        Ok(Rampack { inner })
    }
}
