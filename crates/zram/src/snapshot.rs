//! Snapshots: a file with the contents that a device had at one instant, taken while it is used.
//!
//! [`Disk::snapshot`](crate::Disk::snapshot) gives the file piece by piece, and
//! [`Disk::restore`](crate::Disk::restore) reads it. Neither goes back in it, so it may be a pipe.
//!
//! # The file
//! All numbers are little-endian. It begins with the letters `rampack-snap` and its version in four
//! bytes, now 1. (A store of values has `rampack-vals` and other kinds of records: see its crate.)
//! *Records* follow:
//!
//! | bytes | what |
//! |---|---|
//! | 0–3 | the kind of the record |
//! | 4–7 | the bytes of its contents, at most 2 MiB |
//! | 8–15 | XXH3 (64 bits) of the contents |
//! | 16 … | the contents |
//!
//! The seed of the sum is the kind plus 256 times the number of the record, from 0. The contents by
//! kind:
//!
//! 1. *Begin*, the first record: bytes of the device (8), seconds since 1970 (8), its name.
//! 2. *Codec*: its priority (1), whether it was current (1), which of the next two are given (bits
//!    0 and 1 of 1), level (4), window bits (4), the length of its name (1), its name, its
//!    dictionary. Codecs have numbers in the order of their records, from 0.
//! 3. *Pages*: entries.
//! 4. *End*, the last: pages (8), objects (8).
//!
//! An entry is eight bytes and what belongs to it: the number of a page (4), a kind (1), a codec
//! (1), and the bytes that follow (2).
//!
//! | kind | what follows |
//! |---|---|
//! | 1 filled | the eight bytes that fill the page |
//! | 2 compressed | the page, compressed with the codec of this number |
//! | 3 huge | the page, which did not shrink |
//! | 4 plain | the page, which may shrink |
//! | 5 lost | nothing: the contents of the page were lost before |
//! | 6 object | what several pages share, compressed |
//! | 7 huge object | the same, of one page that did not shrink |
//! | 8 part | the number of the object (4), in the order of their entries, from 0 |
//!
//! An object has the number of its pages instead of that of a page, and a part says instead of a
//! codec which of them it is. An object comes before its parts. The numbers of pages rise. A page
//! without an entry is empty.

mod format;
mod read;
mod restore;
mod save;

pub use format::{Codec, Form, Item, MOST, Of, put_beginning, put_record};
pub use read::{Place, Record, read_records, read_snapshot};
pub use restore::{Restored, Restoring};
pub use save::Snapshot;
