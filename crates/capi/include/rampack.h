/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * rampack: cold data compressed in memory, for C and C++. See rampack(3).
 *
 * Functions that return int give 0, or a negative number of errno.h; then
 * rampack_last_error() has a sentence. NULL where there must be something, and
 * a length that cannot be, are -EINVAL. Any number of threads may call every
 * function with the same handle, but no other call may be under way when a
 * handle is freed. Handles may be freed in any order. A child of fork() must
 * not use them.
 */

#ifndef RAMPACK_H
#define RAMPACK_H

/* Made by cbindgen: change the sources of crates/capi. */

#include <stddef.h>
#include <stdint.h>

// Bytes of a page: disks are as long as a whole number of them.
#define RAMPACK_PAGE_SIZE 4096

// Programs of this system wait for memory.
#define RAMPACK_PRESSURE_SYSTEM 1

// Compressed data takes seven eighths of `memory`, or more.
#define RAMPACK_PRESSURE_LIMIT 2

// The most bytes of a key.
#define RAMPACK_KEY_MAX 1024

// The most bytes of a value: 16 MiB.
#define RAMPACK_VALUE_MAX 16777216

// The memory of a value was needed.
#define RAMPACK_EVICTED 1

// The life of a value ended.
#define RAMPACK_EXPIRED 2

// Memory of this process for compressed data. It ends with `rampack_free`, but what was made of
// it stays until it is freed, too.
struct rampack;

// A compressed disk of this process. Any number of threads may use it at once.
struct rampack_disk;

// A disk that is served to other programs. Any number of threads may use it at once.
struct rampack_server;

// Values by keys, compressed. Any number of threads may use it at once.
struct rampack_store;

// The options of a disk.
struct rampack_disk_options {
  // `sizeof(struct rampack_disk_options)`.
  size_t struct_size;
  // Such as "lz4" or "zstd:9"; `NULL`: lz4.
  const char *algorithm;
  // The most bytes of memory for its pages; 0: no limit.
  uint64_t mem_limit;
};

// What a disk has and takes.
struct rampack_disk_stats {
  // `sizeof(struct rampack_disk_stats)`; then the bytes that were filled.
  size_t struct_size;
  // Pages with contents, same-filled ones among them.
  uint64_t pages;
  // Pages filled with one pattern of eight bytes.
  uint64_t same_filled;
  // Pages that did not shrink.
  uint64_t incompressible;
  // Bytes of all compressed pages.
  uint64_t compressed_bytes;
  // Bytes of memory that the disk takes, tables among them.
  uint64_t memory_bytes;
  // The most memory that its pages took so far.
  uint64_t peak_bytes;
  // Pages that could not be read or written, and requests past the end.
  uint64_t failed;
  // Its limit; 0 for none.
  uint64_t mem_limit;
};

// Is called when memory is short, at most once a second, with a `RAMPACK_PRESSURE_...`: by the
// thread of upkeep, or by who calls `rampack_upkeep`. It may free and discard what it likes, but
// must not call `rampack_upkeep`. It must return: no exception, no `longjmp`.
typedef void (*rampack_on_pressure)(void *data, int why);

// The settings of a `struct rampack`.
struct rampack_options {
  // `sizeof(struct rampack_options)`.
  size_t struct_size;
  // The most bytes of memory that compressed data takes, 1 MiB at least; 0: as much as this
  // machine, or its control group, has.
  uint64_t memory;
  // 0: a thread does upkeep. 1: the program calls `rampack_upkeep`.
  uint32_t manual_upkeep;
  // 0.
  uint32_t reserved;
  // Called when memory is short, with `on_pressure_data`; `NULL`: nobody is told.
  rampack_on_pressure on_pressure;
  // For `on_pressure`. It is there until all that is made of the `struct rampack` is freed.
  void *on_pressure_data;
};

// What a `struct rampack` takes.
struct rampack_stats {
  // `sizeof(struct rampack_stats)`; then the bytes that were filled.
  size_t struct_size;
  // Bytes of memory in use for compressed data.
  uint64_t used_bytes;
  // The most that they may be.
  uint64_t limit_bytes;
};

// Is called with each value that left a store by itself, when nobody finds it any more, before it
// is freed; `why` is `RAMPACK_EVICTED` or `RAMPACK_EXPIRED`. By any thread: one that stores
// another value, or that does upkeep. It may use the store, but must not put a value into it, nor
// free a store. `value` is `NULL` if what was stored does not decompress. It must return: no
// exception, no `longjmp`.
typedef void (*rampack_on_evict)(void *data,
                                 int why,
                                 const void *key,
                                 size_t key_length,
                                 const void *value,
                                 size_t length);

