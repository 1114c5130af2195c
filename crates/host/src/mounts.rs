//! The list of mounts, mounting and unmounting.
//!
//! # Why unsafe
//! A namespace of its own is one of the whole process.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::iter;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, UnmountFlags,
    fsconfig_create, fsmount, fsopen, mount_change,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::program::in_a_copy;

/// One line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// The device number of the file system: `0:NN` for FUSE, where NN names its control directory.
    pub device: (u32, u32),
    /// The mount point.
    pub at: PathBuf,
    /// The type of the file system.
    pub kind: String,
    /// The source of the mount, as the mounter named it.
    pub source: PathBuf,
}

/// Everything mounted in this namespace, in the order it was mounted.
///
/// # Errors
/// The error of the system: what is mounted is not known then.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    let text = fs::read("/proc/self/mountinfo").map_err(|error| match error.kind() {
        // Not to be mistaken for a mount that is gone.
        ErrorKind::NotFound => io::Error::other("/proc is not mounted"),
        _ => error,
    });
    Ok(parse_mounts(&text?))
}

/// The mounts exactly at `path`, the uppermost last.
///
/// # Errors
/// As [`mounts`].
pub fn mounts_at(path: &Path) -> io::Result<Vec<Mounted>> {
    Ok(mounts()?.into_iter().filter(|mounted| mounted.at == path).collect())
}

/// The uppermost that is mounted over the mount at place `own` of `all`, or over a directory above
/// it: its path leads there.
#[must_use]
pub fn covering(all: &[Mounted], own: usize) -> Option<&Mounted> {
    let place = &all.get(own)?.at;
    // What is mounted over `/` hides nothing from a process that was there before.
    let covers = |it: &&Mounted| it.at != Path::new("/") && place.starts_with(&it.at);
    all[own + 1..].iter().rfind(covers)
}

/// The numbers of the block device `name` and of its partitions, as mounts of them have. They
/// follow from no name: that of /dev/loopN is another one with partitions (`loop.max_part`).
#[must_use]
pub fn device_numbers(name: &str) -> Vec<(u32, u32)> {
    numbers_in(&Path::new("/sys/block").join(name))
}

fn numbers_in(device: &Path) -> Vec<(u32, u32)> {
    let within = fs::read_dir(device).into_iter().flatten().flatten().map(|entry| entry.path());
    let all =
        iter::once(device.to_owned()).chain(within.filter(|it| it.join("partition").exists()));
    let number = |it: PathBuf| parse_number(fs::read_to_string(it.join("dev")).ok()?.trim());
    all.filter_map(number).collect()
}

fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The lines of a mountinfo file. Lines of another form are skipped.
#[must_use]
pub fn parse_mounts(text: &[u8]) -> Vec<Mounted> {
    text.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()
}

fn parse_mount(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = parse_number(std::str::from_utf8(fields.nth(2)?).ok()?)?;
    let at = unescape(fields.nth(1)?);
    // Any number of optional fields end with a lone dash.
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(Mounted { device, at, kind, source: unescape(fields.next()?) })
}

/// Undoes the kernel's escapes of a path: white space and backslashes are a backslash and three
/// octal digits.
#[must_use]
pub fn unescape(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let code =
            octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(plain))
}

/// A mount of the file system with the connections of FUSE, at no place: nobody need have it
/// mounted.
///
/// # Errors
/// `EPERM` without root.
pub fn fuse_connections() -> io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Mounts `source` at `target` with the options `data`, without set-user-id programs and device
/// files.
///
/// # Errors
/// The error of mount(2).
pub fn mount(source: &Path, target: &Path, kind: &str, data: &str) -> io::Result<()> {
    let (flags, data) = (MountFlags::NOSUID | MountFlags::NODEV, CString::new(data)?);
    Ok(rustix::mount::mount(source, target, kind, flags, &*data)?)
}

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmount {
    /// The call fails with `EBUSY` while the mount is in use.
    WhenUnused,
    /// FUSE: fails every request, now and later; then as [`Unmount::WhenUnused`].
    Abort,
    /// The mount disappears from the tree now, and ends with its last user.
    Lazily,
}

