//! Disks that other programs use, over NBD.
//!
//! The functions are always there. What they need, some ten crates, is the feature `serve`.
//!
//! # Why unsafe
//! C calls the functions, with pointers.

#[cfg(not(feature = "serve"))]
use std::convert::Infallible as Served;
use std::ffi::{OsStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[cfg(any(not(feature = "serve"), test))]
use control::Errno;
#[cfg(feature = "serve")]
use rampack::NbdServer as Served;

use crate::call::{Failure, call};
use crate::caller::{of, put, text};
use crate::disk::RampackDisk;

/// A disk that is served to other programs. Any number of threads may use it at once.
pub struct RampackServer(Served);

/// Serves a disk over NBD at a Unix socket of this path, which only the user of the process may
/// open. A socket that nobody answers at is replaced. `name` is that of the export, which is also
/// the default one; `NULL`: "disk". Threads of the server answer; the process goes on using the
/// disk.
///
/// Errors: `-EADDRINUSE` if somebody listens there or a file is in the way, `-ENAMETOOLONG` for a
/// path of more than 107 bytes, those of the system, as `-ENOENT` without its directory; `-ENOSYS`
/// if the library was built without the feature `serve`.
///
/// # Safety
/// `name` is a text or `NULL`, and so is `path`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rampack_disk_serve_nbd(
    disk: Option<&RampackDisk>,
    name: *const c_char,
    path: *const c_char,
    made: Option<&mut MaybeUninit<Box<RampackServer>>>,
) -> c_int {
    call(|| {
        let disk = of(disk, "disk")?;
        // SAFETY: as the caller says.
        let name = unsafe { text(name) }.map_or("disk".into(), |name| name.to_string_lossy());
        // SAFETY: as the caller says.
        let path = unsafe { text(path) }.ok_or_else(|| Failure::invalid("path is NULL"))?;
        let served = serve(&disk.disk, &name, Path::new(OsStr::from_bytes(path.to_bytes())))?;
        put(made, "made", Box::new(RampackServer(served)))
    })
}

/// The clients that are connected now; 0 for `NULL`.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_server_clients(server: Option<&RampackServer>) -> usize {
    let mut clients = 0;
    call(|| {
        clients = clients_of(&of(server, "server")?.0);
        Ok(())
    });
    clients
}

/// Ends a server: requests that came are answered, the connections end, and the socket is removed.
/// The disk stays until it is freed, too. `NULL` is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rampack_server_free(server: Option<Box<RampackServer>>) {
    call(|| {
        drop(server);
        Ok(())
    });
}

#[cfg(feature = "serve")]
fn serve(disk: &rampack::Disk, name: &str, path: &Path) -> Result<Served, Failure> {
    Ok(disk.serve_nbd(name, &rampack::Address::Unix(path.into()))?)
}

#[cfg(feature = "serve")]
fn clients_of(server: &Served) -> usize {
    server.connections()
}

#[cfg(not(feature = "serve"))]
fn serve(_: &rampack::Disk, _: &str, _: &Path) -> Result<Served, Failure> {
    Err(not_built())
}

#[cfg(not(feature = "serve"))]
fn clients_of(server: &Served) -> usize {
    match *server {}
}

#[cfg(any(not(feature = "serve"), test))]
fn not_built() -> Failure {
    let message = "this librampack was built without its feature `serve`: disks are not served";
    Failure::new(Errno::ENOSYS, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_it_says_so() {
        assert_eq!(not_built().number(), -38);
        assert_eq!(call(|| Err(not_built())), -38);
        // SAFETY: the text is there until the next failure of this thread.
        let said = unsafe { std::ffi::CStr::from_ptr(crate::rampack_last_error()) };
        assert!(said.to_string_lossy().contains("without its feature `serve`"), "{said:?}");
    }
}
