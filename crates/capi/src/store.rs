//! Stores of values by keys.
//!
//! # Why unsafe
//! C calls the functions, with pointers.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use control::Errno;
use rampack::{Reason, StoreOptions};

use crate::call::{Failure, call, status};
use crate::caller::{
    Data, Growing, algorithm, bytes, bytes_mut, file, fill, items_mut, of, options, put,
};
use crate::calls::Owner;
use crate::instance::Rampack;

/// The most bytes of a key.
pub const RAMPACK_KEY_MAX: usize = 1024;
/// The most bytes of a value: 16 MiB.
pub const RAMPACK_VALUE_MAX: usize = 16777216;

const MISS: Failure = Failure::plain(Errno::ENOENT, c"there is no value of this key");

/// Values by keys, compressed. Any number of threads may use it at once.
pub struct RampackStore {
    /// Dropped first: `on_evict` is not called any more then.
    _evict: Option<Owner>,
    store: rampack::Store,
    pressure: Arc<Owner>,
}

/// The memory of a value was needed.
pub const RAMPACK_EVICTED: c_int = 1;
/// The life of a value ended.
pub const RAMPACK_EXPIRED: c_int = 2;

/// Is called with each value that left a store by itself, when nobody finds it any more, before it
/// is freed; `why` is `RAMPACK_EVICTED` or `RAMPACK_EXPIRED`. By any thread: one that stores
/// another value, or that does upkeep. It may use the store, but must not put a value into it, nor
/// free a store. `value` is `NULL` if what was stored does not decompress. It must return: no
/// exception, no `longjmp`.
pub type RampackOnEvict = Option<
    extern "C" fn(
        data: *mut c_void,
        why: c_int,
        key: *const c_void,
        key_length: usize,
        value: *const c_void,
        length: usize,
    ),
>;

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
    /// Called with each value that leaves by itself, and with `on_evict_data`; `NULL`: nobody is
    /// told.
    pub on_evict: RampackOnEvict,
    /// For `on_evict`. It is there until the store is freed.
    pub on_evict_data: *mut c_void,
    /// Upkeep compresses values that were not read for `recompress_after` seconds (it may take
    /// twice as long) once more: by "lz4hc", "zstd" or "deflate". `NULL`: it does not.
    pub recompress: *const c_char,
    /// Seconds.
    pub recompress_after: u32,
    /// 0.
    pub reserved2: u32,
}

// SAFETY: numbers and pointers, the first of them the size. That the function is one is the word
// of the caller, as for an argument.
unsafe impl Growing for RampackStoreOptions {
    const DEFAULT: Self = RampackStoreOptions {
        struct_size: size_of::<Self>(),
        algorithm: ptr::null(),
        limit: 0,
        unit: 0,
        no_eviction: 0,
        no_groups: 0,
        reserved: 0,
        on_evict: None,
        on_evict_data: ptr::null_mut(),
        recompress: ptr::null(),
        recompress_after: 0,
        reserved2: 0,
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
    /// Values, and groups of small ones, that were compressed once more, so far.
    pub recompressed: u64,
    /// Bytes of memory that this has saved, so far.
    pub saved_bytes: u64,
    /// Values that were lost because what another process left of them was damaged.
    pub lost: u64,
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
        recompressed: 0,
        saved_bytes: 0,
        lost: 0,
    };
}

/// Makes a store. `settings` may be `NULL`.
///
/// Errors: `-EINVAL` for an option that is not allowed, `-ENOMEM`.
///
/// # Safety
/// `settings` is `NULL`, or as long as it says, and its algorithms are texts or `NULL`. Its
/// function may be called by any thread.
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
        let first = unsafe { algorithm(settings.algorithm)? };
        let mut options = StoreOptions::new()
            .algorithm(first)
            .evict(settings.no_eviction == 0)
            .group(settings.no_groups == 0);
        if settings.limit > 0 {
            options = options.limit(settings.limit);
        }
        if settings.unit > 0 {
            options = options.unit(settings.unit as usize);
        }
        if !settings.recompress.is_null() {
            // SAFETY: as the caller says.
            let second = unsafe { algorithm(settings.recompress)? };
            let after = Duration::from_secs(settings.recompress_after.into());
            options = options.recompress(second, after);
        }
        let evict = Owner::default();
        if let Some(tell) = settings.on_evict {
            let (data, calls) = (Data::of(settings.on_evict_data), evict.calls());
            options = options.on_evict(move |left| {
                let why = match left.reason() {
                    Reason::Expired => RAMPACK_EXPIRED,
                    _ => RAMPACK_EVICTED,
                };
                let (key, value) = (left.key(), left.value().ok());
                let (bytes, length) =
                    value.as_ref().map_or((ptr::null(), 0), |it| (it.as_ptr().cast(), it.len()));
                let key_bytes = key.as_ptr().cast();
                calls.make(|| tell(data.pointer(), why, key_bytes, key.len(), bytes, length));
            });
        }
        let (store, pressure) = (rampack.rampack.store(options)?, rampack.pressure.clone());
        put(made, "made", Box::new(RampackStore { _evict: Some(evict), store, pressure }))
    })
}

