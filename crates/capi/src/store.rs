//! Stores of values by keys.
//!
//! # Why unsafe
//! C calls the functions, with pointers.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use control::Errno;
use rampack::StoreOptions;

use crate::call::{Failure, call};
use crate::instance::Rampack;
use crate::memory::{Growing, algorithm, bytes, bytes_mut, fill, of, options, put};

/// The most bytes of a key.
pub const RAMPACK_KEY_MAX: usize = 1024;
/// The most bytes of a value: 16 MiB.
pub const RAMPACK_VALUE_MAX: usize = 16777216;

const MISS: Failure = Failure::plain(Errno::ENOENT, c"there is no value of this key");

/// Values by keys, compressed. Any number of threads may use it at once.
pub struct RampackStore(rampack::Store);

/// The options of a store.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RampackStoreOptions {
    /// `sizeof(struct rampack_store_options)`.
    pub struct_size: usize,
    /// "lz4", "lz4hc", "zstd" or "deflate", also with a level as "zstd:9"; `NULL`: lz4.
    pub algorithm: *const c_char,
    /// The most bytes of memory, 1 MiB at least; 0: no limit but that of its `struct rampack`.
    pub limit: u64,
    /// Values are compressed in units of so many bytes: 4096, 8192, 16384, 32768 or 65536; 0:
    /// 16384.
    pub unit: u32,
    /// 0: values that were not read lately go when memory is short. 1: a put fails then.
    pub no_eviction: u32,
    /// 0: values of up to 1 KiB are compressed together, which halves their memory and makes each
    /// read some microseconds longer. 1: each by itself.
    pub no_groups: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: numbers and a pointer, the first of them the size.
unsafe impl Growing for RampackStoreOptions {
    const DEFAULT: Self = RampackStoreOptions {
        struct_size: size_of::<Self>(),
        algorithm: ptr::null(),
        limit: 0,
        unit: 0,
        no_eviction: 0,
        no_groups: 0,
        reserved: 0,
    };
}

/// What a store has and takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RampackStoreStats {
    /// `sizeof(struct rampack_store_stats)`; then the bytes that were filled.
    pub struct_size: usize,
    /// Values.
    pub values: u64,
    /// Bytes of their keys and values.
    pub data_bytes: u64,
    /// Bytes of memory that they take, tables among them.
    pub memory_bytes: u64,
    /// Reads that found a value.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Values stored so far.
    pub puts: u64,
    /// Values that went because memory was needed, so far.
    pub evicted: u64,
    /// Values whose lives ended, so far.
    pub expired: u64,
}

// SAFETY: numbers, the first of them the size.
unsafe impl Growing for RampackStoreStats {
    const DEFAULT: Self = RampackStoreStats {
        struct_size: 0,
        values: 0,
        data_bytes: 0,
        memory_bytes: 0,
        hits: 0,
        misses: 0,
        puts: 0,
        evicted: 0,
        expired: 0,
    };
}

/// Makes a store. `settings` may be `NULL`.
///
/// Errors: `-EINVAL` for an option that is not allowed, `-ENOMEM`.
///
/// # Safety
/// `settings` is `NULL`, or as long as it says, and its algorithm a text or `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_store_new(
    rampack: Option<&Rampack>,
    settings: *const RampackStoreOptions,
    made: Option<&mut MaybeUninit<Box<RampackStore>>>,
) -> c_int {
    call(|| {
        let rampack = of(rampack, "rampack")?;
        // SAFETY: as the caller says.
        let settings = unsafe { options(settings, "settings")? };
        // SAFETY: as the caller says.
        let algorithm = unsafe { algorithm(settings.algorithm)? };
        let mut options = StoreOptions::new()
            .algorithm(algorithm)
            .evict(settings.no_eviction == 0)
            .group(settings.no_groups == 0);
        if settings.limit > 0 {
            options = options.limit(settings.limit);
        }
        if settings.unit > 0 {
            options = options.unit(settings.unit as usize);
        }
        put(made, "made", Box::new(RampackStore(rampack.0.store(options)?)))
    })
}

/// Ends a store, and frees what is in it; `NULL` is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_store_free(store: Option<Box<RampackStore>>) {
    call(|| {
        drop(store);
        Ok(())
    });
}

/// Stores a value in place of the one that the key had. With a `ttl` other than 0 it is not found
/// any more after so many seconds.
///
/// Errors: `-EINVAL` for a key or a value that is too long, `-ENOSPC` when there is no room.
///
/// # Safety
/// There are so many bytes at `key` and at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_store_put(
    store: Option<&RampackStore>,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    length: usize,
    ttl: u32,
) -> c_int {
    call(|| {
        let store = &of(store, "store")?.0;
        // SAFETY: as the caller says.
        let (key, value) =
            unsafe { (bytes(key, key_length, "key")?, bytes(value, length, "value")?) };
        match ttl {
            0 => store.put(key, value)?,
            _ => store.put_for(key, value, Duration::from_secs(ttl.into()))?,
        }
        Ok(())
    })
}

