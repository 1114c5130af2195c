//! What the caller has: texts, bytes, structs with a size, places for results, files.
//!
//! # Why unsafe
//! C says where memory is with a pointer, how long it is and which file it means with numbers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::{ptr, slice};

use control::Errno;
use rampack::Algorithm;

use crate::call::Failure;

/// What a handle stands for.
pub fn of<'a, T>(handle: Option<&'a T>, name: &str) -> Result<&'a T, Failure> {
    handle.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}

/// Puts a result where the caller wants it.
pub fn put<T>(into: Option<&mut MaybeUninit<T>>, name: &str, value: T) -> Result<(), Failure> {
    let into = into.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))?;
    into.write(value);
    Ok(())
}

fn check(pointer: *const c_void, length: usize, name: &str) -> Result<(), Failure> {
    if pointer.is_null() && length > 0 {
        return Err(Failure::invalid(format!("{name} is NULL, and {length} bytes long")));
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::invalid(format!("{name}: there are no {length} bytes of memory")));
    }
    Ok(())
}

/// The bytes of the caller at `pointer`. No bytes may be nowhere.
///
/// # Safety
/// There are so many, and nobody writes them during the call.
pub unsafe fn bytes<'a>(
    pointer: *const c_void,
    length: usize,
    name: &str,
) -> Result<&'a [u8], Failure> {
    check(pointer, length, name)?;
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null, of a length that can be; the rest is the caller's.
    Ok(unsafe { slice::from_raw_parts(pointer.cast(), length) })
}

/// The same, to be written.
///
/// # Safety
/// There are so many, and nobody else uses them during the call.
pub unsafe fn bytes_mut<'a>(
    pointer: *mut c_void,
    length: usize,
    name: &str,
) -> Result<&'a mut [u8], Failure> {
    check(pointer, length, name)?;
    if length == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not null, of a length that can be; the rest is the caller's. C has no memory that
    // must not be read before it is written, but for its tools, and the library only writes it.
    Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), length) })
}

/// The text of the caller; `None` for `NULL`.
///
/// # Safety
/// `pointer` is null, or the text ends with a zero and stays.
pub unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not null; the rest is the caller's.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}

/// The algorithm of a name, as `zstd:9`; the default for `NULL`.
///
/// # Safety
/// `pointer` is null, or the text ends with a zero.
pub unsafe fn algorithm(pointer: *const c_char) -> Result<Algorithm, Failure> {
    // SAFETY: as the caller says.
    let Some(name) = (unsafe { text(pointer) }) else { return Ok(Algorithm::default()) };
    let parsed = name.to_string_lossy().parse();
    parsed.map_err(|error: rampack::UnknownAlgorithm| Failure::invalid(error.to_string()))
}

/// A pointer that the caller has for a function of his own.
#[derive(Clone, Copy)]
pub struct Data(*mut c_void);

// SAFETY: the library never follows it: it passes it on, to a function that the caller has said any
// thread may call.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

impl Data {
    /// The data of the caller.
    pub fn of(pointer: *mut c_void) -> Data {
        Data(pointer)
    }

    /// What the function is called with.
    pub fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// The items of the caller at `pointer`. No items may be nowhere.
///
/// # Safety
/// There are so many, and nobody else uses them during the call.
pub unsafe fn items_mut<'a, T>(
    pointer: *mut T,
    count: usize,
    name: &str,
) -> Result<&'a mut [T], Failure> {
    let length = count.saturating_mul(size_of::<T>());
    check(pointer.cast(), length, name)?;
    if !pointer.is_aligned() {
        return Err(Failure::invalid(format!("{name} is not aligned")));
    }
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not null, aligned, of a length that can be; the rest is the caller's.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, count) })
}

/// A struct of the interface: of `repr(C)`, any bytes are a value of it, and its first member is a
/// `usize`, its size as the caller knows it.
///
/// # Safety
/// It is so.
pub unsafe trait Growing: Copy {
    /// The struct with all defaults.
    const DEFAULT: Self;
}