/// Unmounts `path`.
///
/// # Errors
/// The error of umount2(2).
pub fn unmount(path: &Path, how: Unmount) -> io::Result<()> {
    let flags = match how {
        Unmount::WhenUnused => UnmountFlags::empty(),
        Unmount::Abort => UnmountFlags::FORCE,
        Unmount::Lazily => UnmountFlags::DETACH,
    };
    Ok(rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW)?)
}

/// Gives this process a mount namespace of its own. It sees the mounts of others; no other process
/// sees its mounts. The process must have one thread.
///
/// # Errors
/// The error of unshare(2) or mount(2); `EPERM` without root.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: the caller has one thread, and a namespace of mounts concerns no descriptor.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?)
}

/// Can this process make a user namespace, and a mount namespace in it (user_namespaces(7))? It is
/// tried in a copy, because settings, security modules and the filters of a container all have a
/// say. The process must have one thread.
///
/// # Errors
/// The error of fork(2) or unshare(2).
pub fn try_user_namespace() -> io::Result<()> {
    let tried = in_a_copy(|| {
        // SAFETY: the copy has one thread and ends here; the namespaces concern no descriptor.
        let of = |flags| unsafe { unshare_unsafe(flags) };
        // One after the other: a security module may let a process have the first one alone.
        let made = of(UnshareFlags::NEWUSER).and_then(|()| of(UnshareFlags::NEWNS));
        made.map_or_else(|error| error.raw_os_error() as u8, |()| 0)
    });
    match tried? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::parse_mount as parse;
    use super::*;

    #[test]
    fn lines_of_mountinfo_are_understood() {
        let line =
            br"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=x";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.device, (98, 0));
        assert_eq!((mounted.at.as_path(), &mounted.kind[..]), (Path::new("/mnt2"), "ext3"));
        assert_eq!(mounted.source, Path::new("/dev/root"));
        let line = br"40 35 0:52 / /a\040b\134c rw - fuse.rampack rampack rw,user_id=0";
        let expected = Mounted {
            device: (0, 52),
            at: r"/a b\c".into(),
            kind: "fuse.rampack".into(),
            source: "rampack".into(),
        };
        assert_eq!(parse(line), Some(expected));
        for line in ["", "36 35", "1 2 x:y / / rw - a b c", "1 2 0:1 / / rw shared:1 ext4 a"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn what_is_mounted_over_a_mount_is_found() {
        let at = |at: &str| Mounted {
            device: (0, 52),
            at: at.into(),
            kind: "tmpfs".into(),
            source: "none".into(),
        };
        let all = ["/a/b", "/a/b/c", "/a", "/a/b", "/a/bc", "/"].map(at);
        for own in [0, 1] {
            assert!(std::ptr::eq(covering(&all, own).unwrap(), &all[3]));
        }
        for own in 2..6 {
            assert_eq!(covering(&all, own), None, "{own}");
        }
    }

    #[test]
    fn a_device_has_the_numbers_that_the_kernel_says() {
        let sys = testkit::TempDir::new();
        // As with loop.max_part=15.
        for (path, number) in [("loop1", "7:16"), ("loop1/loop1p3", "7:19"), ("loop1/queue", "x")] {
            fs::create_dir_all(sys.join(path)).unwrap();
            fs::write(sys.join(path).join("dev"), format!("{number}\n")).unwrap();
        }
        fs::write(sys.join("loop1/loop1p3/partition"), "3\n").unwrap();
        assert_eq!(numbers_in(&sys.join("loop1")), [(7, 16), (7, 19)]);
        assert_eq!(numbers_in(&sys.join("loop16")), []);
    }

    #[test]
    fn what_is_no_escape_stays() {
        for plain in [r"\", r"\1", r"a\12", r"\999", r"\04x"] {
            assert_eq!(unescape(plain.as_bytes()), OsStr::new(plain));
        }
        assert_eq!(unescape(br"\011\012"), OsStr::new("\t\n"));
    }
}