/// Reads the value of a key to `into`, where there are `capacity` bytes, and its length to
/// `length`.
///
/// Errors: `-ENOENT` if there is none; `-ERANGE` if it is longer than `capacity`: `length` is its
/// length then, and `into` is as it was; `-EIO` if what is stored does not decompress.
///
/// # Safety
/// There are so many bytes at `key` and at `into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_store_get(
    store: Option<&RampackStore>,
    key: *const c_void,
    key_length: usize,
    into: *mut c_void,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    call(|| {
        let store = &of(store, "store")?.0;
        // SAFETY: as the caller says.
        let key = unsafe { bytes(key, key_length, "key")? };
        // SAFETY: as the caller says.
        let into = unsafe { bytes_mut(into, capacity, "into")? };
        match store.get_into(key, into) {
            Ok(Some(read)) => put(length, "length", read),
            Ok(None) => Err(MISS),
            Err(error) => {
                if let rampack::Error::TooSmall(needed) = error {
                    put(length, "length", needed)?;
                }
                Err(error.into())
            }
        }
    })
}

/// Reads the bytes of a value from `from` on to `into`, at most `capacity`, and how many there were
/// to `length`. Only the units that they are in are decompressed.
///
/// Errors: as for `rampack_store_get`, but for `-ERANGE`.
///
/// # Safety
/// There are so many bytes at `key` and at `into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_store_get_range(
    store: Option<&RampackStore>,
    key: *const c_void,
    key_length: usize,
    from: usize,
    into: *mut c_void,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    call(|| {
        let store = &of(store, "store")?.0;
        // SAFETY: as the caller says.
        let key = unsafe { bytes(key, key_length, "key")? };
        // SAFETY: as the caller says.
        let into = unsafe { bytes_mut(into, capacity, "into")? };
        put(length, "length", store.get_range(key, from, into)?.ok_or(MISS)?)
    })
}

/// The length of the value of a key.
///
/// Errors: `-ENOENT` if there is none.
///
/// # Safety
/// There are so many bytes at `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_store_length(
    store: Option<&RampackStore>,
    key: *const c_void,
    key_length: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    call(|| {
        let store = &of(store, "store")?.0;
        // SAFETY: as the caller says.
        let key = unsafe { bytes(key, key_length, "key")? };
        put(length, "length", store.len_of(key).ok_or(MISS)?)
    })
}

/// Takes the value of a key out.
///
/// Errors: `-ENOENT` if there is none.
///
/// # Safety
/// There are so many bytes at `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_store_remove(
    store: Option<&RampackStore>,
    key: *const c_void,
    key_length: usize,
) -> c_int {
    call(|| {
        let store = &of(store, "store")?.0;
        // SAFETY: as the caller says.
        let key = unsafe { bytes(key, key_length, "key")? };
        if store.remove(key) { Ok(()) } else { Err(MISS) }
    })
}

/// Takes all values out.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_store_clear(store: Option<&RampackStore>) -> c_int {
    call(|| {
        of(store, "store")?.0.clear();
        Ok(())
    })
}

/// Is called with a key and the length of its value. Another value than 0 ends the iteration.
pub type RampackVisit = Option<
    extern "C" fn(data: *mut c_void, key: *const c_void, key_length: usize, length: usize) -> c_int,
>;

/// Calls `visit` with each key, in no order, until it gives another value than 0. Values may come
/// and go meanwhile: a key that is there all the time is seen at least once, and rarely twice.
/// `visit` may use the store. It must return: no exception, no `longjmp`.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_store_keys(
    store: Option<&RampackStore>,
    visit: RampackVisit,
    data: *mut c_void,
) -> c_int {
    call(|| {
        let store = &of(store, "store")?.0;
        let visit = visit.ok_or_else(|| Failure::invalid("visit is NULL"))?;
        let mut keys = store.keys();
        let _ =
            keys.find(|(key, length)| visit(data, key.as_ptr().cast(), key.len(), *length) != 0);
        Ok(())
    })
}

/// Limits its memory to so many bytes from now on, 1 MiB at least. What is too much goes with the
/// next puts.
///
/// Errors: `-EINVAL` for fewer; nothing has changed then.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_store_set_limit(store: Option<&RampackStore>, bytes: u64) -> c_int {
    call(|| Ok(of(store, "store")?.0.set_limit(bytes)?))
}

/// The statistics of a store now.
///
/// # Safety
/// `stats` is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_store_get_stats(
    store: Option<&RampackStore>,
    stats: *mut RampackStoreStats,
) -> c_int {
    call(|| {
        let now = of(store, "store")?.0.stats();
        let filled = RampackStoreStats {
            struct_size: 0,
            values: now.values,
            data_bytes: now.data_bytes,
            memory_bytes: now.memory_bytes,
            hits: now.hits,
            misses: now.misses,
            puts: now.puts,
            evicted: now.evicted,
            expired: now.expired,
        };
        // SAFETY: as the caller says.
        unsafe { fill(stats, "stats", filled) }
    })
}