/// The size that the caller's struct says it has.
///
/// # Safety
/// `pointer` is null or has a struct.
unsafe fn size_of_callers<T: Growing>(pointer: *const T, name: &str) -> Result<usize, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL")));
    }
    // SAFETY: the first member of every such struct.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < size_of::<usize>() {
        let message = format!("{name}->struct_size is {size}: set it to sizeof of the struct");
        return Err(Failure::invalid(message));
    }
    Ok(size)
}

/// The options of the caller, with defaults for members that he does not know; all defaults for
/// `NULL`.
///
/// # Safety
/// `pointer` is null, or a struct as long as it says.
pub unsafe fn options<T: Growing>(pointer: *const T, name: &str) -> Result<T, Failure> {
    let mut options = T::DEFAULT;
    if pointer.is_null() {
        return Ok(options);
    }
    // SAFETY: as the caller says.
    let size = unsafe { size_of_callers(pointer, name)? };
    if size > size_of::<T>() {
        let known = size_of::<T>();
        let message = format!(
            "{name}->struct_size is {size}, and this rampack knows {known} bytes: it is older than \
             the rampack.h of the program"
        );
        return Err(Failure::new(Errno::E2BIG, message));
    }
    // SAFETY: both have so many bytes, and any bytes are a value.
    unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut options).cast(), size) };
    Ok(options)
}

/// Fills the caller's struct as far as both know it. Its size becomes that of what was filled.
///
/// # Safety
/// `into` is null, or a struct as long as it says.
pub unsafe fn fill<T: Growing>(into: *mut T, name: &str, value: T) -> Result<(), Failure> {
    // SAFETY: as the caller says.
    let size = unsafe { size_of_callers(into, name)? }.min(size_of::<T>());
    // SAFETY: both have so many bytes. The first of them is the size.
    unsafe {
        ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), into.cast(), size);
        into.cast::<usize>().write(size);
    }
    Ok(())
}

/// Another descriptor of the file of the caller, who keeps his.
pub fn file(fd: c_int) -> Result<File, Failure> {
    if fd < 0 {
        return Err(Failure::plain(Errno::EINVAL, c"fd is no open file"));
    }
    // SAFETY: it is used for the time of the call. If the caller has no such file, the system says
    // so.
    let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    file.map(File::from).map_err(|_| Failure::plain(Errno::EINVAL, c"fd is no open file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Two {
        struct_size: usize,
        one: u64,
        two: u64,
    }
    // SAFETY: numbers, the first of them the size.
    unsafe impl Growing for Two {
        const DEFAULT: Two = Two { struct_size: 24, one: 10, two: 20 };
    }

    #[test]
    fn structs_of_other_lengths_are_understood() {
        let mut callers = Two { struct_size: 16, one: 1, two: 2 };
        // SAFETY: it is longer than it says.
        let taken = unsafe { options(&callers, "options") };
        assert_eq!(taken.ok().map(|it| (it.one, it.two)), Some((1, 20)));
        let new = Two { struct_size: 0, one: 5, two: 6 };
        // SAFETY: it is longer than it says.
        assert!(unsafe { fill(&mut callers, "stats", new) }.is_ok());
        assert_eq!(callers, Two { struct_size: 16, one: 5, two: 2 });
        callers.struct_size = 32;
        // SAFETY: what it says is refused.
        assert!(unsafe { options(&callers, "options") }.is_err());
        callers.struct_size = 7;
        // SAFETY: what it says is refused.
        assert!(unsafe { fill(&mut callers, "stats", new) }.is_err());
        // SAFETY: null is understood.
        assert_eq!(unsafe { options::<Two>(ptr::null(), "o") }.ok(), Some(Two::DEFAULT));
        // SAFETY: null is refused.
        assert!(unsafe { fill::<Two>(ptr::null_mut(), "s", new) }.is_err());
    }

    #[test]
    fn bytes_that_cannot_be_are_refused() {
        let nowhere: *const c_void = ptr::null();
        // SAFETY: refused, or no bytes.
        unsafe {
            assert!(bytes(nowhere, 0, "key").is_ok_and(<[u8]>::is_empty));
            assert!(bytes(nowhere, 1, "key").is_err());
            assert!(bytes_mut(nowhere.cast_mut(), 1, "into").is_err());
            assert!(bytes((&raw const nowhere).cast(), usize::MAX, "key").is_err());
        }
    }
}
