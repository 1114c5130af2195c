//! What disks and stores are made of.
//!
//! # Why unsafe
//! C calls the functions, with pointers.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use rampack::{Pressure, Upkeep};

use crate::call::call;
use crate::caller::{Data, Growing, fill, of, options, put};
use crate::calls::Owner;

/// Memory of this process for compressed data. It ends with `rampack_free`, but what was made of
/// it stays until it is freed, too.
pub struct Rampack {
    pub(crate) rampack: rampack::Rampack,
    /// Each that is made of it has one: the last that is freed ends the calls of `on_pressure`.
    pub(crate) pressure: Arc<Owner>,
}

/// Programs of this system wait for memory.
pub const RAMPACK_PRESSURE_SYSTEM: c_int = 1;
/// Compressed data takes seven eighths of `memory`, or more.
pub const RAMPACK_PRESSURE_LIMIT: c_int = 2;

/// Is called when memory is short, at most once a second, with a `RAMPACK_PRESSURE_...`: by the
/// thread of upkeep, or by who calls `rampack_upkeep`. It may free and discard what it likes, but
/// must not call `rampack_upkeep`. It must return: no exception, no `longjmp`.
pub type RampackOnPressure = Option<extern "C" fn(data: *mut c_void, why: c_int)>;

/// The settings of a `struct rampack`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RampackOptions {
    /// `sizeof(struct rampack_options)`.
    pub struct_size: usize,
    /// The most bytes of memory that compressed data takes, 1 MiB at least; 0: as much as this
    /// machine, or its control group, has.
    pub memory: u64,
    /// 0: a thread does upkeep. 1: the program calls `rampack_upkeep`.
    pub manual_upkeep: u32,
    /// 0.
    pub reserved: u32,
    /// Called when memory is short, with `on_pressure_data`; `NULL`: nobody is told.
    pub on_pressure: RampackOnPressure,
    /// For `on_pressure`. It is there until all that is made of the `struct rampack` is freed.
    pub on_pressure_data: *mut c_void,
}

// SAFETY: numbers and pointers, the first of them the size. That the function is one is the word of
// the caller, as for an argument.
unsafe impl Growing for RampackOptions {
    const DEFAULT: Self = RampackOptions {
        struct_size: size_of::<Self>(),
        memory: 0,
        manual_upkeep: 0,
        reserved: 0,
        on_pressure: None,
        on_pressure_data: ptr::null_mut(),
    };
}

/// What a `struct rampack` takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RampackStats {
    /// `sizeof(struct rampack_stats)`; then the bytes that were filled.
    pub struct_size: usize,
    /// Bytes of memory in use for compressed data.
    pub used_bytes: u64,
    /// The most that they may be.
    pub limit_bytes: u64,
}

// SAFETY: numbers, the first of them the size.
unsafe impl Growing for RampackStats {
    const DEFAULT: Self = RampackStats { struct_size: 0, used_bytes: 0, limit_bytes: 0 };
}

/// Makes memory for disks and stores; `NULL` for all defaults.
///
/// Errors: `-EINVAL` for a setting that is not allowed, `-ENOMEM`.
///
/// # Safety
/// `settings` is `NULL`, or as long as it says. Its function may be called by any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_new(
    settings: *const RampackOptions,
    made: Option<&mut MaybeUninit<Box<Rampack>>>,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
        let settings = unsafe { options(settings, "settings")? };
        let mut builder = rampack::Rampack::builder();
        if settings.memory > 0 {
            builder = builder.memory(settings.memory);
        }
        if settings.manual_upkeep != 0 {
            builder = builder.upkeep(Upkeep::Manual);
        }
        let pressure = Arc::new(Owner::default());
        if let Some(tell) = settings.on_pressure {
            let (data, calls) = (Data::of(settings.on_pressure_data), pressure.calls());
            builder = builder.on_pressure(move |pressure| {
                let why = match pressure {
                    Pressure::Limit(_) => RAMPACK_PRESSURE_LIMIT,
                    _ => RAMPACK_PRESSURE_SYSTEM,
                };
                calls.make(|| tell(data.pointer(), why));
            });
        }
        put(made, "made", Box::new(Rampack { rampack: builder.build()?, pressure }))
    })
}

/// Gives it back; `NULL` is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_free(rampack: Option<Box<Rampack>>) {
    call(|| {
        drop(rampack);
        Ok(())
    });
}

/// One round of upkeep, with `manual_upkeep`: about once a second. It takes some milliseconds.
///
/// Errors: `-ENOMEM`; all is as it was.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_upkeep(rampack: Option<&Rampack>) -> c_int {
    call(|| {
        // `on_pressure` may free what the caller has.
        let rampack = of(rampack, "rampack")?.rampack.clone();
        rampack.upkeep()?;
        Ok(())
    })
}

/// The memory that all of it takes.
///
/// # Safety
/// `stats` is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_get_stats(
    rampack: Option<&Rampack>,
    stats: *mut RampackStats,
) -> c_int {
    call(|| {
        let memory = of(rampack, "rampack")?.rampack.memory();
        let filled = RampackStats {
            struct_size: 0,
            used_bytes: memory.used_bytes,
            limit_bytes: memory.limit_bytes,
        };
        // SAFETY: as the caller says.
        unsafe { fill(stats, "stats", filled) }
    })
}