// The options of a store.
struct rampack_store_options {
  // `sizeof(struct rampack_store_options)`.
  size_t struct_size;
  // "lz4", "lz4hc", "zstd" or "deflate", also with a level as "zstd:9"; `NULL`: lz4.
  const char *algorithm;
  // The most bytes of memory, 1 MiB at least; 0: no limit but that of its `struct rampack`.
  uint64_t limit;
  // Values are compressed in units of so many bytes: 4096, 8192, 16384, 32768 or 65536; 0:
  // 16384.
  uint32_t unit;
  // 0: values that were not read lately go when memory is short. 1: a put fails then.
  uint32_t no_eviction;
  // 0: values of up to 1 KiB are compressed together, which halves their memory and makes each
  // read some microseconds longer. 1: each by itself.
  uint32_t no_groups;
  // 0.
  uint32_t reserved;
  // Called with each value that leaves by itself, and with `on_evict_data`; `NULL`: nobody is
  // told.
  rampack_on_evict on_evict;
  // For `on_evict`. It is there until the store is freed.
  void *on_evict_data;
  // Upkeep compresses values that were not read for `recompress_after` seconds (it may take
  // twice as long) once more: by "lz4hc", "zstd" or "deflate". `NULL`: it does not.
  const char *recompress;
  // Seconds.
  uint32_t recompress_after;
  // 0.
  uint32_t reserved2;
};

// A value of `rampack_store_put_many` or `rampack_store_get_many`.
struct rampack_item {
  // Its key.
  const void *key;
  // The bytes of the key.
  size_t key_length;
  // The value to be put, or where it is read to.
  void *value;
  // Its bytes. For `rampack_store_get_many` the bytes that are there; then the length of the
  // value, also if that is too long.
  size_t length;
  // What the call gave for it: 0, or a negative number.
  int status;
};

// Is called with a key and the length of its value. Another value than 0 ends the iteration.
typedef int (*rampack_visit)(void *data,
                             const void *key,
                             size_t key_length,
                             size_t length);