/// Makes a clone: another store with the values that this one has at an instant within this call.
/// Its memory is shared until one of the two has another value or none. So is the limit, which
/// counts what is shared once. The clone has the options of the store, but `on_evict`.
///
/// Errors: `-ENOTSUP` when there are 254 clones; `-ENOMEM`.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_store_clone(
    store: Option<&RampackStore>,
    made: Option<&mut MaybeUninit<Box<RampackStore>>>,
) -> c_int {
    call(|| {
        let store = of(store, "store")?;
        let (clone, pressure) = (store.store.clone_contents()?, store.pressure.clone());
        put(made, "made", Box::new(RampackStore { _evict: None, store: clone, pressure }))
    })
}

/// Ends a store, and frees what is in it and in none of its clones; `NULL` is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_store_free(store: Option<Box<RampackStore>>) {
    call(|| {
        drop(store);
        Ok(())
    });
}

/// Stores a value in place of the one that the key had. With a `ttl` other than 0 it is not found
/// any more after so many seconds, and may go up to a second earlier.
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
        let store = &of(store, "store")?.store;
        // SAFETY: as the caller says.
        let (key, value) =
            unsafe { (bytes(key, key_length, "key")?, bytes(value, length, "value")?) };
        put_one(store, key, value, ttl)
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
        let store = &of(store, "store")?.store;
        // SAFETY: as the caller says.
        let key = unsafe { bytes(key, key_length, "key")? };
        // SAFETY: as the caller says.
        let into = unsafe { bytes_mut(into, capacity, "into")? };
        let length = length.ok_or_else(|| Failure::invalid("length is NULL"))?;
        get_one(store, key, into, |read| {
            length.write(read);
        })
    })
}

/// A value of `rampack_store_put_many` or `rampack_store_get_many`.
#[repr(C)]
pub struct RampackItem {
    /// Its key.
    pub key: *const c_void,
    /// The bytes of the key.
    pub key_length: usize,
    /// The value to be put, or where it is read to.
    pub value: *mut c_void,
    /// Its bytes. For `rampack_store_get_many` the bytes that are there; then the length of the
    /// value, also if that is too long.
    pub length: usize,
    /// What the call gave for it: 0, or a negative number.
    pub status: c_int,
}

/// Stores `count` values, with the same `ttl`, as `rampack_store_put` does, and sets the status of
/// each. Gives 0 if all are stored, or the first error: others may be stored.
///
/// Errors: as for `rampack_store_put`.
///
/// # Safety
/// There are so many items, with bytes at each key and value, which are not written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_store_put_many(
    store: Option<&RampackStore>,
    items: *mut RampackItem,
    count: usize,
    ttl: u32,
) -> c_int {
    // SAFETY: as the caller says.
    let each = |store: &rampack::Store, item: &mut RampackItem| unsafe {
        let key = bytes(item.key, item.key_length, "key")?;
        put_one(store, key, bytes(item.value, item.length, "value")?, ttl)
    };
    // SAFETY: as the caller says.
    unsafe { for_each(store, items, count, each) }
}