// What a store has and takes.
struct rampack_store_stats {
  // `sizeof(struct rampack_store_stats)`; then the bytes that were filled.
  size_t struct_size;
  // Values.
  uint64_t values;
  // Bytes of their keys and values.
  uint64_t data_bytes;
  // Bytes of memory that they take, tables among them.
  uint64_t memory_bytes;
  // Reads that found a value.
  uint64_t hits;
  // Reads that found none.
  uint64_t misses;
  // Values stored so far.
  uint64_t puts;
  // Values that went because memory was needed, so far.
  uint64_t evicted;
  // Values whose lives ended, so far.
  uint64_t expired;
  // Values, and groups of small ones, that were compressed once more, so far.
  uint64_t recompressed;
  // Bytes of memory that this has saved, so far.
  uint64_t saved_bytes;
  // Values that were lost because what another process left of them was damaged.
  uint64_t lost;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, such as "0.1.0".
const char *rampack_version(void);

// What the last call of this thread that failed has said: a sentence for people, "" if none
// failed. It is there until another call of this thread fails.
const char *rampack_last_error(void);

// Makes a disk of `size` bytes, rounded up to pages. It takes memory as it is written; what was
// not written reads as zeroes. `settings` may be `NULL`.
//
// Errors: `-EINVAL` for a size of 0 or an option that is not allowed, `-ENOMEM`.
//
// # Safety
// `settings` is `NULL`, or as long as it says, and its algorithm a text or `NULL`.
int rampack_disk_new(const struct rampack *rampack,
                     uint64_t size,
                     const struct rampack_disk_options *settings,
                     struct rampack_disk **made);

// Ends a disk, and frees what is in it; `NULL` is nothing.
void rampack_disk_free(struct rampack_disk *disk);

// Its size in bytes; 0 for `NULL`.
uint64_t rampack_disk_size(const struct rampack_disk *disk);

// Reads `length` bytes from `offset` on.
//
// Errors: `-EINVAL` past the end; `-EIO` if what is stored does not decompress.
//
// # Safety
// There are so many bytes at `into`.
int rampack_disk_read(const struct rampack_disk *disk,
                      uint64_t offset,
                      void *into,
                      size_t length);

// Writes `length` bytes from `offset` on. Whole pages are quicker than parts.
//
// Errors: `-EINVAL` past the end, `-ENOSPC` at the limit, `-ENOMEM`; pages before the one that
// failed are written.
//
// # Safety
// There are so many bytes at `from`.
int rampack_disk_write(const struct rampack_disk *disk,
                       uint64_t offset,
                       const void *from,
                       size_t length);

// Frees `length` bytes from `offset` on, both multiples of `RAMPACK_PAGE_SIZE`. They read as
// zeroes afterwards.
//
// Errors: `-EINVAL` past the end or for a part of a page; nothing has changed then.
int rampack_disk_discard(const struct rampack_disk *disk,
                         uint64_t offset,
                         uint64_t length);

// Sets the limit of its memory in bytes; 0 for none. What is stored stays.
int rampack_disk_set_limit(const struct rampack_disk *disk, uint64_t bytes);

// Moves what is stored together, and gives memory back to the system. `freed` may be `NULL`.
//
// Errors: `-EBUSY` while another thread does so.
int rampack_disk_compact(const struct rampack_disk *disk,
                         uint64_t *freed);

// The statistics of a disk now.
//
// # Safety
// `stats` is as long as it says.
int rampack_disk_get_stats(const struct rampack_disk *disk,
                           struct rampack_disk_stats *stats);

// Makes memory for disks and stores; `NULL` for all defaults.
//
// Errors: `-EINVAL` for a setting that is not allowed, `-ENOMEM`.
//
// # Safety
// `settings` is `NULL`, or as long as it says. Its function may be called by any thread.
int rampack_new(const struct rampack_options *settings,
                struct rampack **made);

// Gives it back; `NULL` is nothing.
void rampack_free(struct rampack *rampack);

// One round of upkeep, with `manual_upkeep`: about once a second. It takes some milliseconds.
//
// Errors: `-ENOMEM`; all is as it was.
int rampack_upkeep(const struct rampack *rampack);

// The memory that all of it takes.
//
// # Safety
// `stats` is as long as it says.
int rampack_get_stats(const struct rampack *rampack,
                      struct rampack_stats *stats);

// Serves a disk over NBD at a Unix socket of this path, which only the user of the process may
// open. A socket that nobody answers at is replaced. `name` is that of the export, which is also
// the default one; `NULL`: "disk". Threads of the server answer; the process goes on using the
// disk.
//
// Errors: `-EADDRINUSE` if somebody listens there or a file is in the way, `-ENAMETOOLONG` for a
// path of more than 107 bytes, those of the system, as `-ENOENT` without its directory; `-ENOSYS`
// if the library was built without the feature `serve`.
//
// # Safety
// `name` is a text or `NULL`, and so is `path`.
int rampack_disk_serve_nbd(const struct rampack_disk *disk,
                           const char *name,
                           const char *path,
                           struct rampack_server **made);

// The clients that are connected now; 0 for `NULL`.
size_t rampack_server_clients(const struct rampack_server *server);

// Ends a server: requests that came are answered, the connections end, and the socket is removed.
// The disk stays until it is freed, too. `NULL` is nothing.
void rampack_server_free(struct rampack_server *server);

// Makes a store. `settings` may be `NULL`.
//
// Errors: `-EINVAL` for an option that is not allowed, `-ENOMEM`.
//
// # Safety
// `settings` is `NULL`, or as long as it says, and its algorithms are texts or `NULL`. Its
// function may be called by any thread.
int rampack_store_new(const struct rampack *rampack,
                      const struct rampack_store_options *settings,
                      struct rampack_store **made);

// Makes a clone: another store with the values that this one has at an instant within this call.
// Its memory is shared until one of the two has another value or none. So is the limit, which
// counts what is shared once. The clone has the options of the store, but `on_evict`.
//
// Errors: `-ENOTSUP` when there are 254 clones; `-ENOMEM`.
int rampack_store_clone(const struct rampack_store *store,
                        struct rampack_store **made);

// Ends a store, and frees what is in it and in none of its clones; `NULL` is nothing.
void rampack_store_free(struct rampack_store *store);

// Stores a value in place of the one that the key had. With a `ttl` other than 0 it is not found
// any more after so many seconds, and may go up to a second earlier.
//
// Errors: `-EINVAL` for a key or a value that is too long, `-ENOSPC` when there is no room.
//
// # Safety
// There are so many bytes at `key` and at `value`.
int rampack_store_put(const struct rampack_store *store,
                      const void *key,
                      size_t key_length,
                      const void *value,
                      size_t length,
                      uint32_t ttl);

// Reads the value of a key to `into`, where there are `capacity` bytes, and its length to
// `length`.
//
// Errors: `-ENOENT` if there is none; `-ERANGE` if it is longer than `capacity`: `length` is its
// length then, and `into` is as it was; `-EIO` if what is stored does not decompress.
//
// # Safety
// There are so many bytes at `key` and at `into`.
int rampack_store_get(const struct rampack_store *store,
                      const void *key,
                      size_t key_length,
                      void *into,
                      size_t capacity,
                      size_t *length);

// Stores `count` values, with the same `ttl`, as `rampack_store_put` does, and sets the status of
// each. Gives 0 if all are stored, or the first error: others may be stored.
//
// Errors: as for `rampack_store_put`.
//
// # Safety
// There are so many items, with bytes at each key and value, which are not written.
int rampack_store_put_many(const struct rampack_store *store,
                           struct rampack_item *items,
                           size_t count,
                           uint32_t ttl);

// Reads `count` values, each to its place, as `rampack_store_get` does, and sets the status and
// the length of each. Gives 0 if all were read, or the first error: others may be read.
//
// Errors: as for `rampack_store_get`; a value that is not there is `-ENOENT`.
//
// # Safety
// There are so many items, with bytes at each key and value.
int rampack_store_get_many(const struct rampack_store *store,
                           struct rampack_item *items,
                           size_t count);

// Reads the bytes of a value from `from` on to `into`, at most `capacity`, and how many there were
// to `length`. Only the units that they are in are decompressed.
//
// Errors: as for `rampack_store_get`, but for `-ERANGE`.
//
// # Safety
// There are so many bytes at `key` and at `into`.
int rampack_store_get_range(const struct rampack_store *store,
                            const void *key,
                            size_t key_length,
                            size_t from,
                            void *into,
                            size_t capacity,
                            size_t *length);

// The length of the value of a key.
//
// Errors: `-ENOENT` if there is none.
//
// # Safety
// There are so many bytes at `key`.
int rampack_store_length(const struct rampack_store *store,
                         const void *key,
                         size_t key_length,
                         size_t *length);

// Takes the value of a key out.
//
// Errors: `-ENOENT` if there is none.
//
// # Safety
// There are so many bytes at `key`.
int rampack_store_remove(const struct rampack_store *store,
                         const void *key,
                         size_t key_length);

// Takes all values out.
int rampack_store_clear(const struct rampack_store *store);

// Calls `visit` with each key, in no order, until it gives another value than 0. Values may come
// and go meanwhile: a key that is there all the time is seen at least once, and rarely twice.
// `visit` may use the store. It must return: no exception, no `longjmp`.
int rampack_store_keys(const struct rampack_store *store,
                       rampack_visit visit,
                       void *data);

// Limits its memory to so many bytes from now on, 1 MiB at least. What is too much goes with the
// next puts.
//
// Errors: `-EINVAL` for fewer; nothing has changed then.
int rampack_store_set_limit(const struct rampack_store *store,
                            uint64_t bytes);

// Writes a snapshot of the values, with the lives that they have left, to the open file `fd`, a
// pipe for example. Other threads go on meanwhile: a value is in it as it was at some instant
// within this call. `values` gets their number; it may be `NULL`. The file stays open.
//
// Errors: those of the file; `-EIO` if what is stored does not decompress. What was written is no
// snapshot then.
int rampack_store_save(const struct rampack_store *store,
                       int fd,
                       uint64_t *values);

// Reads a snapshot from the open file `fd` to its end, and then stores all its values, each in
// place of the one that its key had. `values` gets their number; it may be `NULL`.
//
// Errors: `-EINVAL` for what is no whole and sound snapshot; `-ENOSPC` if there is no room for all
// of it; `-ENOTSUP` for an algorithm that the library lacks; those of the file. The store has what
// it had then.
int rampack_store_load(const struct rampack_store *store,
                       int fd,
                       uint64_t *values);

// The statistics of a store now.
//
// # Safety
// `stats` is as long as it says.
int rampack_store_get_stats(const struct rampack_store *store,
                            struct rampack_store_stats *stats);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RAMPACK_H */