/// Reads `count` values, each to its place, as `rampack_store_get` does, and sets the status and
/// the length of each. Gives 0 if all were read, or the first error: others may be read.
///
/// Errors: as for `rampack_store_get`; a value that is not there is `-ENOENT`.
///
/// # Safety
/// There are so many items, with bytes at each key and value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_store_get_many(
    store: Option<&RampackStore>,
    items: *mut RampackItem,
    count: usize,
) -> c_int {
    // SAFETY: as the caller says.
    let each = |store: &rampack::Store, item: &mut RampackItem| unsafe {
        let key = bytes(item.key, item.key_length, "key")?;
        let into = bytes_mut(item.value, item.length, "value")?;
        get_one(store, key, into, |length| item.length = length)
    };
    // SAFETY: as the caller says.
    unsafe { for_each(store, items, count, each) }
}

/// Does `each` with all items, and fails as the first that does.
///
/// # Safety
/// There are so many items.
unsafe fn for_each(
    store: Option<&RampackStore>,
    items: *mut RampackItem,
    count: usize,
    mut each: impl FnMut(&rampack::Store, &mut RampackItem) -> Result<(), Failure>,
) -> c_int {
    let mut first = 0;
    let done = call(|| {
        let store = &of(store, "store")?.store;
        // SAFETY: as the caller says.
        for item in unsafe { items_mut(items, count, "items")? } {
            let failed = each(store, item);
            item.status = match first {
                0 => status(|| failed),
                // The sentence is that of the first.
                _ => failed.map_or_else(|failure| failure.number(), |()| 0),
            };
            first = if first == 0 { item.status } else { first };
        }
        Ok(())
    });
    if done == 0 { first } else { done }
}

fn put_one(store: &rampack::Store, key: &[u8], value: &[u8], ttl: u32) -> Result<(), Failure> {
    match ttl {
        0 => store.put(key, value)?,
        _ => store.put_for(key, value, Duration::from_secs(ttl.into()))?,
    }
    Ok(())
}

/// Reads a value, and tells its length, also if it is too long.
fn get_one(
    store: &rampack::Store,
    key: &[u8],
    into: &mut [u8],
    tell: impl FnOnce(usize),
) -> Result<(), Failure> {
    match store.get_into(key, into) {
        Ok(Some(read)) => tell(read),
        Ok(None) => return Err(MISS),
        Err(error) => {
            if let rampack::Error::TooSmall(needed) = error {
                tell(needed);
            }
            return Err(error.into());
        }
    }
    Ok(())
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
        let store = &of(store, "store")?.store;
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
        let store = &of(store, "store")?.store;
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
        let store = &of(store, "store")?.store;
        // SAFETY: as the caller says.
        let key = unsafe { bytes(key, key_length, "key")? };
        if store.remove(key) { Ok(()) } else { Err(MISS) }
    })
}

/// Takes all values out.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_store_clear(store: Option<&RampackStore>) -> c_int {
    call(|| {
        of(store, "store")?.store.clear();
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
        let store = &of(store, "store")?.store;
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
    call(|| Ok(of(store, "store")?.store.set_limit(bytes)?))
}

/// Writes a snapshot of the values, with the lives that they have left, to the open file `fd`, a
/// pipe for example. Other threads go on meanwhile: a value is in it as it was at some instant
/// within this call. `values` gets their number; it may be `NULL`. The file stays open.
///
/// Errors: those of the file; `-EIO` if what is stored does not decompress. What was written is no
/// snapshot then.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_store_save(
    store: Option<&RampackStore>,
    fd: c_int,
    values: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    call(|| {
        let saved = of(store, "store")?.store.save(file(fd)?)?;
        if let Some(values) = values {
            values.write(saved);
        }
        Ok(())
    })
}

/// Reads a snapshot from the open file `fd` to its end, and then stores all its values, each in
/// place of the one that its key had. `values` gets their number; it may be `NULL`.
///
/// Errors: `-EINVAL` for what is no whole and sound snapshot; `-ENOSPC` if there is no room for all
/// of it; `-ENOTSUP` for an algorithm that the library lacks; those of the file. The store has what
/// it had then.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_store_load(
    store: Option<&RampackStore>,
    fd: c_int,
    values: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    call(|| {
        let loaded = of(store, "store")?.store.load(file(fd)?)?;
        if let Some(values) = values {
            values.write(loaded);
        }
        Ok(())
    })
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
        let now = of(store, "store")?.store.stats();
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
            recompressed: now.recompressed,
            saved_bytes: now.saved_bytes,
            lost: now.lost,
        };
        // SAFETY: as the caller says.
        unsafe { fill(stats, "stats", filled) }
    })
}
